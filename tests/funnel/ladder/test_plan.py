"""Rungs fit the time limit, are equal for both recipes, and are reproducible."""

from __future__ import annotations

from dataclasses import replace

import pytest

from autoresearch.errors import CampaignError
from funnel.ladder.plan import EPOCHS, SPAN, Candidates, Planner
from funnel.ladder.shapes import EVEN, own_params
from tests.support.ladder_worlds import BASELINE, NOW, PACE, WINNER
from trajectory.ladder_plan import LadderAsked, LadderPlanRow

ASKED = LadderAsked(rungs=4, hours=0.2, seeds=2, tokens_per_param=20.0, rates=0)
PLANNER = Planner(
    candidates=Candidates(WINNER, "search", BASELINE, 1000),
    asked=ASKED,
    seeds=(900, 901),
    pace=PACE,
    corpus_tokens=10**9,
    fits=lambda _: True,
)


@pytest.fixture(scope="module")
def plan() -> LadderPlanRow:
    return PLANNER.plan(NOW)


def test_both_recipes_at_every_size_and_length(plan: LadderPlanRow) -> None:
    expected_s = sum(run.expected_s * len(run.seeds) for run in plan.runs)
    assert 0.6 * 720 < expected_s < 1.15 * 720, "it takes the time given"
    assert {(run.rung, len(run.seeds)) for run in plan.runs} == {(1, 2), (2, 2), (3, 1), (4, 1)}
    alone = replace(PLANNER, candidates=Candidates(BASELINE, "search", BASELINE, 1000))
    assert {run.recipe for run in alone.plan(NOW).runs} == {"winner"}
    places = {
        name: [(run.rung, run.length, run.seeds) for run in plan.runs if run.recipe == name]
        for name in ("winner", "baseline")
    }
    assert places["winner"] == places["baseline"]
    assert len(places["winner"]) == 2 * 4 - 1
    by_place: dict[tuple[int, int], list[int]] = {}
    for run in plan.runs:
        by_place.setdefault((run.rung, run.length), []).append(run.params)
        assert 0 <= run.tokens - run.length < run.config.tokens_per_step
    for first, second in by_place.values():
        assert abs(second / first - 1) < 2 * EVEN


def test_neighbours_share_a_length_and_the_largest_is_last(plan: LadderPlanRow) -> None:
    lengths = {rung: {r.length for r in plan.runs if r.rung == rung} for rung in range(1, 5)}
    for rung in range(1, 4):
        assert len(lengths[rung] & lengths[rung + 1]) == 1
    assert [run.rung for run in plan.runs] == sorted(run.rung for run in plan.runs)
    sizes = [run.params for run in plan.runs]
    assert sizes[-1] / sizes[0] == pytest.approx(SPAN, rel=0.25)


def test_rates_are_tried_on_the_smaller_rungs_of_the_winner() -> None:
    swept = replace(PLANNER, asked=ASKED.model_copy(update={"rates": 1})).plan(NOW)
    runs = [run for run in swept.runs if run.lr_factor != 1]
    assert {(run.recipe, run.rung, run.lr_factor) for run in runs} == {
        ("winner", rung, factor) for rung in (1, 2) for factor in (0.5, 2.0)
    }
    for run in runs:
        own = next(
            other
            for other in swept.runs
            if (other.recipe, other.rung, other.length) == ("winner", run.rung, run.length)
            and other.lr_factor == 1
        )
        assert run.config.lr == pytest.approx(own.config.lr * run.lr_factor)


def test_a_small_corpus_bounds_the_sizes_and_says_so() -> None:
    small = replace(PLANNER, corpus_tokens=500_000).plan(NOW)
    assert max(run.length for run in small.runs) <= EPOCHS * 500_000 * 1.01
    largest = small.runs[-1]
    assert largest.length / largest.params == pytest.approx(20, rel=0.05)


def test_memory_bounds_the_sizes() -> None:
    free = PLANNER.plan(NOW).runs[-1]
    tight = replace(PLANNER, fits=lambda config: own_params(config) < free.params / 3)
    assert tight.plan(NOW).runs[-1].params < free.params / 3


def test_too_little_time_is_refused_with_what_it_would_take() -> None:
    hurried = replace(PLANNER, asked=ASKED.model_copy(update={"hours": 1e-4}))
    with pytest.raises(CampaignError, match="--hours"):
        hurried.plan(NOW)


def test_a_plan_is_known_again_whatever_the_pace_has_become(plan: LadderPlanRow) -> None:
    assert replace(PLANNER, pace=PACE.model_copy(update={"flop_s": 1e-9})).would_make(plan)
    other = replace(PLANNER, asked=ASKED.model_copy(update={"rungs": 5}))
    assert not other.would_make(plan)


def test_the_hash_is_of_all_but_the_time(plan: LadderPlanRow) -> None:
    assert plan.model_copy(update={"at": "later"}).sha256 == plan.sha256
    assert plan.model_copy(update={"source_steps": 999}).sha256 != plan.sha256
    assert LadderPlanRow.model_validate_json(plan.model_dump_json()).sha256 == plan.sha256
