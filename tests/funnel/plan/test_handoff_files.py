"""A real bash runs the written scripts, with stand-ins for what only a rented node has."""

import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from funnel.plan.booking import Terms
from funnel.plan.handoff import Handoff
from funnel.plan.handoff_files import handoff_files
from funnel.plan.utilisation import read_measured
from funnel.targets.architecture import load_target
from tests.funnel.forecast.test_ladder_forecast import NEAR, forecast_of
from tests.funnel.plan.test_megatron_flags import known_options, options
from tests.support.configs import config
from tests.support.plans import plan_of, written
from tests.support.stressed import stressed_campaign
from trainer.schema import make_config


@pytest.fixture(scope="module")
def bundle(stressed: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(plan_of(stressed), tmp_path_factory.mktemp("plan") / "handoff")


@pytest.fixture(scope="module")
def two_nodes(stressed: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a plan for eight machines, with a forecast."""
    plan = replace(plan_of(stressed, "llama-70b", nodes=8), forecast=forecast_of(NEAR))
    return written(plan, tmp_path_factory.mktemp("plan") / "handoff")


def told(plan: Handoff) -> list[str]:
    return [reason.text for reason in plan.reasons]


class Node:
    """Rented node with stand-ins for torchrun, nvidia-smi and similar programs in its PATH."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.environment = {
            "PATH": f"{home}/bin:{os.environ['PATH']}",
            "HOME": str(home),
            "MEGATRON_DIR": str(home / "Megatron-LM"),
            "DATA_PATH": "0.3 /data/a 0.7 /data/b",
            "TOKENIZER_MODEL": "/data/tok en",
            "CHECKPOINT_DIR": str(home / "checkpoints"),
        }
        self.package_info = home / "Megatron-LM/megatron/core/package_info.py"
        self.package_info.parent.mkdir(parents=True)
        self.package_info.write_text('MAJOR = 0\nMINOR = 19\nPATCH = 1\nPRE_RELEASE = ""\n')
        (home / "bin").mkdir()
        self.stand_in("torchrun", f'printf "%s\\n" "$@" > {home}/words')

    def stand_in(self, name: str, body: str) -> None:
        path = self.home / "bin" / name
        path.write_text(f"#!/usr/bin/env bash\n{body}\n")
        path.chmod(0o755)

    def run(self, script: Path, *arguments: str, code: int = 0) -> subprocess.CompletedProcess[str]:
        """Run a script, and check its exit code."""
        done = subprocess.run(
            ["bash", str(script), *arguments],
            cwd=self.home,
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done

    @property
    def launched(self) -> bool:
        return (self.home / "words").exists()

    def words(self) -> list[str]:
        return (self.home / "words").read_text().splitlines()

    def flags(self, script: Path, *arguments: str, trainer: str = "") -> dict[str, list[str]]:
        """Run a script, and return the flags after the trainer's script in its launch."""
        self.run(script, *arguments)
        words = self.words()
        pretrain = f"{self.environment['MEGATRON_DIR']}/pretrain_gpt.py"
        return dict(options(words[words.index(trainer or pretrain) + 1 :]))

    def restarting(self) -> dict[str, list[str]]:
        """Let launches start from step 4512 of another run, and return their flags for it."""
        other = self.home / "winner"
        (other / "iter_0004512").mkdir(parents=True, exist_ok=True)
        self.environment |= {"FROM_DIR": str(other), "FROM_STEP": "4512"}
        return {"--load": [str(other)], "--ckpt-step": ["4512"]}


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


def test_every_script_is_whole(bundle: Path, two_nodes: Path) -> None:
    found = [*bundle.glob("*.sh"), *two_nodes.glob("*.sh")]
    assert len(found) == 2 * (3 + 4)
    for script in found:
        subprocess.run(["bash", "-n", str(script)], check=True)
        assert "{{" not in script.read_text()
        if shutil.which("shellcheck"):
            subprocess.run(["shellcheck", str(script)], check=True)


def test_the_launch_starts_torchrun_with_flags_megatron_lm_has(bundle: Path, node: Node) -> None:
    own = node.flags(bundle / "launch_megatron.sh", "--exit-interval", "7")
    words, checkpoints = node.words(), [str(node.home / "checkpoints")]
    assert words[words.index("--nproc-per-node") + 1] == "8"
    assert set(own) <= set(known_options())
    wanted = {
        "--data-path": ["0.3", "/data/a", "0.7", "/data/b"],
        "--tokenizer-model": ["/data/tok en"],
        "--save": checkpoints,
        "--load": checkpoints,
        "--exit-interval": ["7"],
        "--global-batch-size": ["128"],
        "--bf16": [],
    }
    assert {name: own[name] for name in wanted} == wanted
    assert (node.home / "cloud.log").exists()
    del own["--exit-interval"]
    assert node.flags(bundle / "torchrun_line.sh") == own


@pytest.mark.parametrize("name", ["MEGATRON_DIR", "DATA_PATH", "TOKENIZER_MODEL", "CHECKPOINT_DIR"])
def test_what_the_user_must_fill_in_is_named(bundle: Path, node: Node, name: str) -> None:
    del node.environment[name]
    assert f"set {name}" in node.run(bundle / "launch_megatron.sh", code=1).stderr
    assert not node.launched


@pytest.mark.parametrize(
    ("version", "code"), [((0, 18), 2), ((0, 19), 0), ((0, 20), 0), ((1, 0), 0), (None, 2)]
)
def test_a_megatron_lm_that_resumes_at_other_rates_is_refused_before_anything_starts(
    bundle: Path, node: Node, version: tuple[int, int] | None, code: int
) -> None:
    if version is None:
        node.package_info.unlink()  # no Megatron-LM at all
    else:
        node.package_info.write_text("MAJOR = {}\nMINOR = {}\nPATCH = 2\n".format(*version))
    done = node.run(bundle / "launch_megatron.sh", code=code)
    assert node.launched == (code == 0)
    assert "awk" not in done.stderr


def test_several_nodes_want_a_rank_and_an_address(two_nodes: Path, node: Node) -> None:
    assert "NODE_RANK" in node.run(two_nodes / "launch_megatron.sh", code=1).stderr
    node.environment |= {"NODE_RANK": "3", "MASTER_ADDR": "10.0.0.1"}
    node.run(two_nodes / "launch_megatron.sh")
    words = node.words()
    assert [words[words.index(name) + 1] for name in ("--node-rank", "--nnodes")] == ["3", "8"]


def test_what_the_environment_asks_for(bundle: Path, node: Node) -> None:
    """Saving and precision, trackers, and asynchronous saves where their package is there."""
    script = bundle / "launch_megatron.sh"
    usual = node.flags(script)
    assert not any(word in name for name in usual for word in ("wandb", "tensorboard", "async"))
    node.environment |= {"WANDB_PROJECT": "big run", "TENSORBOARD_DIR": "/logs"}
    node.stand_in("python3", "exit 0")
    more = node.flags(script)
    assert {name: more[name] for name in more.keys() - usual.keys()}.items() >= {
        "--wandb-project": ["big run"],
        "--wandb-exp-name": ["recipe"],
        "--tensorboard-dir": ["/logs"],
        "--async-save": [],
        "--use-persistent-ckpt-worker": [],
    }.items()
    assert more.keys() <= known_options().keys()
    node.environment |= {"SAVE": "0", "PRECISION": "fp8"}
    del node.environment["CHECKPOINT_DIR"]
    unsaved = node.flags(script)
    assert "--save" not in unsaved
    assert "--fp8-format" in unsaved
    node.environment["PRECISION"] = "fp4"
    node.run(script, code=2)


def test_a_launch_that_fails_is_not_hidden_by_its_log(bundle: Path, node: Node) -> None:
    node.stand_in("torchrun", "echo boom; exit 9")
    node.run(bundle / "launch_megatron.sh", code=9)
    assert "boom" in (node.home / "cloud.log").read_text()


def test_of_several_nodes_the_last_one_judges(two_nodes: Path, node: Node) -> None:
    node.stand_in("torchrun", "true")
    node.stand_in("autoresearch", f"touch {node.home}/verified")
    node.environment |= {"NODE_RANK": "0", "MASTER_ADDR": "10.0.0.1"}
    for check in ("fp8", "layout", "day"):
        done = node.run(two_nodes / "preflight.sh", check)
        assert "node 7 has the losses" in done.stdout
        assert "passed" not in done.stdout
    assert not (node.home / "verified").exists()
    node.environment["NODE_RANK"] = "7"
    assert "has no losses" in node.run(two_nodes / "preflight.sh", "fp8", code=1).stderr
    node.run(two_nodes / "preflight.sh", "day")
    assert (node.home / "verified").exists()


def smi(links: str, memory_mib: int = 81559, gpus: int = 8) -> str:
    header = "\\t".join(["", *(f"GPU{i}" for i in range(gpus))])
    rows = [
        "\\t".join([f"GPU{i}", *("X" if i == j else links for j in range(gpus)), "0-31"])
        for i in range(gpus)
    ]
    table = "\\n".join([header, *rows, "", "Legend:", "  X = Self"])
    return f"""case "$*" in
    *topo*) printf '{table}\\n' ;;
    *index*) seq 1 {gpus} ;;
    *memory*) for i in $(seq 1 {gpus}); do echo {memory_mib}; done ;;
esac"""


def compared(flag: str, loss: str) -> str:
    """Return a trainer with losses of 5, and of ``loss`` where it is called with the flag."""
    return f"""LOSS=5.0; [[ "$*" == *"{flag}"* ]] && LOSS={loss}
for i in $(seq 1 30); do
    printf ' [2026] iteration %8d/  100 | consumed samples: %d | lm loss: %s |\\n' $i $i "$LOSS"
done"""


@pytest.mark.parametrize(
    ("check", "program", "body", "code"),
    [
        ("topology", "nvidia-smi", smi("NV18"), 0),
        ("topology", "nvidia-smi", smi("SYS"), 1),
        ("topology", "nvidia-smi", smi("NV18", memory_mib=40_960), 1),
        ("topology", "nvidia-smi", smi("NV18", gpus=4), 1),
        ("nccl", "all_reduce_perf", 'echo "# Avg bus bandwidth    : 442.1"', 0),
        ("nccl", "all_reduce_perf", 'echo "# Avg bus bandwidth    : 42.1"', 1),
        ("fp8", "torchrun", compared("--fp8-format", "5.02"), 0),
        ("fp8", "torchrun", compared("--fp8-format", "5.2"), 1),
        ("fp8", "torchrun", "true", 1),
        ("layout", "torchrun", compared("tensor-model-parallel-size 4", "5.02"), 0),
        ("layout", "torchrun", compared("tensor-model-parallel-size 4", "5.5"), 1),
        ("fabric", "true", "true", 2),  # a single node has none
        ("nonsense", "true", "true", 2),
    ],
)
def test_each_check_of_a_node_passes_or_fails(
    bundle: Path, node: Node, check: str, program: str, body: str, code: int
) -> None:
    node.stand_in(program, body)
    node.run(bundle / "preflight.sh", check, code=code)


def test_a_person_names_the_other_layout_and_the_length_of_fp8(bundle: Path, node: Node) -> None:
    """The chosen layout of 1 × 8 H100 has no pipeline; the loss of TP 4 × PP 2 is another here."""
    asked = "tensor-model-parallel-size 4 --pipeline-model-parallel-size 2"
    node.stand_in("torchrun", compared(asked, "5.5"))
    node.environment |= {"TP": "4", "PP": "2"}
    node.run(bundle / "preflight.sh", "layout", code=1)
    node.environment |= {"TP": "3"}
    assert "TP 3" in node.run(bundle / "preflight.sh", "layout", code=1).stderr
    stops = f'[[ "$*" == *"exit-interval 1000"* ]] || exit 1\n{compared("x", "5")}'
    node.stand_in("torchrun", stops)
    node.run(bundle / "preflight.sh", "fp8", code=1)
    node.environment |= {"FP8_STEPS": "1000"}
    node.run(bundle / "preflight.sh", "fp8")
    node.environment |= {"FP8_STEPS": "many"}
    node.run(bundle / "preflight.sh", "fp8", code=1)


def test_a_day_is_a_launch_and_a_verification(stressed: Path, tmp_path: Path, node: Node) -> None:
    plan = replace(plan_of(stressed), forecast=forecast_of(NEAR))
    bundle = written(plan, tmp_path / "handoff")
    node.stand_in("autoresearch", f'echo "$@" > {node.home}/verified; exit 1')
    node.environment["BYTES_PER_TOKEN"] = "4.4"
    node.run(bundle / "preflight.sh", "day", code=1)
    assert node.words()[-2:] == ["--exit-duration-in-mins", "1440"]
    verified = (node.home / "verified").read_text()
    assert verified.startswith(f"verify --handoff {bundle}")
    assert "--bytes-per-token 4.4" in verified


def test_recipes_are_there_for_every_finalist_and_a_restart(bundle: Path, node: Node) -> None:
    """Each logs into a file of its own, and none resumes another's checkpoints but its own."""
    plan = json.loads((bundle / "plan.json").read_text())
    roles = [recipe["role"] for recipe in plan["recipes"]]
    assert roles == ["winner", "runner-up", "restart", "restart"]
    recipe = json.loads((bundle / plan["recipes"][0]["file"]).read_text())
    assert make_config(recipe["projection"]["config"]).n_layer == 32
    for _ in range(2):
        node.run(bundle / "launch_megatron.sh")
    node.restarting()
    for recipe in plan["recipes"][1:]:
        (node.home / "words").unlink()
        node.environment["CHECKPOINT_DIR"] = str(node.home / "checkpoints")
        node.run(bundle / recipe["script"], code=2)
        assert not node.launched
        node.environment["CHECKPOINT_DIR"] = str(node.home / recipe["file"])
        node.run(bundle / recipe["script"])
    assert {path.name for path in node.home.glob("*.log")} == {
        "cloud.log", "cloud_runner_up.log", "cloud_restart_1.log", "cloud_restart_half_lr.log",
    }  # fmt: skip


def test_a_restart_at_half_the_rate_has_the_winners_flags(bundle: Path, node: Node) -> None:
    winners = node.flags(bundle / "launch_megatron.sh")
    gentler = [str(node.home / "gentler")]
    node.environment["CHECKPOINT_DIR"] = gentler[0]
    script = bundle / "launch_megatron_restart_half_lr.sh"
    trainer = str(bundle / "pretrain_gpt_half_lr.py")
    assert "set FROM_DIR" in node.run(script, code=1).stderr
    load = node.restarting()
    assert node.flags(script, trainer=trainer) == winners | load | {"--save": gentler}
    # Once the run has checkpoints of its own, it resumes from them.
    (node.home / "gentler/latest_checkpointed_iteration.txt").write_text("4700")
    own = node.flags(script, trainer=trainer)
    assert own == winners | {"--save": gentler, "--load": gentler}


@pytest.mark.parametrize(("step", "code"), [("0004512", 0), ("last", 2), ("4513", 2)])
def test_the_step_to_restart_from_is_saved(bundle: Path, node: Node, step: str, code: int) -> None:
    node.restarting()
    node.environment["FROM_STEP"] = step
    node.run(bundle / "launch_megatron_restart_half_lr.sh", code=code)
    assert node.launched == (code == 0)
    assert code or "4512" in node.words()


def test_half_the_rate_is_half_of_what_the_schedule_says(bundle: Path, node: Node) -> None:
    core = node.home / "Megatron-LM/megatron/core"
    (core / "__init__.py").touch()
    (core / "optimizer_param_scheduler.py").write_text(
        "class OptimizerParamScheduler:\n    def get_lr(self, group): return group * 3\n"
    )
    (node.home / "Megatron-LM/pretrain_gpt.py").write_text(
        "import sys\n"
        "from megatron.core.optimizer_param_scheduler import OptimizerParamScheduler\n"
        "print(__name__, OptimizerParamScheduler().get_lr(2), sys.argv[1:])\n"
    )
    done = subprocess.run(
        [sys.executable, str(bundle / "pretrain_gpt_half_lr.py"), "--lr", "6"],
        env=node.environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == "__main__ 3.0 ['--lr', '6']\n", done.stderr


def test_the_page_argues_with_the_campaigns_own_numbers(bundle: Path, stressed: Path) -> None:
    text = (bundle / "README.md").read_text()
    for said in ("4 distinct configs in 5 short runs", "2.2120 (se 0.0100)", "TP 2 × PP 1 × DP 4"):
        assert said in text
    assert "(long-runs.png)" in text
    assert (bundle / "long-runs.png").read_bytes().startswith(b"\x89PNG")
    for name, content in handoff_files(plan_of(stressed), bundle).items():
        assert (bundle / name).read_bytes() == content, f"{name} is the same every time"


def test_a_campaign_that_lost_its_curves_has_a_plan_without_their_picture(tmp_path: Path) -> None:
    campaign = stressed_campaign(tmp_path / "campaign", [config(lr=2e-3)])
    shutil.rmtree(campaign / "trials")
    files = handoff_files(plan_of(campaign), Path("handoff"))
    assert "long-runs.png" not in files
    assert b"long-runs.png" not in files["README.md"]


UNTIED = {"d_model": 1024, "n_head": 8, "tie_embeddings": False, "positions": "rotary"}


@pytest.mark.parametrize(
    ("changes", "campaign", "begins", "numbers"),
    [
        ({}, {"seeds": 1}, "there is no runner-up", ()),
        # Ten steps of warm-up are 5 % of two hundred, and 2,000 of 120,000 are published.
        ({}, {"steps": 200}, "lr_warmup of ", ("2000",)),
        ({"grad_clip": 0.1}, {}, "grad_clip of 0.1 ", ("0.3 is taken",)),
        ({"seq_len": 64}, {}, "the proxies trained on sequences of 64", ("8,192",)),
    ],
)
def test_a_risk_is_named_with_its_numbers(
    tmp_path: Path,
    changes: dict[str, Any],
    campaign: dict[str, Any],
    begins: str,
    numbers: tuple[str, ...],
) -> None:
    made = stressed_campaign(tmp_path, [config(**{"lr": 2e-3} | changes)], **campaign)
    (risk,) = (risk for risk in told(plan_of(made)) if risk.startswith(begins))
    assert all(number in risk for number in numbers)


def test_a_risk_that_is_not_there_is_not_named(stressed: Path, tmp_path: Path) -> None:
    """A checkpoint holds 8.03 B parameters of 14 bytes, written hourly at 5 GB/s. Evaluation runs
    20 batches, forward only, per 1000 steps."""
    as_long = stressed_campaign(tmp_path, [config(**UNTIED, seq_len=8192)])
    usual, long = (" ".join(told(plan_of(campaign))) for campaign in (stressed, as_long))
    for words in ("no runner-up", "lr_warmup of"):
        assert words not in usual
    assert "trained on sequences" not in long
    for number in ("evaluation adds 0.7%", "22 s for each 112 GB, 0.6% of", "than 161B tokens"):
        assert number in usual


def test_a_single_gpu_compares_no_layouts(stressed: Path, tmp_path: Path, node: Node) -> None:
    plan = plan_of(stressed, "llama-1b", gpus=1)
    assert "./preflight.sh layout" not in [check.command for check in plan.checks]
    node.run(written(plan, tmp_path / "handoff") / "preflight.sh", "layout", code=1)


TIMED = """
for i in $(seq 1 40); do
    ms=1000; (( i > 20 )) || ms=9000; (( i % 2 )) || ms=$((ms + 20))
    printf ' iteration %8d/  100 | elapsed time per iteration (ms): %d.0 | lm loss: 5.0 |\\n' $i $ms
done
echo "[Rank 0] (after 10 iterations) memory (MB) | allocated: 1.0 | max reserved: 61035.16"
echo "[Rank 4] (after 10 iterations) memory (MB) | allocated: 1.0 | max reserved: 57220.46"
"""


def test_the_next_plan_goes_by_the_measured_speed(bundle: Path, stressed: Path, node: Node) -> None:
    """The measurement excludes the slow start. The stated 40% would imply more than 10 s per
    step."""
    node.stand_in("torchrun", TIMED)
    node.run(bundle / "preflight.sh", "speed")
    seen = read_measured(node.home / "preflight/measured.json")
    assert seen.step_s == pytest.approx(1.0, abs=0.02)
    assert (seen.memory_gb, seen.fabric_gb_s) == (pytest.approx(64.0), None)
    plan = plan_of(stressed, mfu=None, measured=seen)
    assert plan.booking.compute.speed.source == "measured"
    step_s = plan.winner.schedule.tokens_per_step / plan.booking.compute.tokens_per_s
    assert step_s == pytest.approx(seen.step_s)
    assert plan.winner.memory.total_gb == pytest.approx(64.0)
    assert not any("hours and cost go with its inverse" in risk for risk in told(plan))
    fuller = seen.model_copy(update={"memory_gb": 75.0})
    tight = plan_of(stressed, mfu=None, measured=fuller)
    assert tight.winner.layout != seen.layout, "it did not fit"
    assert tight.booking.compute.speed.source == "scaled"
    node.stand_in("torchrun", TIMED.replace("ms=1000", "ms=60000"))
    done = node.run(bundle / "preflight.sh", "speed", code=1)
    assert "plan again with --measured" in done.stderr


@pytest.mark.parametrize(
    ("billions", "magic", "code"), [(13, b"MMIDIDX", 0), (12, b"MMIDIDX", 1), (13, b"MMIDIDY", 1)]
)
def test_a_corpus_has_tokens_enough_for_its_share(
    bundle: Path, node: Node, billions: int, magic: bytes, code: int
) -> None:
    """The run reads 161 B tokens, 30 % of them of the first corpus, four times at most."""
    node.environment["DATA_PATH"] = f"0.3 {node.home}/a 0.7 {node.home}/b"
    for name, tokens, kind, width in (("a", billions, 8, 2), ("b", 50, 4, 4)):
        (node.home / f"{name}.idx").write_bytes(magic + bytes([0, 0, 1, *[0] * 7, kind]))
        with (node.home / f"{name}.bin").open("wb") as file:
            file.truncate(tokens * 10**9 * width)
    node.run(bundle / "preflight.sh", "data", code=code)


def test_the_fabric_is_measured_where_there_is_one(two_nodes: Path, node: Node) -> None:
    node.environment["MPIRUN"] = "srun"
    for said, code in (("41.5", 0), ("39.5", 1)):
        node.stand_in("srun", f'echo "$NCCL_TESTS_SPLIT $*"; echo "# Avg bus bandwidth : {said}"')
        done = node.run(two_nodes / "preflight.sh", "fabric", code=code)
        assert "MOD 8 all_reduce_perf" in done.stderr
    assert (node.home / "preflight/fabric_gb_s").read_text() == "41.5\n"


def test_a_run_of_less_than_a_day_costs_less_than_one(stressed: Path) -> None:
    short = load_target("llama-1b").model_copy(update={"token_budget": 10**9})
    plan = plan_of(stressed, short)
    page = handoff_files(plan, Path("handoff"))["README.md"].decode()
    assert plan.money.run.undisturbed_usd < plan.money.run.day_usd
    assert f"${plan.money.run.undisturbed_usd:,.0f}." in page


def test_spot_gpus_cost_more_hours_and_save_more_often(stressed: Path) -> None:
    kept, spot = plan_of(stressed), plan_of(stressed, terms=Terms(spot=True))
    assert spot.winner.checkpoints.every_hours < kept.winner.checkpoints.every_hours
    assert spot.winner.operations.hours > kept.winner.operations.hours
    assert [any("spot GPUs" in risk for risk in told(plan)) for plan in (kept, spot)] == [0, 1]
