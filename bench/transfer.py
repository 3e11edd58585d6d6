"""The rules of transfer against runs that others published.

Beforehand: a rate or a batch is a hit where it is within a factor of :data:`FACTOR` of what was
used or found best. The small runs that rates are carried from are the best ones of Step Law's grid
(0.2 to 1.1 B parameters, 4 to 100 B tokens); of the 17 rates that they make of one large run the
median is judged. Nothing is trained.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from statistics import median

from bench.figure import Figure
from funnel.target.architecture import load_target
from funnel.target.shape import ParameterCount
from funnel.transfer.batch import BatchRule, power_lines_batch, step_law_batch, tokens_a_step
from funnel.transfer.carry import DEFAULT_RULES, RuleChoice, carry
from funnel.transfer.depth import DEPTH_RULES
from funnel.transfer.horizon import HORIZON_RULES
from funnel.transfer.step_law import step_law_lr
from funnel.transfer.weight_decay import best_timescale, timescale
from funnel.transfer.width import COVER_DEPTH, WIDTH_RULES
from tests.support.published_runs import RUNS, STEP_LAW_GRID, Cell, PublishedRun
from trainer.spec import Config

FACTOR = 2.0
GOAL = "within 2 ×"
DECAY_PUBLISHED = ("Llama 2", "OLMo 2")
MUP_ALONE = RuleChoice(horizon="none", depth="complete_p", batch="kept")


def run() -> list[Figure]:
    """All of it, in some seconds."""
    return [
        *(_rate(one) for one in RUNS),
        *(_batch(one) for one in RUNS if one.tokens_per_step),
        *_grid(),
        *_timescales(),
        *_alternatives(),
        _plan(),
    ]


def hit(ratio: float) -> bool:
    """Whether what a rule says over what was used is within the factor."""
    return 1 / FACTOR <= ratio <= FACTOR


def rates(one: PublishedRun, rules: RuleChoice = DEFAULT_RULES) -> list[float]:
    """The run's rate as carried from every cell of the grid, over the one that was used."""
    return [_carried(cell, one.config, one.tokens, rules) / one.config.lr for cell in STEP_LAW_GRID]


def batch(one: PublishedRun, rule: BatchRule = DEFAULT_RULES.batch) -> float:
    """Tokens a step by a rule, over those that were used."""
    assert one.tokens_per_step is not None
    used = one.tokens_per_step
    return tokens_a_step(rule, kept=used, tokens=one.tokens) / used


def grid_pairs(rules: RuleChoice = DEFAULT_RULES) -> list[float]:
    """Every cell's best rate as carried from every other one at the batches that were best, over
    the rate that was found."""
    return [
        _carried(small, large.config, round(large.tokens), rules, large.tokens_per_step) / large.lr
        for small in STEP_LAW_GRID
        for large in STEP_LAW_GRID
        if small is not large
    ]


def _carried(
    cell: Cell, shape: Config, tokens: int, rules: RuleChoice, tokens_per_step: int | None = None
) -> float:
    return carry(
        cell.config,
        horizon_steps=cell.steps,
        shape=shape,
        tokens=tokens,
        tokens_per_step=tokens_per_step,
        rules=rules,
    ).block_lr


def _judged(name: str, ratio: float, note: str) -> Figure:
    return Figure(name=name, value=ratio, unit="× used", goal=GOAL, met=hit(ratio), note=note)


def _rate(one: PublishedRun) -> Figure:
    ratios = rates(one)
    params = ParameterCount.of(one.config, 1).blocks
    alone = step_law_lr(params, one.tokens) / one.config.lr
    before = median(rates(one, MUP_ALONE))
    return _judged(
        f"lr, {one.name}",
        median(ratios),
        f"{one.config.lr:g} used; 17 small runs: {min(ratios):.2f} to {max(ratios):.2f}, "
        f"{sum(map(hit, ratios))} within; by width alone {before:.1f}, by Step Law without a proxy "
        f"{alone:.2f}; {one.source}",
    )


