"""A curriculum defines what each phase trains, where it fits, and how it launches."""

import json
import math
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from autoresearch.errors import HandoffError, TargetError
from funnel.cost.gpus import GPUS
from funnel.plan.handoff import Handoff
from funnel.plan.handoff_files import handoff_files
from funnel.plan.layout import memory_use
from funnel.plan.phases import plan_phases
from funnel.plan.recipe import Recipe
from funnel.target.architecture import Phase, TargetArchitecture, load_target, parse_target
from tests.funnel.plan.test_handoff_files import Node
from tests.funnel.plan.test_megatron_flags import known_options
from tests.support import plans

CURRICULUM = """
[[phases]]
name = "main"
share = 0.9
seq_len = 4096
mix = { web = 0.8, code = 0.2 }
rate = 0.2

[[phases]]
name = "long"
share = 0.1
seq_len = 32768
mix = { books = 1.0 }
rate = 0.0
rope_base = 500000.0
"""


def target(name: str = "llama-1b", phases: str = CURRICULUM) -> TargetArchitecture:
    shipped = Path(__file__).parents[3] / f"funnel/target/shipped/{name}.toml"
    return parse_target(shipped.read_text("utf-8") + phases, "test")


def plan_of(campaign: Path, asked: TargetArchitecture) -> Handoff:
    return plans.plan_of(campaign, asked, mfu=None, batch=64)


@pytest.fixture(scope="module")
def plan(stressed: Path) -> Handoff:
    return plan_of(stressed, target())


