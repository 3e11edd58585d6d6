"""Configs of the table as a calibration takes them, and the plan that the table came from."""

from __future__ import annotations

from agent.menu.files import load_menu
from bench.table.plan import BLOCKS, LONG_AGAIN, LONG_STEPS, SEEDS, SHORT_STEPS, Plan
from bench.table.store import read_published
from bench.table.ways import MENU, LongRuns
from trainer.spec import Budget
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
