"""A ladder read from its journal yields its law, lead and prediction, and detects tampering."""

import re
from pathlib import Path

import pytest

from autoresearch.errors import JournalError
from funnel.cost.measured import measured_of
from funnel.ladder.points import LadderLog
from funnel.ladder.report import ladder_picture, lines, result_json
from funnel.ladder.result import LadderResult, ladder_result, make_prediction, read_ladder
from tests.support.ladder_worlds import NOW, VOCAB, Trainer, World, plan
from tests.support.present import known
from tests.support.rows import at, campaign_row, failed, stress_row
from trainer.schema import Config
from trajectory.report.svg import draw
from trajectory.rows import (
    Finalist,
    FinalistsRow,
    LadderPlanRow,
    LadderPredictionRow,
    LadderRow,
    Row,
    dump_row,
)

WORLD = World(lead=0.1, luck=0.002, shared_luck=0.001, fault=0.001)


@pytest.fixture(scope="module")
def ladder_plan() -> LadderPlanRow:
    return plan(4, 0.2)


@pytest.fixture(scope="module")
def rows(ladder_plan: LadderPlanRow) -> list[Row]:
    """Return a whole journal, as the command writes it."""
    trainer = Trainer(WORLD, ladder_plan, seed=4)
    log = LadderLog(plans=[ladder_plan])
    written: list[Row] = [campaign_row(), ladder_plan]
    prediction: LadderPredictionRow | None = None
    for run in ladder_plan.runs:
        if run.rung == ladder_plan.largest and prediction is None:
            made = make_prediction(log, ladder_plan, vocab_size=VOCAB, seed=0, at=NOW)
            assert isinstance(made, LadderPredictionRow)
            prediction = made
            written.append(made)
        for seed in run.seeds:
            row = trainer.row(run, seed, prediction.sha256 if prediction else None)
            log.add(row)
            written.append(row)
    return written


def campaign(directory: Path, rows: list[Row]) -> Path:
    directory.mkdir(exist_ok=True)
    text = "".join(f"{dump_row(row)}\n" for row in rows)
    (directory / "trajectory.jsonl").write_text(text, "utf-8")
    return directory


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory, rows: list[Row]) -> LadderResult:
    return known(read_ladder(campaign(tmp_path_factory.mktemp("ladder"), rows)))


def place(rows: list[Row]) -> int:
    return next(i for i, row in enumerate(rows) if isinstance(row, LadderPredictionRow))


def test_the_law_the_lead_and_the_prediction(result: LadderResult) -> None:
    assert (result.missing, result.left_out) == (0, ())
    largest = result.plan.runs[-1]
    truth = float(WORLD.law.at(largest.params, largest.length))
    low, _, high = known(result.winner).predict(largest.params, largest.tokens)
    assert float(low) < truth < float(high)
    assert result.baseline is not None
    lead = known(result.lead)
    assert lead.at_largest_low < 0.1 < lead.at_largest_high
    for outcome in known(result.predicted).outcomes:
        assert outcome.within and abs(known(outcome.error)) < 0.05


def test_lines_json_and_picture_of_both_ladders(result: LadderResult) -> None:
    text = "\n".join(line.plain for line in lines(result))
    assert known(result.predicted).sha256 in text
    told = result_json(result)
    assert told["complete"] is True
    assert len(told["points"]) == len(result.points)
    assert {outcome["within"] for outcome in told["predicted"]["outcomes"]} == {True}
    files = draw(lambda: ladder_picture(result)).files
    assert len(files["ladder.png"]) > 10_000
    drawn = files["ladder.svg"].decode()
    assert all(words in drawn for words in ("winner", "baseline", "predicted"))
    assert "mathdefault" not in drawn
    assert re.search(r">\de\+\d\d<", drawn)


def test_a_ladder_may_be_cut(ladder_plan: LadderPlanRow, rows: list[Row], tmp_path: Path) -> None:
    assert read_ladder(campaign(tmp_path / "planned", rows[:2])) is None
    found = known(read_ladder(campaign(tmp_path / "cut", rows[: 2 + 12])))
    assert found.missing == LadderLog().pending(ladder_plan) - 12
    assert (found.winner is None) == (found.no_law is not None)
    assert found.predicted is None
    assert list(lines(found))
    assert draw(lambda: ladder_picture(found)).files


