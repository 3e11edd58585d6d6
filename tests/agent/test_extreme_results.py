import json
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from typer.testing import CliRunner

from agent.cli import app
from agent.search.race import prune_rule
from agent.session.display import ShownTrial
from tests.support.configs import config
from tests.support.reports import simulated
from tests.support.rows import write_journal
from tests.support.trials import trial_spec
from trainer.schema import Budget, CurvePoint, TrialOk
from trajectory.report.iterations import merged
from trajectory.rows import IterationRow, Row

COUNTS = ("val_bytes", "val_tokens", "params")
LOSSES = ("train_loss_first", "train_loss_last")
BITS = ("val_bpb", "val_bits_per_token")
SPEEDS = ("step_ms", "tokens_per_s")
AMOUNTS = ("train_s", "eval_s", "setup_s", "peak_mem_gib", "energy_wh")
KINDS = (BITS, COUNTS, LOSSES, SPEEDS, AMOUNTS)


def all_of(*values: float) -> dict[str, Any]:
    """Return the same value for all fields of a kind."""
    return {name: value for names, value in zip(KINDS, values, strict=True) for name in names}


HIGH = all_of(1e40, 2**53 - 1, 3.5e38, 1e15, 1e9)
LOW = all_of(1e-12, 1, -1e-3, 1e-12, 0.0)


def with_lies(rows: list[Row], every: int, lies: dict[str, Any]) -> list[Row]:
    """Return the rows with these values in every ``every``-th iteration's candidate."""
    told: list[Row] = []
    for row in rows:
        if isinstance(row, IterationRow) and row.iter % every == 0:
            trials = tuple(
                trial.model_copy(update={"result": TrialOk(**(dict(trial.result) | lies))})
                if isinstance(trial.result, TrialOk) and trial.role == "candidate"
                else trial
                for trial in row.trials
            )
            row = row.model_copy(update={"trials": trials})  # noqa: PLW2901
        told.append(row)
    return told


@pytest.mark.slow
def test_every_report_is_made_all_the_same(tmp_path: Path) -> None:
    rows = simulated(24)
    for every, lies in ((5, HIGH), (7, LOW), (11, {**HIGH, "val_bpb": 1e-12})):
        rows = with_lies(rows, every, lies)
    write_journal(tmp_path / "trajectory.jsonl", iter(rows))
    for command in (["top", "--json"], ["top"], ["report", "--json"]):
        done = CliRunner().invoke(app, [*command, "--campaign", str(tmp_path)])
        assert done.exit_code == 0, (command, done.output, done.exception)
        if "--json" in command:
            json.loads(done.stdout, parse_constant=pytest.fail)


def curve(**changes: Any) -> list[CurvePoint]:
    values = {"loss": 5.0, "lr": 1e-3, "grad_norm": 1.0, "elapsed_s": 1.0, "tokens": 1}
    return [CurvePoint(step=n, **(values | changes)) for n in range(1, 61)]


@pytest.mark.parametrize(
    "changes",
    [
        {"tokens": 2**53 - 1, "elapsed_s": 5e-324},
        {"elapsed_s": 1e9},
        {"loss": 3.5e38, "grad_norm": 3.5e38, "lr": 3.5e38},
        {"loss": -1e-3},
    ],
)
def test_a_running_trial_is_shown_whatever_it_says(changes: dict[str, Any]) -> None:
    points = curve(**changes)
    for budget in (Budget(), Budget(unit="seconds", amount=30)):
        line = str(ShownTrial(trial_spec(budget=budget), "candidate", None, points[-1]))
        Console(file=StringIO()).print(line)
        assert len(line) < 200
    assert merged("hash", [points, points]) is not None
    for curves in ([points, points], [points, curve()]):
        rule = prune_rule(curves, config(), config(), Budget())
        assert rule is not None and rule.max_loss > 0
