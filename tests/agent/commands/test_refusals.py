from importlib.metadata import version
from pathlib import Path

import pytest

from tests.support.campaigns import COMMAND, Toy
from tests.support.in_process import run_here
from tests.support.programs import finished

LONG = "x" * 300
"""A name that is too long for every file system."""


@pytest.fixture
def toy(tmp_path: Path) -> Toy:
    toy = Toy(tmp_path)
    odd = toy.menu.read_text("utf-8").replace('"6 steps"', '"13 steps"')
    (toy.home / "odd.toml").write_text(odd.replace("horizon_steps = 100", "horizon_steps = 50"))
    return toy


@pytest.mark.parametrize(
    "arguments",
    [
        ("loop", "--menu=nowhere.toml"),
        ("loop", "--program=nowhere.md"),
        ("loop", "--menu=toy.toml", "--budget=many steps"),
        ("loop", "--menu=toy.toml", "--corpus=nowhere"),
        ("loop", "--menu=toy.toml", "--tokenizer=words"),
        ("loop", "--menu=toy.toml", "--device=cuda:99"),
        ("loop", "--menu=toy.toml", "--campaign=runs/c\udcff"),
        ("calibrate", "--fidelity", "--menu=odd.toml", "--steps=50", "--configs=8"),
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


def test_a_bad_environment_variable_is_named(toy: Toy) -> None:
    toy.environment["AUTORESEARCH_LLM_BASE_URL"] = "ftp//nonsense"
    done = run_here(("loop", f"--menu={toy.menu}", "--iters=1"), toy.home, toy.environment)
    assert done.returncode == 1
    assert "ftp//nonsense" in done.stderr


USAGE = {
    "loop": ("--iters=x", "--lanes=0"),
    "top": ("--k=0",),
    "nothing": ("",),
    "envelope": ("--batch=2,x", "--batch=0", "--seq=-1", "--precision=fp4", "--steps=0"),
    "compare": ("--backends=torch,jax", "--steps=0", "--batch=0"),
}


def test_bad_usage_exits_two(toy: Toy) -> None:
    for command, options in USAGE.items():
        for option in options:
            assert run_here((command, option), toy.home, toy.environment).returncode == 2, option


def test_it_says_its_version(toy: Toy) -> None:
    done = toy.run("--version")
    assert (done.returncode, done.stdout) == (0, f"autoresearch {version('autoresearch')}\n")


def test_ctrl_c_while_it_loads_is_answered_without_a_word(toy: Toy) -> None:
    (toy.home / "typer.py").write_text(
        "import os, signal\nos.kill(os.getpid(), signal.SIGINT)\nimport time\ntime.sleep(60)\n"
    )
    toy.environment["PYTHONPATH"] = str(toy.home)
    done = finished(COMMAND, "--version", cwd=toy.home, env=toy.environment)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")