def _batch(one: PublishedRun) -> Figure:
    return _judged(
        f"tokens a step, {one.name}",
        batch(one),
        f"{(one.tokens_per_step or 0) / 1e6:.3g} M used; Step Law "
        f"{step_law_batch(one.tokens) / 1e6:.3g} M, Power Lines "
        f"{power_lines_batch(one.tokens) / 1e6:.3g} M ({batch(one, 'power_lines'):.2f})",
    )


def _grid() -> Iterator[Figure]:
    found = [step_law_batch(cell.tokens) / cell.tokens_per_step for cell in STEP_LAW_GRID]
    yield _share("Step Law's grid, batch", found, "Step Law's own 17 optima")
    lines = [power_lines_batch(cell.tokens) / cell.tokens_per_step for cell in STEP_LAW_GRID]
    yield _share("Step Law's grid, batch by Power Lines", lines, "17 optima")
    alone = [step_law_lr(cell.params, cell.tokens) / cell.lr for cell in STEP_LAW_GRID]
    yield _share("Step Law's grid, lr without a proxy", alone, "Step Law's own 17 optima")
    yield _share("Step Law's grid, lr carried", grid_pairs(), "272 pairs, by the rules in force")
    swapped = DEFAULT_RULES.model_copy(update={"horizon": "step_law"})
    yield _share(
        "Step Law's grid, lr carried, its own rule of length", grid_pairs(swapped), "272 pairs"
    )


def _share(name: str, ratios: list[float], note: str) -> Figure:
    within = sum(map(hit, ratios)) / len(ratios)
    return Figure(
        name=name,
        value=100 * within,
        unit="% within 2 ×",
        goal="all",
        met=within == 1,
        note=f"{note}: {min(ratios):.2f} to {max(ratios):.2f}, median {median(ratios):.2f}",
    )


def _timescales() -> Iterator[Figure]:
    """AdamW's time scale, where rate, batch and decay are all published."""
    for one in RUNS:
        if one.tokens_per_step is None or not one.name.startswith(DECAY_PUBLISHED):
            continue
        used = timescale(one.config.lr, one.config.weight_decay, one.tokens / one.tokens_per_step)
        per_param = one.tokens / ParameterCount.of(one.config, 1).blocks
        yield _judged(
            f"AdamW's time scale, {one.name}",
            best_timescale(per_param) / used,
            f"{used:.3g} of the run used, weight decay {one.config.weight_decay:g}; "
            f"{per_param:.0f} tokens a parameter",
        )


def _alternatives() -> Iterator[Figure]:
    """How many of the runs' rates each choice of rules has within the factor."""
    for width, depth, horizon in product(WIDTH_RULES, DEPTH_RULES, HORIZON_RULES):
        if width in COVER_DEPTH and depth != DEFAULT_RULES.depth:
            continue
        rules = RuleChoice(width=width, depth=depth, horizon=horizon)
        medians = [median(rates(one, rules)) for one in RUNS]
        yield Figure(
            name=f"lr by {width}, {depth}, {horizon}",
            value=sum(map(hit, medians)),
            unit=f"of {len(RUNS)} within 2 ×",
            note=f"medians {min(medians):.2f} to {max(medians):.2f}"
            + (", in force" if rules == DEFAULT_RULES else ""),
        )


def _plan() -> Figure:
    target = load_target("llama-7b")
    small = STEP_LAW_GRID[0]
    plan = carry(small.config, horizon_steps=small.steps, shape=target, tokens=target.tokens)
    return Figure(
        name="tokens a step of the shipped 7 B target",
        value=plan.tokens_per_step / 1e6,
        unit="M",
        goal="about 1.45 M",
        met=abs(plan.tokens_per_step / 1.45e6 - 1) < 0.05,
        note=f"{target.tokens / 1e9:.0f} B tokens in {plan.steps:,} steps",
    )
