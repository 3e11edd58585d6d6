"""Check which scripts are started in a fork, and which of their imports the server loads."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from agent.menu.files import parse_menu
from agent.menu.scripts.draft import draft_of
from agent.menu.scripts.draft_text import text_of
from agent.menu.scripts.entry_function import entry_function, preloadable
from agent.menu.scripts.reading import read_script
from trainer.script.editing import script_tree

GUARD = "\nif __name__ == '__main__':\n    main()\n"


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("def main(): ..." + GUARD, "main"),
        ("def train(argv=None, *, fast=False): ..." + GUARD.replace("main()", "train()"), "train"),
        ("@click.command()\n@click.option('--lr')\ndef main(lr): ..." + GUARD, "main"),
        ("def main(argv): ..." + GUARD, None),
        ("def main(*, lr): ..." + GUARD, None),
        ("async def main(): ..." + GUARD, None),
        ("from cli import main" + GUARD, None),
        ("def main(): ..." + GUARD.replace("main()", "lr = 1; main()"), None),
        ("def main(): ..." + GUARD.replace("main()", "main(1)"), None),
        ("def main(): ...\nmain()", None),
    ],
)
def test_a_function_is_named_if_the_guard_does_nothing_but_call_it(
    text: str, name: str | None
) -> None:
    assert entry_function(script_tree(text)) == name


def test_only_installed_well_known_modules_are_preloaded() -> None:
    text = (
        "import os, numpy as np, jax, helpers\nfrom torch.utils.data import DataLoader\n"
        "import torch\nfrom . import numpy\nfrom lightgbm_missing import x\n"
        "def main():\n    import pandas\n"
    )
    assert preloadable(script_tree(text)) == ["numpy", "torch.utils.data", "torch"]


SCRIPT = """
import argparse
import torch
def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--lr", type=float, default=1e-3)
    args = parser.parse_args()
    print(f"val loss {args.lr}")
"""


@pytest.mark.parametrize(("guarded", "main"), [(True, "main"), (False, None)])
def test_a_draft_calls_the_function_of_the_script(
    guarded: bool, main: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent))
    path = tmp_path / "fit.py"
    path.write_text(SCRIPT + (GUARD if guarded else "main()\n"))
    table = parse_menu(text_of(draft_of(read_script(path), None)), "draft").trainer
    assert table is not None
    assert (table.main, table.preload) == (main, ("torch",) if main else ())
    assert table.command[0] == ("{python}" if main else "python")


def test_a_script_of_another_python_is_started_as_a_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python").touch(0o755)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    path = tmp_path / "fit.py"
    path.write_text(SCRIPT + GUARD)
    assert draft_of(read_script(path), None).main is None
