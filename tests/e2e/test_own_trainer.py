"""The loop around a script of one's own, through the installed command."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.support.campaigns import COMMAND
from tests.support.commands import script
from trainer.command.filling import filled
from trainer.isolation.trial_files import read_curve
from trainer.spec import TrialSpec

TRAIN = """
# Logistic regression by gradient descent; the style of small research scripts.
import argparse, math, random
from data import points
parser = argparse.ArgumentParser()
for name, kind in (("lr", float), ("l2", float), ("seed", int), ("steps", int)):
    parser.add_argument(f"--{name}", type=kind)
args = parser.parse_args()
train, held_out = points(args.seed)
def exp(x):
    if not x < 300:
        raise FloatingPointError("the weights \\x1b[31mblew up\\x1b[0m <script>alert(1)</script>")
    return math.exp(x)
w = [0.0, 0.0]
def loss(data):
    return sum(math.log1p(math.exp(-y * (w[0] * a + w[1] * b))) for a, b, y in data) / len(data)
for step in range(args.steps + 1):
    if step % 4 == 0:
        print(f"iter {step}: loss {loss(train):.4f}, time 0ms")
    for k in (0, 1):
        slope = sum(-y * p[k] / (1 + exp(y * (w[0] * p[0] + w[1] * p[1])))
                    for p in train for y in [p[2]]) / len(train)
        w[k] -= args.lr * (slope + args.l2 * w[k])
right = sum((w[0] * a + w[1] * b > 0) == (y > 0) for a, b, y in held_out) / len(held_out)
print(f"step {args.steps}: train loss {loss(train):.4f}, val loss {loss(held_out):.4f}")
print(f"val accuracy {right:.4f}")
"""
DATA = """
import random
def points(seed):
    rng = random.Random(seed)
    def one():
        y = rng.choice((-1, 1))
        return rng.gauss(0.6 * y, 1), rng.gauss(0.3 * y, 1), y
    return [one() for _ in range(60)], [one() for _ in range(400)]
