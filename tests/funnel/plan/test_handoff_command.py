"""``autoresearch handoff`` and ``autoresearch verify`` run as a user runs them."""

import json
import subprocess
from pathlib import Path

import pytest

from tests.funnel.forecast.test_ladder_forecast import NEAR, forecast_of
from tests.support.campaigns import installed
from tests.support.places import ROOT


def run(home: Path, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return installed(*arguments, home=home)


@pytest.fixture(scope="module")
def home(stressed: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory that holds a launch plan in ``handoff``."""
    home = tmp_path_factory.mktemp("home")
    done = run(home, "handoff", "--target", "llama-7b", "--campaign", stressed, "--json")
    assert done.returncode == 3, done.stderr
    (home / "plan.out").write_text(done.stdout)
    return home


def test_the_plan_is_written_and_told_in_json(home: Path) -> None:
    plan = json.loads((home / "plan.out").read_text())
    assert plan["out"] == "handoff"
    assert {path.name for path in (home / "handoff").iterdir()} == {*plan["files"], "manifest.json"}
    assert plan["layout"]["total_gb"] < plan["layout"]["limit_gb"]
    assert plan["compute"]["cost_usd"] == pytest.approx(
        plan["compute"]["gpu_hours"] * plan["compute"]["gpu_hourly_usd"]
    )
    assert plan["forecast"] is None, "there was no ladder"


def test_the_rule_comes_from_the_targets_file(stressed: Path, tmp_path: Path) -> None:
    toml = (ROOT / "funnel" / "targets" / "shipped" / "llama-7b.toml").read_text("utf-8")
    (tmp_path / "own.toml").write_text(f'{toml}\nlr_rule = "sqrt_width"\n')
    done = run(tmp_path, "handoff", "--target", "own.toml", "--campaign", stressed, "--json")
    assert done.returncode == 3, done.stderr
    assert "--use-mup" not in (tmp_path / "handoff" / "launch_megatron.sh").read_text()


def write_log(home: Path, kind: str) -> Path:
    """Write a forecast, and the log of a cloud run of this kind beside it."""
    (home / "forecast.json").write_text(forecast_of(NEAR).model_dump_json())
    points = NEAR.log("sound", 1).points[:2] if kind == "short" else NEAR.log(kind, 1).points
    path = home / "log.csv"
    lines = (f"{point.step},{point.loss}\n" for point in points)
    path.write_text("iteration,lm loss\n" + "".join(lines))
    return path


@pytest.mark.parametrize(("kind", "code"), [("sound", 0), ("x1.40", 1), ("short", 3)])
def test_the_exit_code_says_whether_a_log_fits(tmp_path: Path, kind: str, code: int) -> None:
    command = ("verify", "--handoff", "forecast.json", "--json", "--log", write_log(tmp_path, kind))
    done = run(tmp_path, *command)
    assert done.returncode == code, done.stdout + done.stderr
    answers = {one["answer"] for one in json.loads(done.stdout)["answers"]}
    assert ("no" in answers) == (code == 1)


def test_a_plan_without_a_forecast_still_judges_a_log(home: Path) -> None:
    """The target's tokenizer is not the proxies', and no bytes per token were given."""
    plan = json.loads((home / "handoff" / "plan.json").read_text())
    assert plan["run"]["bytes_per_token"] is None
    warmup = plan["run"]["schedule"]["warmup_steps"]
    for loss, code in (("11.7", 1), ("{:.4f}", 3)):
        lines = (
            f"{step},{loss.format(3 + 9 * (step / 10) ** -0.5)}\n"
            for step in range(10, 4 * warmup, 10)
        )
        (home / "cloud.csv").write_text("iteration,lm loss\n" + "".join(lines))
        done = run(home, "verify", "--log", "cloud.csv", "--json")
        assert done.returncode == code, done.stdout + done.stderr
        learning, stable, place = json.loads(done.stdout)["answers"]
        assert (learning["answer"], stable["answer"]) == ("no" if code == 1 else "yes", "yes")
        assert place["answer"] == "unknown"


def refused(done: subprocess.CompletedProcess[str], said: str, code: int = 1) -> None:
    assert done.returncode == code
    assert said in done.stderr
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 1


def test_a_plan_that_cannot_be_made_writes_nothing(stressed: Path, tmp_path: Path) -> None:
    base = ("handoff", "--campaign", stressed)
    refused(run(tmp_path, *base, "--target", "llama-70b"), "does not fit")
    refused(run(tmp_path, *base, "--target", "llama-7b", "--gpu", "a100"), "a100")
    assert list(tmp_path.iterdir()) == []


def test_an_unreadable_log_and_a_missing_forecast_exit_4(home: Path, tmp_path: Path) -> None:
    log = write_log(tmp_path, "sound")
    refused(run(tmp_path / "..", "verify", "--log", log), "plan.json", 4)
    command = ("verify", "--handoff", "forecast.json", "--log")
    refused(run(tmp_path, *command, "none.csv"), "none.csv", 4)
    log.write_text("step,loss\n1,x\n")
    refused(run(tmp_path, *command, log), "log.csv", 4)
