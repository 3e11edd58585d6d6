"""Printed commands begin as the program was started."""

import os
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from agent.cli import ENTRIES
from autoresearch.program import COMMANDS, copyable, install_command
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


def test_an_extra_is_installed_by_the_packages_that_an_index_has() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"][
        "optional-dependencies"
    ]
    for extra in ("serve", "ray", "mcp"):
        words = shlex.split(install_command(extra))
        assert words[:4] == [sys.executable, "-m", "pip", "install"]
        names = {re.split(r"[<>=]", one)[0] for one in extras[extra]}
        assert {re.split(r"[<>=]", one)[0] for one in words[4:]} == names
    assert shlex.split(install_command("nothing"))[-1] == ".[nothing]"


def test_where_pip_is_missing_uv_installs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("autoresearch.program.metadata.distributions", lambda name: [])
    words = shlex.split(install_command("train"))
    assert words[:5] == ["uv", "pip", "install", "--python", sys.executable]
    assert len(words) > 5
