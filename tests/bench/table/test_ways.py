"""Configs of the table as a calibration takes them, and the plan that the table came from."""

from __future__ import annotations

import math
from random import Random

from agent.menu.files import load_menu
from bench.judge_nights import RESULT
from bench.table.plan import BLOCKS, LONG_AGAIN, LONG_STEPS, SEEDS, SHORT_STEPS, Plan
from bench.table.store import read_published
from bench.table.ways import MENU, LongRuns, leanings
from trainer.spec import Budget, TrialOk
from trajectory.calibrated import CalibrationRun
from trajectory.rows import CalibrationRow, TrialRecord
from trajectory.statistics.fidelity import spearman

PUBLISHED = {trial.key: trial for trial in read_published()}
KNOWN = LongRuns.of_table(list(PUBLISHED.values()))


def test_configs_come_back_as_they_were_trained() -> None:
    assert len(KNOWN) == 80
    for one in KNOWN:
        assert {trial.config_hash for trial in one.trials} == {one.config.config_hash}
        assert {trial.steps for trial in one.trials} == {LONG_STEPS}


def test_their_order_has_nothing_to_do_with_their_scores() -> None:
    places = [float(place) for place in range(len(KNOWN))]
    assert abs(spearman(places, [one.score() for one in KNOWN])) < 0.25


def test_the_plan_is_what_was_published() -> None:
    """Whoever runs it again makes the same trials."""
    plan = Plan(load_menu(MENU), Budget(amount=SHORT_STEPS))
    asked = set()
    for number in range(BLOCKS):
        asked |= {job.key for job in plan.block(number, PUBLISHED)}
        asked |= {job.key for job in plan.second_part(PUBLISHED)}
    again = [job.key for job in plan.third_part(PUBLISHED)]
    assert len(again) == LONG_AGAIN
    assert {(seed, steps) for _, seed, steps in again} == {(SEEDS[1], LONG_STEPS)}
    best = sorted(KNOWN, key=LongRuns.score)[:LONG_AGAIN]
    assert [config_hash for config_hash, _, _ in again] == [one.config.config_hash for one in best]
    assert PUBLISHED.keys() - asked <= set(again)
    assert asked <= PUBLISHED.keys()


def short_row(one: LongRuns, score: float) -> CalibrationRow:
    """A run of 60 steps of it."""
    config_hash = one.config.config_hash
    result: TrialOk = RESULT.model_copy(update={"val_bpb": score})
    return CalibrationRow(
        at="",
        run=CalibrationRun(steps=SHORT_STEPS, horizon_steps=None),
        config=one.config,
        config_hash=config_hash,
        trial=TrialRecord(
            trial_id=config_hash[:12],
            role="calibration",
            config_hash=config_hash,
            seed=0,
            result=result,
            wall_s=1,
        ),
    )


def told(scores: list[float]) -> dict[str, tuple[float, float]]:
    """By knob, the interval of what errors go with."""
    rows = [short_row(one, score) for one, score in zip(KNOWN, scores, strict=True)]
    head, _, line = leanings(rows, KNOWN)
    assert line.startswith("| 60 steps of 60 |")
    cells = [cell.split("(")[1].rstrip(") |").split(" … ") for cell in line.split(" | ")[1:]]
    return {
        knob.strip(" |"): (float(lo), float(hi))
        for knob, (lo, hi) in zip(head.split(" | ")[1:], cells, strict=True)
    }


def test_a_short_run_that_flatters_high_rates_is_found_out() -> None:
    found = told([one.score() - 0.1 * math.log10(one.config.lr) for one in KNOWN])
    assert found.keys() == {"lr", "d_model"}
    assert found["lr"][1] < 0


def test_errors_that_go_with_nothing_are_said_to() -> None:
    rng = Random(0)
    found = told([one.score() + rng.gauss(0, 0.05) for one in KNOWN])
    assert all(lo < 0 < hi for lo, hi in found.values())


def test_of_runs_that_not_every_config_has_nothing_is_told() -> None:
    assert len(list(leanings([short_row(KNOWN[0], 3.0)], KNOWN))) == 2
