"""Printed commands begin as the program was started."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from agent.cli import ENTRIES
from autoresearch.program import COMMANDS, copyable
from tests.support.places import ROOT

HINT = "run autoresearch confirm; or: autoresearch loop --menu m.toml"


def test_every_command_is_known() -> None:
    assert set(ENTRIES) == COMMANDS


@pytest.mark.parametrize("is_module", [True, False])
def test_a_hint_can_be_copied_without_the_name_on_path(
    is_module: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / ("autoresearch/__main__.py" if is_module else "bin dir/autoresearch")
    program.parent.mkdir()
    program.touch()
    monkeypatch.setattr(sys, "argv", [str(program)])
    monkeypatch.setenv("PATH", str(tmp_path))
    words = f"{sys.executable} -m autoresearch" if is_module else f"'{program}'"
    assert copyable(HINT) == HINT.replace("autoresearch", words)
    for text in (f"{words} top", "autoresearch is a program", "./autoresearch loop"):
        assert copyable(text) == text
    (tmp_path / "autoresearch" if not is_module else tmp_path / "x").touch(mode=0o755)
    if not is_module:
        assert copyable(HINT) == HINT, "the name is on PATH"


def test_an_error_names_a_command_that_starts(tmp_path: Path) -> None:
    environment = {**os.environ, "PATH": str(tmp_path), "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-P", "-m", "autoresearch", "status"]
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert f"{sys.executable} -m autoresearch loop" in done.stderr
