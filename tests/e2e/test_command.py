"""Test the command's error messages, and its reports about the machine."""

from __future__ import annotations

import json
from importlib.metadata import version
from pathlib import Path

import pytest

from tests.support.campaigns import Toy


@pytest.fixture
def toy(tmp_path: Path) -> Toy:
    return Toy(tmp_path)


LONG = "x" * 300
"""A name that is too long for every file system."""


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        (("loop", "--menu=nowhere.toml"), "nowhere.toml"),
        (("loop", "--budget=many steps"), "many steps"),
        (("loop", "--corpus=nowhere"), "nowhere"),
        (("loop", "--tokenizer=words"), "words"),
        (("top", "--campaign=nowhere"), "nowhere"),
        (("reindex", "--campaign=nowhere"), "nowhere"),
        (("report", "--campaign=nowhere"), "nowhere"),
        (("stress", "--campaign=nowhere"), "nowhere"),
        (("handoff", "--target=nowhere"), "nowhere"),
        (("verify", "--log=nowhere"), "handoff"),
        (("verify", "--log=nowhere", "--handoff=plan"), "plan/forecast.json"),
        (("import", "nowhere"), "nowhere"),
        (("top", f"--campaign={LONG}"), "too long"),
        (("report", f"--campaign={LONG}"), "too long"),
        (("export", "--to=csv", f"--campaign={LONG}"), "too long"),
        (("serve", LONG), "too long"),
        (("import", LONG), "too long"),
    ],
)
def test_bad_input_is_one_plain_sentence(toy: Toy, arguments: tuple[str, ...], names: str) -> None:
    done = toy.run(*arguments)
    assert done.returncode == (4 if arguments[0] == "verify" else 1), done.stdout + done.stderr
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 1
    assert names in done.stderr
    assert not (toy.home / "runs").exists(), "nothing is left half-made"


def test_a_night_goes_on_whatever_its_menu_is_called_and_whatever_the_terminal_can_say(
    toy: Toy,
) -> None:
    """The menu's path holds an emoji, and the terminal cannot encode an ellipsis."""
    toy.menu = toy.menu.rename(toy.home / "toy \N{GRINNING FACE}.toml")
    toy.environment["PYTHONIOENCODING"] = "ascii"
    for iterations in (2, 3):
        done = toy.loop(iterations)
        assert done.returncode == 0, done.stderr
    assert "the goal of 3 iterations is reached" in done.stdout
    done = toy.run("top", f"--campaign={toy.campaign}")
    assert done.returncode == 0, done.stderr
    assert "?" in done.stdout


def test_a_directory_that_no_trial_could_be_told_is_refused_before_it_is_made(toy: Toy) -> None:
    toy.campaign = toy.home / "runs" / "c\udcff"
    done = toy.loop(1)
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert "no UTF-8" in done.stderr
    assert not (toy.home / "runs").exists()


@pytest.mark.parametrize(
    "arguments",
    [("loop", "--iters=x"), ("loop", "--proposer=oracle"), ("top", "--k=0"), ("nothing",)],
)
def test_bad_usage_exits_two(toy: Toy, arguments: tuple[str, ...]) -> None:
    assert toy.run(*arguments).returncode == 2


def test_it_says_its_version(toy: Toy) -> None:
    done = toy.run("--version")
    assert (done.returncode, done.stdout) == (0, f"autoresearch {version('autoresearch')}\n")


def test_ctrl_c_while_it_loads_is_answered_without_a_word(toy: Toy) -> None:
    (toy.home / "typer.py").write_text(
        "import os, signal\nos.kill(os.getpid(), signal.SIGINT)\nimport time\ntime.sleep(60)\n"
    )
    toy.environment["PYTHONPATH"] = str(toy.home)
    done = toy.run("--version")
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_a_bad_environment_variable_is_named(toy: Toy) -> None:
    toy.environment["AUTORESEARCH_LLM_BASE_URL"] = "ftp//nonsense"
    done = toy.loop(1)
    assert done.returncode == 1
    assert "ftp//nonsense" in done.stderr


def test_the_price_of_electricity_is_told_by_both_its_names(toy: Toy) -> None:
    toy.environment["AUTORESEARCH_USD_PER_KWH"] = "cheap"
    done = toy.loop(1)
    assert done.returncode == 1
    assert "KWH_USD (or AUTORESEARCH_USD_PER_KWH): " in done.stderr
    assert "'cheap'" in done.stderr


def test_doctor_looks_at_everything(toy: Toy) -> None:
    done = toy.run("doctor", "--json")
    assert done.returncode == 0, done.stdout
    checks = {check["name"]: check for check in json.loads(done.stdout)["checks"]}
    looked_at = "sandbox python torch device megatron disk corpus endpoint".split()
    assert list(checks) == looked_at
    assert checks["endpoint"]["state"] == "note"
    assert "landlock" in checks["sandbox"]["found"]


@pytest.mark.slow
def test_doctor_reports_an_endpoint_that_is_down_without_showing_the_key(toy: Toy) -> None:
    toy.environment |= {
        "AUTORESEARCH_LLM_BASE_URL": "http://127.0.0.1:9/v1",
        "AUTORESEARCH_LLM_API_KEY": "sk-very-secret",
    }
    done = toy.run("doctor")
    assert "127.0.0.1:9" in done.stdout
    assert "sk-very-secret" not in done.stdout + done.stderr


def test_calibrate_replicates_the_baseline_and_says_the_noise(toy: Toy) -> None:
    done = toy.run(
        "calibrate", "--seeds=3", f"--menu={toy.menu}", f"--campaign={toy.campaign}", "--json"
    )
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    assert summary["iterations"] == 0
    assert summary["sigma_dof"] == 2
    assert summary["sigma"] > 0
    assert sum(row["kind"] == "baseline" for row in toy.rows()) == 3


def test_no_key_reaches_a_trial_or_the_campaign(toy: Toy) -> None:
    toy.environment |= {
        "AUTORESEARCH_LLM_API_KEY": "sk-very-secret",
        "AWS_SECRET_ACCESS_KEY": "also-secret",
    }
    assert toy.loop(1).returncode == 0
    for path in toy.campaign.rglob("*"):
        if path.is_file():
            assert b"secret" not in path.read_bytes(), path