"""
MENU = """
name = "own"
[trainer]
command = [
  "{{python}}", "train.py", "--lr={{lr}}", "--l2={{l2}}", "--seed={{seed}}", "--steps={{steps}}",
]
score = {{ pattern = 'val {what} ([0-9.]+)', take = "last" }}
unit = "{unit}"
curve = {{ pattern = 'iter (\\d+): loss ([0-9.]+)' }}
[knobs.lr]
type = "float"
low = 1e-3
high = 1e3
scale = "log"
default = 0.01
[knobs.l2]
type = "float"
low = 0.0
high = 1.0
default = 0.5
[campaign]
budget = "100 steps"
"""


class Own:
    """A checkout with a script, and the menu that a person wrote beside it."""

    def __init__(self, home: Path, *, what: str = "loss", unit: str = "nats per point") -> None:
        self.home = home
        self.checkout = script(home / "checkout", TRAIN)
        script(self.checkout, DATA, "data.py")
        script(self.checkout, MENU.format(what=what, unit=unit), "own.toml")
        self.campaign = self.checkout / "runs" / "own"

        self.env = {
            "PATH": os.environ["PATH"],
            "HOME": str(home),
            "AUTORESEARCH_DATA_DIR": str(home / "data"),
            "OPENAI_API_KEY": "precious",
        }

    def start(self, *words: str) -> subprocess.Popen[bytes]:
        """The command at work, which nobody listens to."""
        nowhere = subprocess.DEVNULL
        return subprocess.Popen(
            [str(COMMAND), *words], cwd=self.checkout, env=self.env, stdout=nowhere, stderr=nowhere
        )

    def __call__(self, *words: str, code: int = 0) -> str:
        ended = subprocess.run(
            [str(COMMAND), *words],
            cwd=self.checkout,
            env=self.env,
            capture_output=True,
            text=True,
            check=False,
            timeout=240,
        )
        assert ended.returncode == code, ended.stdout + ended.stderr
        return ended.stdout + (ended.stderr if code else "")

    def loop(self, iters: int, *more: str, code: int = 0) -> str:
        few = ("--baseline-seeds=2", "--max-runs=2")
        return self("loop", "--menu=own.toml", f"--iters={iters}", *few, *more, code=code)

    def rows(self, kind: str) -> list[dict[str, Any]]:
        lines = (self.campaign / "trajectory.jsonl").read_text().splitlines()
        return [row for row in map(json.loads, lines) if row["kind"] == kind]


def by_hand(own: Own, trial: str) -> tuple[list[tuple[int, float]], float]:
    """What the script prints where a person starts it with the arguments of a trial."""
    order = own.campaign / "trials" / ".specs" / f"{trial}.json"
    spec = TrialSpec.model_validate_json(order.read_text())
    assert spec.command is not None
    words = filled(spec, spec.command, own.home / "out", 1).argv
    done = subprocess.run(words, cwd=own.checkout, capture_output=True, text=True, check=True)
    curve = re.findall(r"iter (\d+): loss ([\d.]+)", done.stdout)
    score = re.findall(r"val loss ([\d.]+)", done.stdout)[-1]
    return [(int(step), float(loss)) for step, loss in curve], float(score)


def test_from_a_menu_to_the_mornings_list(tmp_path: Path) -> None:
    own = Own(tmp_path)
    said = own.loop(6, "--no-confirm", "--seed=3")
    assert "val loss ([0-9.]+)', last), in nats per point, lower is better" in said
    assert "no network, no keys" in said
    assert "baseline  seed 3000" in said
    assert "bpb" not in said
    first = own.rows("campaign")[0]
    assert first["measure"]["unit"] == "nats per point"
    assert "corpus" not in first
    scored = [
        trial
        for row in own.rows("iteration")
        for trial in row["trials"]
        if trial["result"]["status"] == "scored"
    ]
    for trial in scored[:3]:
        curve, score = by_hand(own, trial["trial_id"])
        points = read_curve(own.campaign / "trials" / trial["trial_id"])
        assert [(point.step, point.loss) for point in points] == curve
        assert trial["result"]["score"] == score
    listed = own("top", "--menu=own.toml")
    assert "the ruler is the script's own" in listed
    assert "bpb" not in listed
    best = json.loads(own("top", "--menu=own.toml", "--json"))
    assert (best["unit"], best["direction"]) == ("nats per point", "minimise")
    first_config = best["configs"][0]
    assert first_config["score"] == first_config["posterior_bpb"]
    assert first_config["score_lo"] < first_config["score"] < first_config["score_hi"]
    # Going on needs nothing but the campaign.
    assert "8 iterations" in own.loop(8, "--no-confirm")


@pytest.mark.slow
def test_what_the_record_is_asked_for_works_on_it(tmp_path: Path) -> None:
    own = Own(tmp_path)
    own.loop(8)
    here = f"--campaign={own.campaign}"
    assert own.rows("confirmed")
    shown = json.loads(own("report", here, "--json"))["summary"]["best"]
    assert 0 < shown["score_lo"] < shown["score"] < shown["score_hi"]
    page = (own.campaign / "report" / "report.html").read_text()
    assert "How it was measured is that script" in page
    assert "bits per byte" not in page
    said = own("stress", here, "--top=1", "--steps=200", "--seeds=1")
    assert "survives" in said
    assert "nats per point" in said
    refused = own("handoff", here, "--target=llama-7b", code=1)
    assert "nobody but that script knows" in refused
    assert "Traceback" not in refused
    for words in (("ladder", "--hours=1"), ("cost",)):
        assert "of what that trains only the knobs" in " ".join(own(*words, here, code=1).split())
    assert "leave --fidelity out" in own("calibrate", here, "--fidelity", code=1)
    for words in (("envelope",), ("compare",)):
        assert "no shape and no tokens" in own(*words, "--menu=own.toml", code=1)
    own("attribute", here, "--seeds=1", "--steps=150")
    own("export", here, "--to=csv", "--out=t.csv")
    head, *lines = (own.checkout / "t.csv").read_text().splitlines()
    assert {"score", "config.lr", "config.l2"} <= set(head.split(","))
    assert len(lines) > 8
    own("export", here, "--to=jsonl", "--out=t.jsonl")
    assert "nats per point, lower is better" in own("import", "t.jsonl", "--campaign=runs/again")
    again = json.loads(own("top", "--campaign=runs/again", "--json"))
    assert again["configs"] == json.loads(own("top", here, "--json"))["configs"]
    own("reindex", here)
    assert "sd" in own("calibrate", here, "--seeds=3")


@pytest.mark.slow
def test_what_is_to_grow_grows(tmp_path: Path) -> None:
    own = Own(tmp_path, what="accuracy", unit="accuracy")
    own.loop(10)
    best = json.loads(own("top", "--menu=own.toml", "--json"))["configs"]
    assert best[0]["posterior_bpb"] <= best[-1]["posterior_bpb"] < 0  # objectives: turned round
    assert 0 < best[0]["score_lo"] < best[0]["score"] < best[0]["score_hi"]
    summary = json.loads(own("report", "--menu=own.toml", "--json"))["summary"]
    assert (summary["unit"], summary["direction"]) == ("accuracy", "maximise")
    assert summary["best"]["score"] == best[0]["score"] == -summary["best"]["posterior"]
    assert 0 < summary["baseline"]["score_lo"] < summary["baseline"]["score"] < 1
    listed = own("top", "--menu=own.toml")
    assert "accuracy, higher is better" in listed
    shown = [float(line.split()[3]) for line in listed.splitlines() if re.match(r" +\d+ ", line)]
    assert shown == sorted(shown, reverse=True)
    assert 0 < shown[0] < 1


@pytest.mark.slow
def test_another_script_is_another_ruler(tmp_path: Path) -> None:
    own = Own(tmp_path)
    own.loop(1, "--no-confirm")
    script(own.checkout, "notes", "notes.txt")
    own.loop(2, "--no-confirm")
    script(own.checkout, DATA.replace("0.6", "0.9"), "data.py")
    refused = own.loop(3, "--no-confirm", code=1)
    assert "is another than" in refused
    assert "put it back, or start another campaign" in refused


@pytest.mark.slow
def test_a_script_that_does_nothing_with_its_seed_is_seen_to(tmp_path: Path) -> None:
    own = Own(tmp_path)
    script(own.checkout, TRAIN.replace("points(args.seed)", "points(1)"))
    said = own("loop", "--menu=own.toml", "--iters=4", "--baseline-seeds=4", "--max-runs=3")
    same = "every run of a config is the same"
    assert said.count(same) == 1
    assert "not confirmed" not in said
    assert len(own.rows("baseline")) == 2
    raced = [row for row in own.rows("iteration") if row["trials"]]
    assert raced
    assert all(len(row["trials"]) == 1 for row in raced)
    assert {row["decision"]["action"] for row in raced} == {"keep", "discard"}
    assert same in own("confirm", "--campaign=runs/own", code=1)
    assert "no interval knows of chance" in " ".join(own("top", "--campaign=runs/own").split())
    assert same not in own.loop(5, "--baseline-seeds=4", "--max-runs=3").split("baseline")[-1]
    assert len(own.rows("baseline")) == 2


@pytest.mark.slow
@pytest.mark.parametrize("told", [True, False])
def test_runs_that_differ_are_confirmed_whatever_the_menu_tells(
    tmp_path: Path, *, told: bool
) -> None:
    """A script that is told no seed and seeds nothing draws anew at every run."""
    own = Own(tmp_path)
    menu = own.checkout / "own.toml"
    if not told:
        menu.write_text(menu.read_text().replace('"--seed={seed}", ', ""))
    own("loop", "--menu=own.toml", "--iters=2", "--baseline-seeds=3", "--no-confirm")
    assert len({row["trial"]["result"]["score"] for row in own.rows("baseline")}) == 3
    assert "intervals" in own("confirm", "--campaign=runs/own", "--top=1", "--seeds=2")
    assert "knows of chance" not in " ".join(own("top", "--campaign=runs/own").split())


@pytest.mark.slow
def test_failures_are_told_with_what_the_script_said_and_no_more(tmp_path: Path) -> None:
    own = Own(tmp_path)
    menu = own.checkout / "own.toml"
    menu.write_text(menu.read_text().replace("high = 1e3", "high = 1e9"))
    own.loop(14, "--no-confirm", "--proposer=random")
    failed = [
        trial["result"]["message"]
        for row in own.rows("iteration")
        for trial in row["trials"]
        if trial["result"]["status"] == "crash"
    ]
    assert failed
    assert any("blew up" in message for message in failed)
    assert all(message.isprintable() for message in failed)
    own("report", "--menu=own.toml")
    page = (own.campaign / "report" / "report.html").read_text()
    assert "<script>alert(1)" not in page


@pytest.mark.slow
def test_what_cannot_begin_says_so_before_anything_is_made(tmp_path: Path) -> None:
    own = Own(tmp_path)
    assert "brings its own text" in own.loop(1, "--corpus=stdlib", code=1)
    menu = own.checkout / "own.toml"
    text = menu.read_text()
    for old, new, says in (
        ("train.py", "trian.py", "there is no trian.py in"),
        ("{python}", "pyhton", "no program 'pyhton'"),
        ("unit = ", 'directory = "nowhere"\nunit = ', "is not there"),
        ("unit = ", f'directory = "{own.home}"\nunit = ', "holds the home"),
        ("unit = ", 'reads = ["nothing"]\nunit = ', "which reads names, is not there"),
    ):
        menu.write_text(text.replace(old, new, 1))
        refused = own.loop(1, code=1)
        assert says in refused
        assert "Traceback" not in refused
        assert not own.campaign.exists()
        checks = json.loads(own("doctor", "--json", "--menu=own.toml", code=1))["checks"]
        assert says in checks[-1]["found"]


def test_the_interpreter_of_another_environment_is_asked_where_it_lies() -> None:
    from trainer.command.program import environment_of, find_program

    assert find_program("{python}", Path("/")) == Path(sys.executable)
    assert environment_of(Path(sys.executable)) == ()
    base = Path(os.path.realpath(sys.executable))
    if base.parent != Path(sys.executable).parent:
        found = environment_of(base)
        assert any((path / "python3").exists() or path.name == "lib" for path in found)
        assert not any(Path.home().is_relative_to(path) for path in found)


@pytest.mark.slow
def test_what_a_killed_night_left_of_a_trial_goes_when_it_is_taken_up(tmp_path: Path) -> None:
    own = Own(tmp_path)
    hang = "import time\nopen('ckpt.pt', 'w').write('weights')\nprint('here', flush=True)\n"
    script(own.checkout, TRAIN.replace("# Logistic", f"{hang}time.sleep(2)\n# Logistic"))
    night = own.start("loop", "--menu=own.toml", "--iters=1")
    kept = own.campaign / "trials" / "t000001" / "tmp" / "work" / "ckpt.pt"
    give_up_at = time.monotonic() + 60
    while not kept.exists():
        assert time.monotonic() < give_up_at
        time.sleep(0.05)
    night.kill()
    night.wait()
    assert kept.exists()
    own.loop(1, "--no-confirm")
    assert list(own.campaign.glob("trials/*/tmp*")) == []