def test_a_run_without_a_measurement_is_named(ladder_plan: LadderPlanRow, rows: list[Row]) -> None:
    log = LadderLog.of(rows)
    broken = log.runs[0]
    trial = broken.trial.model_copy(update={"result": failed("the loss became nan at step 7")})
    verdict = broken.verdict.model_copy(update={"outcome": "nonfinite", "step": 7})
    log.runs[0] = broken.model_copy(update={"trial": trial, "verdict": verdict})
    found = ladder_result(log, ladder_plan, vocab_size=VOCAB, seed=0)
    (said,) = found.left_out
    assert broken.trial.trial_id in said and "nan at step 7" in said
    assert len(found.points) == len(log.runs) - 1


def test_smaller_rungs_make_the_prediction(ladder_plan: LadderPlanRow, rows: list[Row]) -> None:
    row = rows[place(rows)]
    assert isinstance(row, LadderPredictionRow)
    runs = [run for run in rows if isinstance(run, LadderRow)]
    smaller = {run.trial.trial_id for run in runs if run.rung < ladder_plan.largest}
    assert set(row.trial_ids) == smaller
    after = LadderLog.of(rows)
    after.predictions.clear()
    again = make_prediction(after, ladder_plan, vocab_size=VOCAB, seed=0, at=NOW)
    assert isinstance(again, str) and "trained before" in again


def changed(rows: list[Row], what: str) -> list[Row]:
    """Return the journal after one kind of tampering."""
    at = place(rows)
    row = rows[at]
    assert isinstance(row, LadderPredictionRow)
    loss = row.predicted[0]
    runs = (r for r in rows[at:] if isinstance(r, LadderRow) and r.recipe == loss.recipe)
    seen = loss.model_copy(update={"middle": next(runs).trial.objective})
    better = row.model_copy(update={"predicted": (seen, *row.predicted[1:])})
    here: dict[str, list[Row]] = {
        "the figure": [better],
        "the figure and its hash": [better.model_copy(update={"sha256": better.sealed})],
        "the time": [row.model_copy(update={"at": "2025-01-01"})],
    }
    last = [row] if what == "the place" else []
    return [*rows[:at], *here.get(what, []), *rows[at + 1 :], *last]


@pytest.mark.parametrize(
    "what", ["the figure", "the figure and its hash", "the time", "the place", "the row is gone"]
)
def test_tampering_with_the_prediction_is_found(rows: list[Row], tmp_path: Path, what: str) -> None:
    with pytest.raises(JournalError):
        read_ladder(campaign(tmp_path / "tampered", changed(rows, what)))


def test_a_campaign_without_a_ladder_has_none(tmp_path: Path) -> None:
    assert read_ladder(campaign(tmp_path / "none", [campaign_row()])) is None
    assert read_ladder(tmp_path / "nowhere") is None


def test_a_ladder_is_found(ladder_plan: LadderPlanRow, rows: list[Row], tmp_path: Path) -> None:
    """The journal holds whole ladders of two recipes in succession, with the same runs."""
    other = ladder_plan.model_copy(update={"winner": ladder_plan.baseline})
    written, steps = campaign(tmp_path / "two", [*rows, other]), ladder_plan.source_steps
    assert known(read_ladder(written)).plan.winner == ladder_plan.baseline
    assert known(read_ladder(written, of=(ladder_plan.winner, steps))).plan == ladder_plan
    assert read_ladder(written, of=(ladder_plan.winner, 2 * steps)) is None


def stressed_as_best(of: Config, steps: int) -> list[Row]:
    best = Finalist(config_hash=of.config_hash, objective=2.2, runs=1, stderr=None)
    ended = FinalistsRow(at=at(2), steps=steps, finalists=(best,))
    return [stress_row(1, of, 5, 2.2, steps=steps), ended]


def test_the_bill_has_the_lead(ladder_plan: LadderPlanRow, rows: list[Row], tmp_path: Path) -> None:
    first, *rest = rows
    own = stressed_as_best(ladder_plan.winner, ladder_plan.source_steps)
    other = stressed_as_best(ladder_plan.baseline, ladder_plan.source_steps)
    found = measured_of(campaign(tmp_path / "own", [first, *own, *rest])).lead
    assert found is not None and "on the ladder the winner led" in found
    assert measured_of(campaign(tmp_path / "unstressed", rows)).lead == found
    assert measured_of(campaign(tmp_path / "other", [first, *other, *rest])).lead is None
