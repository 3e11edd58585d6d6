import json
from collections.abc import Callable
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner, Result

from agent.commands.machine.compare import compare
from autoresearch.errors import MachineryError, SpecError
from tests.support.campaigns import MENU
from trainer.envelope.comparison import BackendComparison
from trainer.machine import cuda_driver

Run = Callable[..., Result]
needs_no_driver = pytest.mark.skipif(cuda_driver.is_installed(), reason="a driver is installed")


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.chdir(tmp_path)
    menu = tmp_path / "toy.toml"
    menu.write_text(MENU.format(corpus="stdlib"), encoding="utf-8")
    app = typer.Typer()
    app.command()(compare)

    def invoke(*arguments: str) -> Result:
        environment = {"AUTORESEARCH_DATA_DIR": str(tmp_path / "data"), "COLUMNS": "200"}
        always = ("--menu", str(menu))
        return CliRunner().invoke(app, [*always, *arguments], env=environment)

    return invoke


@pytest.mark.slow
def test_on_a_cpu_what_runs_there_is_measured(tmp_path: Path, run: Run) -> None:
    result = run("--steps=6", "--batch=2", "--json")
    assert result.exception is None, result.output
    found = json.loads(result.stdout)
    (torch,) = found["contenders"]
    assert (torch["backend"], torch["status"]) == ("torch", "ok")
    assert torch["peak_reserved_gib"] is None
    assert torch["utilisation_pct"] > 0
    assert (found["deltas"], found["defects"]) == ([], [])
    (left,) = found["left_out"]
    assert left["backend"] == "megatron"
    assert found["settings"]["config"]["batch_size"] == 2
    kept = BackendComparison.model_validate_json(
        (tmp_path / "runs" / "compare-toy" / "comparison.json").read_bytes()
    )
    assert kept.contenders[0].step_ms == torch["step_ms"]


@needs_no_driver
def test_a_menu_made_for_a_gpu_is_not_compared_on_the_cpu_instead(tmp_path: Path, run: Run) -> None:
    menu = tmp_path / "toy.toml"
    menu.write_text(menu.read_text().replace("[campaign]", '[campaign]\ndevice = "cuda"'))
    assert isinstance(run("--device=auto").exception, MachineryError)


@pytest.mark.parametrize(
    ("arguments", "kind"),
    [(("--precision=fp4",), SpecError), (("--device=cuda:77",), MachineryError)],
)
def test_what_cannot_be_compared_is_refused(
    tmp_path: Path, run: Run, arguments: tuple[str, ...], kind: type[Exception]
) -> None:
    result = run(*arguments)
    assert isinstance(result.exception, kind), result.output
    assert not (tmp_path / "runs").exists(), "nothing is half-written"
