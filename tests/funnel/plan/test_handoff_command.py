"""``autoresearch handoff`` and ``autoresearch verify`` run as a user runs them."""

import csv
import json
import math
import random
import subprocess
from pathlib import Path

import pytest

from funnel.forecast.band import make_forecast
from tests.funnel.forecast.test_band import BAND, both
from tests.support.campaigns import installed
from tests.support.places import ROOT

BYTES = 4.4
NATS = math.log(2) * BYTES


def run(home: Path, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return installed(*arguments, home=home)


@pytest.fixture(scope="module")
def home(stressed: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory that holds a launch plan in ``handoff``."""
    home = tmp_path_factory.mktemp("home")
    done = run(home, "handoff", "--target", "llama-7b", "--campaign", stressed, "--json")
    assert done.returncode == 0, done.stderr
    (home / "plan.out").write_text(done.stdout)
    return home


def write_log(home: Path, name: str, *, since: float = 2.0) -> Path:
    """Write a log of the cloud run's first day along the middle of the band.

    From the share ``since`` of the day onward the loss rises.
    """
    rng = random.Random(1)
    with (home / "handoff" / "forecast.csv").open() as file:
        points = list(csv.DictReader(file))
    path = home / name
    with path.open("w") as log:
        log.write("iteration,lm loss\n")
        for number, point in enumerate(points):
            for repeat in range(5):
                bpb = float(point["middle_bpb"]) * (1 + rng.gauss(0, 0.02))
                share = number / len(points)
                bpb += 20 * max(0.0, share - since)
                log.write(f"{int(point['step']) + repeat},{bpb * NATS}\n")
    return path


def test_the_plan_is_written_and_told_in_json(home: Path) -> None:
    plan = json.loads((home / "plan.out").read_text())
    assert plan["out"] == "handoff"
    assert {path.name for path in (home / "handoff").iterdir()} == {*plan["files"], "manifest.json"}
    assert plan["layout"]["total_gb"] < plan["layout"]["limit_gb"]
    assert plan["compute"]["cost_usd"] == pytest.approx(
        plan["compute"]["gpu_hours"] * plan["compute"]["gpu_hourly_usd"]
    )
    (day,) = (check for check in plan["preflight"] if check["command"] == "./preflight.sh day")
    assert "exits 3 and not 1" in day["passes"], "the band is too wide to confirm anything"


def test_the_rule_comes_from_the_targets_file(stressed: Path, tmp_path: Path) -> None:
    toml = (ROOT / "funnel" / "target" / "shipped" / "llama-7b.toml").read_text("utf-8")
    (tmp_path / "own.toml").write_text(f'{toml}\nlr_rule = "sqrt_width"\n')
    done = run(tmp_path, "handoff", "--target", "own.toml", "--campaign", stressed, "--json")
    assert done.returncode == 0, done.stderr
    assert "--use-mup" not in (tmp_path / "handoff" / "launch_megatron.sh").read_text()


def test_a_log_that_fits_one_that_is_too_short_and_one_that_does_not_fit(home: Path) -> None:
    fits = write_log(home, "fits.csv")
    (home / "early.csv").write_text("step,loss\n1,11.7\n2,11.5\n")
    bad = write_log(home, "bad.csv", since=0.5)
    for log, code in ((fits, 3), (home / "early.csv", 3), (bad, 1)):
        done = run(home, "verify", "--log", log, "--bytes-per-token", "4.4")
        assert done.returncode == code, done.stdout + done.stderr
    told = run(home, "verify", "--log", bad, "--bytes-per-token", "4.4", "--json")
    assert told.returncode == 1
    assert json.loads(told.stdout)["departure"]["side"] == "rising"


def test_a_log_within_a_band_that_tells_is_the_one_that_exits_0(tmp_path: Path) -> None:
    forecast = make_forecast(BAND, both())
    (tmp_path / "forecast.json").write_text(forecast.model_dump_json())
    with (tmp_path / "bpb.csv").open("w") as log:
        log.write("tokens,bpb\n")
        log.writelines(f"{point.tokens},{point.middle_bpb}\n" for point in forecast.points)
    done = run(tmp_path, "verify", "--handoff", "forecast.json", "--log", "bpb.csv")
    assert done.returncode == 0, done.stdout + done.stderr


def refused(done: subprocess.CompletedProcess[str], said: str, code: int = 1) -> None:
    assert done.returncode == code
    assert said in done.stderr
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 1


def test_a_plan_that_cannot_be_made_is_one_sentence_and_nothing_is_written(
    stressed: Path, tmp_path: Path
) -> None:
    base = ("handoff", "--campaign", stressed)
    refused(run(tmp_path, *base, "--target", "llama-70b"), "does not fit")
    refused(run(tmp_path, *base, "--target", "llama-7b", "--gpu", "a100"), "a100")
    assert list(tmp_path.iterdir()) == []


def test_a_log_that_cannot_be_read_is_one_sentence(home: Path) -> None:
    refused(run(home, "verify", "--log", write_log(home, "fits.csv")), "--bytes-per-token", 4)
    (home / "bad-lines.csv").write_text("step,loss\n1,x\n")
    refused(run(home, "verify", "--log", "bad-lines.csv"), "1 line that cannot", 4)
    refused(run(home, "verify", "--log", "none.csv"), "none.csv", 4)
