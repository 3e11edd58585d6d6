"""The command that compares."""

from __future__ import annotations

from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

from bench.simulator import __main__ as command
from bench.simulator.__main__ import app
from bench.simulator.rules import BEFORE


@pytest.fixture(autouse=True)
def _room_for_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "console", Console(width=200))


def test_searches_are_told_beside_each_other_and_kept(tmp_path: Path) -> None:
    kept = tmp_path / "nights.jsonl"
    asked = ["searches", "--world", "made-up", "--search", "random", "--nights", "2"]
    asked += ["--iterations", "3", "--nights-file", str(kept)]
    first, again = (CliRunner().invoke(app, asked) for _ in range(2))
    assert first.exit_code == again.exit_code == 0, first.output
    assert "less uniform's at 3" in first.output
    assert len(kept.read_bytes().splitlines()) == 4
    assert "night 1000" in first.output
    assert "night 1000" not in again.output, "it was kept"
    assert first.output.splitlines()[-1] == again.output.splitlines()[-1]


def test_rules_are_told_at_equal_runs(tmp_path: Path) -> None:
    asked = ["rules", "--rule", "as shipped", "--nights", "2", "--runs", "20", "--world", "made-up"]
    asked += ["--no-idle", "--nights-file", str(tmp_path / "nights.jsonl")]
    result, again = (CliRunner().invoke(app, asked) for _ in range(2))
    assert result.exit_code == 0, result.output
    assert "made-up, 20 runs a night, 2 paired nights" in result.output
    assert "as shipped" in result.output
    assert BEFORE in result.output.replace("\n", " ")
    assert "night 0" in result.output
    assert "night 0" not in again.output, "they were kept"
    other = CliRunner().invoke(app, [*asked, "--search", "uniform, Sobol"])
    assert "night 0" in other.output, "another search's are other nights"
