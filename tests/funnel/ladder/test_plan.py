"""Test the ladder's plan: its rungs' shapes, learning rates, and pace."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from autoresearch.errors import CampaignError, TargetError
from funnel.ladder.plan import EPOCHS, SPAN, Candidates, Planner
from funnel.ladder.shapes import (
    EVEN,
    SIZE_TOLERANCE,
    departure,
    measured_pace,
    own_params,
    scaled,
    training_flops,
)
from tests.support.configs import config
from tests.support.ladder_worlds import BASELINE, NOW, PACE, WINNER
from tests.support.rows import baseline_row, campaign_row, failed, iteration_row, ok, trial
from trainer.schema import Config, make_config
from trajectory.rows import LadderAsked, LadderPlanRow, Row

ASKED = LadderAsked(rungs=4, hours=0.2, seeds=2, tokens_per_param=20.0)
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


SHAPES = {
    "gelu": config(),
    "swiglu": config(activation="swiglu", d_ff=384),
    "grouped": config(n_head=8, n_kv_head=2),
    "deep": config(n_layer=12, d_model=96, n_head=4, d_ff=384),
}


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize("params", [40_000, 400_000, 5_000_000])
def test_the_parameters_are_those_asked_for(shape: Config, params: int) -> None:
    found = scaled(shape, params)
    assert abs(own_params(found) / params - 1) < SIZE_TOLERANCE
    make_config(found.canonical())
    kept = {"lr", "batch_size", "seq_len", "activation", "norm", "positions", "tie_embeddings"}
    assert all(getattr(found, name) == getattr(shape, name) for name in kept)


def test_two_recipes_of_a_size_are_even() -> None:
    for params in (90_000, 700_000, 5_000_000):
        first = own_params(scaled(SHAPES["swiglu"], params))
        second = own_params(scaled(SHAPES["gelu"], first))
        assert abs(second / first - 1) < EVEN


def test_its_own_size_is_itself_and_one_below_any_shape_is_refused() -> None:
    assert scaled(config(), own_params(config())) == config()
    with pytest.raises(TargetError):
        scaled(config(), 500)


def test_the_larger_the_nearer_to_its_ratios() -> None:
    off = [departure(scaled(config(), 10**n), config()) for n in (7, 8, 9)]
    assert max(off) < 0.02
    large = scaled(config(), 10**9)
    assert large.d_model / large.n_head == 32
    assert large.d_model / large.n_layer == pytest.approx(32, rel=0.1)
    assert large.d_ff / large.d_model == pytest.approx(4, rel=0.1)
    grouped = scaled(SHAPES["grouped"], 50_000_000)
    assert grouped.n_head == 4 * grouped.kv_heads


VOCAB = 1024
CALL_S, FLOP_S = 3e-4, 5e-12


def step_ms(of: Config) -> float:
    flops = training_flops(of, of.tokens_per_step, VOCAB)
    return 1000 * (CALL_S * (of.n_layer + 2) + FLOP_S * flops)


def rows(*configs: Config) -> Iterator[Row]:
    yield campaign_row()
    for number, of in enumerate(configs, start=1):
        scoring = training_flops(of, 1, VOCAB) / 3 * 40_000
        result = ok(
            4.0, step_ms=step_ms(of), eval_s=2e-12 * scoring, setup_s=0.2, val_tokens=40_000
        )
        yield iteration_row(number, of, (trial(number, of, 0, result),))


def test_the_two_costs_are_found_and_a_new_shape_is_foretold() -> None:
    pace = measured_pace(rows(config(), config(n_layer=1), config(d_model=256)), VOCAB)
    assert pace.runs == 3
    assert pace.call_s == pytest.approx(CALL_S, rel=1e-6)
    assert pace.flop_s == pytest.approx(FLOP_S, rel=1e-6)
    new = config(d_model=64, n_layer=8)
    scoring = 2e-12 * training_flops(new, 1, VOCAB) / 3 * 40_000
    assert pace.run_s(new, 500) == pytest.approx(0.2 + 0.5 * step_ms(new) + scoring)


def test_one_shape_tells_of_arithmetic_alone() -> None:
    pace = measured_pace(rows(config(), config(lr=2e-3)), VOCAB)
    assert pace.call_s == 0
    assert pace.step_s(config()) == pytest.approx(step_ms(config()) / 1000)


def test_runs_of_the_baseline_count_and_failures_do_not() -> None:
    bad = iteration_row(1, config(lr=1.0), (trial(2, config(lr=1.0), 0, failed()),))
    assert measured_pace([baseline_row(1, 4.0, 0), bad], VOCAB).runs == 1
    with pytest.raises(CampaignError):
        measured_pace([campaign_row()], VOCAB)