@pytest.fixture(scope="module")
def bundle(plan: Handoff, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return plans.written(plan, tmp_path_factory.mktemp("phases") / "handoff")


def test_tokens_are_shared_out_and_a_step_keeps_its_tokens(plan: Handoff) -> None:
    first, second = plan.phases
    whole = plan.winner.schedule
    assert first.recipe.schedule.tokens == pytest.approx(0.9 * whole.tokens, rel=0.01)
    assert second.recipe.schedule.tokens == pytest.approx(0.1 * whole.tokens, rel=0.01)
    for phase in plan.phases:
        assert phase.recipe.schedule.tokens_per_step == whole.tokens_per_step == 64 * 8192
    assert (first.seq_len, second.seq_len) == (4096, 32768)
    assert second.recipe.schedule.batch == 16


def test_each_phase_has_its_own_memory_time_and_layout(plan: Handoff) -> None:
    first, second = plan.phases
    assert not first.recipe.layout.is_sharded
    # Attention spans eight times the length, over a tenth of the tokens.
    assert first.hours / 9 < second.hours
    assert second.speed.mfu != first.speed.mfu
    for phase in plan.phases:
        assert phase.recipe.memory.fits
        assert phase.cost_usd == pytest.approx(phase.hours * 8 * 2.5)


def test_where_the_memory_says_so_the_state_is_sharded_at_the_hand_over(stressed: Path) -> None:
    """3.1 B parameters take 56 GB unsharded, which leaves no room for sequences of 32,768."""
    larger = {"d_model": 3072, "n_head": 48, "n_layer": 20, "params": 3_100_000_000}
    wider = target().model_copy(update=larger)
    first, second = plan_of(stressed, wider).phases
    assert [phase.recipe.layout.is_sharded for phase in (first, second)] == [False, True]
    assert second.change
    whole = second.recipe.layout.model_copy(update={"distributed_optimizer": False})
    longer = wider.model_copy(update={"seq_len": 32768})
    assert not memory_use(longer, whole, GPUS["h100"], fp8=False).fits


def test_rates_hand_over(plan: Handoff) -> None:
    first, second = plan.phases
    peak = plan.winner.projection.base_lr
    assert (first.lr_start, first.lr_end) == pytest.approx((peak, 0.2 * peak))
    assert (second.lr_start, second.lr_end) == pytest.approx((0.2 * peak, 0))


def test_a_rate_that_is_not_given_is_one_cosines(stressed: Path) -> None:
    plain = CURRICULUM.replace("rate = 0.2\n", "").replace("rate = 0.0\n", "")
    first, second = plan_of(stressed, target(phases=plain)).phases
    lowest = first.recipe.projection.config.lr_min_ratio
    share = lowest + (1 - lowest) * (1 + math.cos(math.pi * 0.9)) / 2
    assert first.lr_end == pytest.approx(share * first.lr_start)
    assert second.lr_end == pytest.approx(lowest * first.lr_start)


def test_a_rotary_base_stays_until_a_phase_has_another(stressed: Path) -> None:
    third = '\n[[phases]]\nname = "end"\nshare = 0.05\n'
    asked = target(phases=CURRICULUM.replace("share = 0.9", "share = 0.85") + third)
    bases = []
    for phase in plan_of(stressed, asked).phases:
        recipe = phase.recipe
        bases.append(flag(recipe, "--rotary-base"))
        assert recipe.projection.target.rope_base == recipe.projection.config.rope_base
        assert f"{recipe.projection.target.rope_base:.0f}" == bases[-1]
        assert recipe.projection.steps == recipe.schedule.steps
        assert recipe.projection.tokens_per_step == recipe.schedule.tokens_per_step
    assert bases == ["10000", "500000", "500000"]


@pytest.mark.parametrize(
    ("schedule", "ends", "styles"),
    [
        ("cosine", [0.5, 0.25 * (2 - 2**0.5), 0.0], ["cosine", "linear", "linear"]),
        ("linear", [0.5, 0.25, 0.0], ["linear", "linear", "linear"]),
        # The last 0.4 of the run: three eighths of the fall in the second phase, the rest in the
        # third.
        ("wsd", [1.0, 0.625, 0.0], ["linear", "WSD", "linear"]),
    ],
)
def test_phases_hand_over_along_the_recipes_own_schedule(
    plan: Handoff, schedule: str, ends: list[float], styles: list[str]
) -> None:
    shares = {"schedule": schedule, "decay_share": 0.4, "lr_min_ratio": 0.0}
    projection = plan.winner.projection
    projection = projection.model_copy(
        update={
            "source": projection.source.model_copy(update=shares),
            "config": projection.config.model_copy(update=shares),
        }
    )
    winner = plan.winner.model_copy(update={"projection": projection})
    three = tuple(
        Phase(name=name, share=share)
        for name, share in (("main", 0.5), ("next", 0.25), ("end", 0.25))
    )
    booking = plan.booking.model_copy(
        update={"target": plan.booking.target.model_copy(update={"phases": three})}
    )
    phases = list(plan_phases(winner, booking))
    peak = projection.base_lr
    assert [phase.lr_end / peak for phase in phases] == pytest.approx(ends, abs=1e-9)
    assert [flag(phase.recipe, "--lr-decay-style") for phase in phases] == styles
    if schedule == "wsd":
        second = phases[1].recipe
        falling = int(flag(second, "--lr-wsd-decay-iters") or 0)
        assert falling == pytest.approx(0.6 * second.schedule.steps, abs=1)
        assert flag(phases[0].recipe, "--lr-wsd-decay-iters") is None
        assert {phase.recipe.projection.source.schedule for phase in phases} == {"wsd"}


def flag(recipe: Recipe, name: str) -> str | None:
    return next((flag.value for flag in recipe.flags if flag.name == name), None)


def kept_gpus_and_spot(campaign: Path) -> Iterator[tuple[Handoff, str]]:
    kept = plan_of(campaign, load_target("llama-1b").model_copy(update={"token_budget": 10**9}))
    spot = kept.winner.operations.model_copy(update={"spot": True})
    taken = replace(kept, recipes=(kept.winner.model_copy(update={"operations": spot}),))
    for plan in (kept, taken):
        yield plan, handoff_files(plan, Path("handoff"))["README.md"].decode()


def test_gpus_that_are_kept_are_not_held_against_such_that_are_not(stressed: Path) -> None:
    """The run takes less than a day, on demand and on spot."""
    (kept, page), (_, spot_page) = kept_gpus_and_spot(stressed)
    assert kept.phases == ()
    assert kept.money.run.undisturbed_usd < kept.money.run.day_usd
    assert f"${kept.money.run.undisturbed_usd:,.0f}." in page
    assert ["uninterrupted GPUs" in text for text in (page, spot_page)] == [False, True]


def test_the_scripts_are_whole_and_say_what_megatron_lm_takes(bundle: Path, tmp_path: Path) -> None:
    node = Node(tmp_path)
    del node.environment["DATA_PATH"]
    node.environment["DATA_ROOT"] = "/corpora"
    first, second = sorted(bundle.glob("launch_megatron_phase_*.sh"))
    for script in (first, second):
        subprocess.run(["shellcheck", str(script)], check=True)
    done = node.run(first)
    assert done.returncode == 0, done.stderr
    flags = node.flags()
    assert set(flags) <= set(known_options())
    assert flags["--seq-length"] == ["4096"]
    assert flags["--data-path"] == ["0.8", "/corpora/web", "0.2", "/corpora/code"]
    assert "--pretrained-checkpoint" not in flags
    assert "--use-distributed-optimizer" not in flags
    before = Path(node.environment["CHECKPOINT_DIR"])
    node.environment["CHECKPOINT_DIR"] = str(tmp_path / "long")
    assert "set FROM_DIR to the CHECKPOINT_DIR of launch_megatron_phase_1_main.sh" in (
        node.run(second).stderr
    )
    node.environment["FROM_DIR"] = str(before)
    done = node.run(second)
    assert (done.returncode, "which has no checkpoint" in done.stderr) == (2, True)
    (before / "latest_checkpointed_iteration.txt").write_text("900")
    done = node.run(second)
    assert done.returncode == 0, done.stderr
    flags = node.flags()
    assert set(flags) <= set(known_options())
    assert flags["--pretrained-checkpoint"] == [str(before)]
    assert flags["--load"] == flags["--save"] == [str(tmp_path / "long")]
    assert flags["--seq-length"] == ["32768"]
    assert flags["--rotary-base"] == ["500000"]
    assert flags["--lr-decay-style"] == ["linear"]
    assert float(flags["--min-lr"][0]) == 0
    assert int(flags["--lr-warmup-iters"][0]) > 0
    # The run resumes from its own checkpoints; the previous phase's are only a starting point.
    (tmp_path / "long/latest_checkpointed_iteration.txt").write_text("10")
    assert node.run(second).returncode == 0
    assert "--pretrained-checkpoint" not in node.flags()


def test_the_page_and_the_json_have_the_table(bundle: Path, plan: Handoff) -> None:
    text = (bundle / "README.md").read_text()
    total = sum(phase.hours for phase in plan.phases)
    assert f"In total {total:,.0f} hours" in text
    assert plan.money.run.hours == pytest.approx(total)
    launch = next(line for line in text.splitlines() if ". Launch |" in line)
    scripts = [phase.recipe.script for phase in plan.phases]
    assert ", then ".join(f"`./run.sh {script}`" for script in scripts) in launch
    written = json.loads((bundle / "plan.json").read_text())["phases"]
    assert [phase["name"] for phase in written] == ["main", "long"]
    assert all((bundle / phase[name]).exists() for phase in written for name in ("script", "file"))


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("share = 0.1", "share = 0.2", "add up to 1.1, not 1"),
        ("rate = 0.0", "rate = 0.5", "rates rise"),
        ('name = "long"', 'name = "main"', "two phases are called main"),
        ("books = 1.0", "books = 0.5", "mix of phase long adds up to 0.5"),
        ("seq_len = 32768", 'seq_len = "long"', "seq_len"),
        ("rope_base", "rope_bass", "rope_bass"),
    ],
)
def test_a_curriculum_that_cannot_be_is_one_sentence(old: str, new: str, said: str) -> None:
    with pytest.raises(TargetError, match=said) as error:
        target(phases=CURRICULUM.replace(old, new))
    assert "\n" not in str(error.value)


def test_what_no_flag_and_no_gpu_can_do_is_refused(stressed: Path) -> None:
    with pytest.raises(TargetError):
        plan_of(stressed, target(phases=CURRICULUM.replace("500000.0", "500000.5")))
    with pytest.raises(HandoffError):
        plan_of(stressed, target(phases=CURRICULUM.replace("rope_base", "tensor = 3\nrope_base")))
    given = target(phases=CURRICULUM.replace("rope_base", "tensor = 4\nrope_base"))
    assert plan_of(stressed, given).phases[1].recipe.layout.tensor == 4
