"""The rules in force agree with published runs within a factor of two, stated beforehand.

The runs that miss are listed here and in docs/transfer.md; a run that begins or ceases to miss
fails its test. The rule of depth was chosen with these runs in view, so they are no independent
test of it.
"""

from __future__ import annotations

from statistics import median

import pytest

from funnel.transfer.carry import carry
from funnel.transfer.rates import tokens_a_step
from funnel.transfer.rules import DEFAULT_RULES, RuleChoice
from tests.support.published_runs import RUNS, STEP_LAW_GRID, Cell, PublishedRun
from trainer.spec import Config

MISSED_RATES = {"OLMo 2 13B"}
"""Run trained at three times the rate of its family's 7 B."""
MISSED_BATCHES = {"OLMo 2 7B"}
"""Run missed by 7%."""
FACTOR = 2.0
NAMED = [pytest.param(run, id=run.name) for run in RUNS]


def hit(ratio: float) -> bool:
    """Return whether the ratio of a rule's value to the published one is within the factor."""
    return 1 / FACTOR <= ratio <= FACTOR


def carried(
    cell: Cell, shape: Config, tokens: int, rules: RuleChoice, tokens_per_step: int | None = None
) -> float:
    """Return the rate of one small run as the rules carry it to a large one."""
    plan = carry(
        cell.config,
        horizon_steps=cell.steps,
        shape=shape,
        tokens=tokens,
        tokens_per_step=tokens_per_step,
        rules=rules,
    )
    return plan.config.lr


def rate(run: PublishedRun, rules: RuleChoice = DEFAULT_RULES) -> float:
    """Return the median ratio of the rate carried from Step Law's grid to the published rate."""
    return median(
        carried(cell, run.config, run.tokens, rules) / run.config.lr for cell in STEP_LAW_GRID
    )


@pytest.mark.parametrize("run", NAMED)
def test_the_rate_is_within_twice_the_one_used(run: PublishedRun) -> None:
    assert hit(rate(run)) == (run.name not in MISSED_RATES)


@pytest.mark.parametrize("run", [p for p in NAMED if p.values[0].tokens_per_step])  # type: ignore[union-attr]
def test_the_batch_is_within_twice_the_one_used(run: PublishedRun) -> None:
    assert run.tokens_per_step is not None
    tokens = tokens_a_step(DEFAULT_RULES.batch, kept=run.tokens_per_step, tokens=run.tokens)
    assert hit(tokens / run.tokens_per_step) == (run.name not in MISSED_BATCHES)


def test_the_rules_in_force_are_not_beaten_by_a_factor_of_two_of_any_other_length() -> None:
    """Published runs distinguish the rule of length. Without it, or with a law of the tokens that
    assumes another batch, most runs are missed."""
    hits = {}
    for horizon in ("delphi", "none", "step_law", "complete_d"):
        rules = DEFAULT_RULES.model_copy(update={"horizon": horizon})
        hits[horizon] = sum(hit(rate(run, rules)) for run in RUNS)
    assert hits["delphi"] == len(RUNS) - len(MISSED_RATES)
    assert max(hits["none"], hits["step_law"], hits["complete_d"]) <= 3


def test_the_grids_own_optima_are_mostly_carried_from_each_other() -> None:
    """When this was written, 82% of the 272 pairs at the best batches were within a factor of
    two."""
    ratios = [
        carried(small, large.config, round(large.tokens), DEFAULT_RULES, large.tokens_per_step)
        / large.lr
        for small in STEP_LAW_GRID
        for large in STEP_LAW_GRID
        if small is not large
    ]
    assert len(ratios) == 272
    assert sum(map(hit, ratios)) / len(ratios) >= 0.75
