"""Test ``autoresearch envelope --dry``, which prints a table without running a trial."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner, Result

from agent.commands.machine.envelope import envelope
from autoresearch.errors import SpecError

Run = Callable[..., Result]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.chdir(tmp_path)
    app = typer.Typer()
    app.command()(envelope)

    def invoke(*arguments: str) -> Result:
        environment = {"AUTORESEARCH_DATA_DIR": str(tmp_path / "data"), "COLUMNS": "80"}
        return CliRunner(env=environment).invoke(app, ["--dry", *arguments])

    return invoke


def test_every_point_is_counted_and_nothing_is_written(run: Run, tmp_path: Path) -> None:
    ended = run(
        "--menu", "cpu-tiny", "--batch", "2,4", "--seq", "32", "--precision", "fp32,bf16", "--json"
    )
    assert ended.exit_code == 0, ended.output
    found = json.loads(ended.stdout)
    points = {(p["precision"], p["batch_size"]): p for p in found["points"]}
    assert points.keys() == {(p, b) for p in ("fp32", "bf16") for b in (2, 4)}
    for precision in ("fp32", "bf16"):
        small, large = points[precision, 2], points[precision, 4]
        assert large["tflop"] == pytest.approx(2 * small["tflop"])
        assert small["peak_gib"] < large["peak_gib"]
        assert small["kernels"] > 100
    assert found["device"]["name"] == "GB10"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "arguments",
    [("--backend", "megatron"), ("--compile",), ("--on", "abacus"), ("--on", "gb10,x=1")],
)
def test_what_cannot_be_counted_is_refused(run: Run, arguments: tuple[str, ...]) -> None:
    assert isinstance(run(*arguments).exception, SpecError)


def test_a_precision_that_a_shape_cannot_have_is_said_and_the_rest_goes_on(run: Run) -> None:
    ended = run("--batch", "2", "--seq", "40", "--precision", "bf16,fp8", "--json")
    assert ended.exit_code == 0, ended.output
    found = json.loads(ended.stdout)
    assert [point["precision"] for point in found["points"]] == ["bf16"]
    assert [point["precision"] for point in found["refused"]] == ["fp8"]
