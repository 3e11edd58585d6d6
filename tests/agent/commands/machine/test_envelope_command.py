import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner, Result

from agent.commands.machine.envelope import envelope
from autoresearch.errors import EnvelopeError, SettingsError, SpecError
from tests.support.campaigns import MENU, write_text_corpus
from trainer.machine import cuda_driver

Run = Callable[..., Result]
needs_no_driver = pytest.mark.skipif(cuda_driver.is_installed(), reason="a driver is installed")


@pytest.fixture
def toy(tmp_path: Path) -> Path:
    path = tmp_path / "toy.toml"
    corpus = write_text_corpus(tmp_path / "text")
    path.write_text(MENU.format(corpus=corpus), encoding="utf-8")
    return path


@pytest.fixture
def run(tmp_path: Path, toy: Path) -> Run:
    app = typer.Typer()
    app.command()(envelope)

    def invoke(*arguments: str) -> Result:
        environment = {"AUTORESEARCH_DATA_DIR": str(tmp_path / "data"), "COLUMNS": "200"}
        always = ("--menu", str(toy), "--out", str(tmp_path / "out"))
        return CliRunner().invoke(app, [*always, *arguments], env=environment)

    return invoke


def report(result: Result) -> Any:
    assert result.exception is None, result.output
    return json.loads(result.stdout)


@pytest.mark.slow
def test_a_sweep_measures_and_resumes(tmp_path: Path, run: Run) -> None:
    asked = ("--batch=2,64", "--seq=16,64", "--precision=fp32,fp8", "--steps=4", "--warmup=1")
    found = report(run(*asked, "--json"))

    statuses = {(p["precision"], p["status"]) for p in found["points"]}
    assert statuses == {("fp32", "ok"), ("fp8", "refused")}
    largest = {
        (one["precision"], one["seq_len"]): one["batch_size"] for one in found["largest_batches"]
    }
    assert largest == {("fp32", 16): 64, ("fp32", 64): 64, ("fp8", 16): None, ("fp8", 64): None}
    assert found["gains"] == []
    assert found["limit"]["gib"] > 0

    points = (tmp_path / "out" / "points.jsonl").read_bytes().splitlines()
    said = run(*asked)
    assert said.exception is None, said.output
    assert "seq 16" in said.stdout
    again = (tmp_path / "out" / "points.jsonl").read_bytes().splitlines()
    assert again[: len(points)] == points
    added = [json.loads(line)["precision"] for line in again[len(points) :]]
    assert added == ["fp8"] * 4, "what was measured is not measured again, what was refused is"

    other = run("--batch=2", "--seq=16", "--precision=fp32", "--steps=5", "--warmup=1")
    assert isinstance(other.exception, EnvelopeError)
    assert "steps" in str(other.exception)


@needs_no_driver
@pytest.mark.slow
@pytest.mark.parametrize("asked", [(), ("--device=auto",)])
def test_the_device_is_chosen_as_the_loop_chooses_it(
    toy: Path, run: Run, asked: tuple[str, ...]
) -> None:
    """A menu made for a GPU that is not there is not measured on the CPU instead."""
    grid = ("--batch=2", "--seq=16", "--precision=fp32")
    text = toy.read_text()
    toy.write_text(text.replace("[campaign]", '[campaign]\ndevice = "cuda"'))
    assert isinstance(run(*grid, *asked).exception, SpecError)
    toy.write_text(text.replace("[campaign]", '[campaign]\ndevice = "cpu"'))
    found = report(run(*grid, *asked, "--steps=4", "--warmup=1", "--json"))
    assert found["settings"]["device"] == "cpu"
    assert [point["status"] for point in found["points"]] == ["ok"]
    assert "gpu_util_pct" not in found["points"][0]


@pytest.mark.parametrize(
    ("arguments", "kind"),
    [
        (("--steps=5", "--warmup=5"), SettingsError),
        (("--backend=jax", "--batch=2", "--seq=16"), SpecError),
        pytest.param(("--device=cuda:77",), SpecError, marks=pytest.mark.slow),
    ],
)
def test_what_cannot_be_measured_is_refused(
    tmp_path: Path, run: Run, arguments: tuple[str, ...], kind: type[Exception]
) -> None:
    result = run(*arguments)
    assert isinstance(result.exception, kind), result.output
    assert not list((tmp_path / "out").glob("trials/*"))
