"""The campaign's own runs of other shapes predict how long a shape takes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from autoresearch.errors import CampaignError
from funnel.ladder.pace import measured_pace
from funnel.ladder.shapes import training_flops
from tests.support.configs import config
from tests.support.rows import baseline_row, campaign_row, failed, iteration_row, ok, trial
from trainer.spec import Config
from trajectory.rows import Row

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
