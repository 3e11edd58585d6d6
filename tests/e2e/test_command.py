"""Test the command's error messages, and its reports about the machine."""

from __future__ import annotations

import json
import subprocess
from importlib.metadata import version
from pathlib import Path

import pytest

from tests.support.campaigns import COMMAND, Toy
from tests.support.in_process import run_here


@pytest.fixture
def toy(tmp_path: Path) -> Toy:
    return Toy(tmp_path)


LONG = "x" * 300
"""A name that is too long for every file system."""


@pytest.mark.parametrize(
    "arguments",
    [
        ("loop", "--menu=nowhere.toml"),
        ("loop", "--program=nowhere.md"),
        ("loop", "--budget=many steps"),
        ("loop", "--corpus=nowhere"),
        ("loop", "--tokenizer=words"),
        ("loop", "--device=cuda:99"),
        ("top", "--campaign=nowhere"),
        ("handoff", "--target=nowhere"),
        ("verify", "--log=nowhere"),
        ("report", f"--campaign={LONG}"),
        ("serve", LONG),
        ("import", LONG),
    ],
)
def test_bad_input_is_one_plain_sentence(toy: Toy, arguments: tuple[str, ...]) -> None:
    done = run_here(arguments, toy.home, toy.environment)
    assert done.returncode == (4 if arguments[0] == "verify" else 1), done.stdout + done.stderr
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 1
    assert not (toy.home / "runs").exists(), "nothing is left half-made"


@pytest.mark.slow
def test_a_night_goes_on_whatever_its_menu_is_called_and_whatever_the_terminal_can_say(
    toy: Toy,
) -> None:
    toy.menu = toy.menu.rename(toy.home / "toy \N{GRINNING FACE}.toml")
    toy.campaign = toy.home / "runs" / "x [bold] y[/b]"
    toy.environment["PYTHONIOENCODING"] = "ascii"
    for iterations in (1, 2):
        done = toy.loop(iterations)
        assert done.returncode == 0, done.stderr
    done = toy.run("top", f"--campaign={toy.campaign}")
    assert done.returncode == 0, done.stderr


def test_a_directory_that_no_trial_could_be_told_is_refused_before_it_is_made(toy: Toy) -> None:
    toy.campaign = toy.home / "runs" / "c\udcff"
    done = run_here(tuple(toy.arguments(1)[1:]), toy.home, toy.environment)
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert not (toy.home / "runs").exists()


@pytest.mark.parametrize(
    "arguments",
    [("loop", "--iters=x"), ("loop", "--lanes=0"), ("top", "--k=0"), ("nothing",)],
)
def test_bad_usage_exits_two(toy: Toy, arguments: tuple[str, ...]) -> None:
    assert run_here(arguments, toy.home, toy.environment).returncode == 2


def test_it_says_its_version(toy: Toy) -> None:
    done = toy.run("--version")
    assert (done.returncode, done.stdout) == (0, f"autoresearch {version('autoresearch')}\n")


def test_ctrl_c_while_it_loads_is_answered_without_a_word(toy: Toy) -> None:
    (toy.home / "typer.py").write_text(
        "import os, signal\nos.kill(os.getpid(), signal.SIGINT)\nimport time\ntime.sleep(60)\n"
    )
    toy.environment["PYTHONPATH"] = str(toy.home)
    done = subprocess.run(
        [COMMAND, "--version"], cwd=toy.home, env=toy.environment, capture_output=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, b"", b"")


def test_a_bad_environment_variable_is_named(toy: Toy) -> None:
    toy.environment["AUTORESEARCH_LLM_BASE_URL"] = "ftp//nonsense"
    done = run_here(("loop", f"--menu={toy.menu}", "--iters=1"), toy.home, toy.environment)
    assert done.returncode == 1
    assert "ftp//nonsense" in done.stderr


@pytest.mark.slow
def test_doctor_looks_at_everything(toy: Toy) -> None:
    done = toy.run("doctor", "--json")
    assert done.returncode == 0, done.stdout
    checks = {check["name"]: check for check in json.loads(done.stdout)["checks"]}
    looked_at = "sandbox python torch device megatron disk corpus endpoint".split()
    assert list(checks) == looked_at
    assert checks["endpoint"]["state"] == "note"


@pytest.mark.slow
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
