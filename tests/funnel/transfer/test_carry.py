"""Test carrying a recipe to another size, by hand and against published runs."""

from statistics import median
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoresearch.errors import TargetError
from funnel.target.architecture import load_target
from funnel.transfer.carry import Carried, carry
from funnel.transfer.rates import BatchRule, DepthRule, HorizonRule, WidthRule, tokens_a_step
from funnel.transfer.rules import (
    DEFAULT_RULES,
    BestRate,
    DecayRule,
    LadderSupport,
    RuleChoice,
    best_timescale,
    timescale,
)
from tests.support.configs import config
from tests.support.published_runs import RUNS, STEP_LAW_GRID, Cell, PublishedRun
from trainer.spec import Config

TARGET = load_target("llama-7b")
SMALL = config(lr=2e-3, weight_decay=2.0, lr_warmup=20, batch_size=16)
"""Small config whose weight decay matters: its time scale is a quarter of 1,000 steps."""
WIDE = SMALL.model_copy(update={"d_model": 512, "n_head": 16, "d_ff": 2048, "n_layer": 16})

RULES = st.builds(
    RuleChoice,
    width=st.sampled_from(get_args(WidthRule)),
    depth=st.sampled_from(get_args(DepthRule)),
    horizon=st.sampled_from(get_args(HorizonRule)),
    batch=st.sampled_from(get_args(BatchRule)),
    weight_decay=st.sampled_from(get_args(DecayRule)),
)


def at(source: Config, shape: Config, steps: int = 1000, **changed: object) -> Carried:
    keywords = {"tokens": steps * SMALL.tokens_per_step, "tokens_per_step": SMALL.tokens_per_step}
    return carry(source, horizon_steps=1000, shape=shape, **(keywords | changed))  # type: ignore[arg-type]


def block_lr(of: Carried) -> float:
    """Return the rate of the matrices in the blocks."""
    base = of.config.mup_base_width or of.config.d_model
    return of.config.lr * base / of.config.d_model


@given(rules=RULES)
def test_a_recipe_at_its_own_size_and_length_is_itself(rules: RuleChoice) -> None:
    again = at(SMALL, SMALL, rules=rules)
    assert again.config.model_copy(update={"lr": SMALL.lr}) == SMALL.model_copy(
        update={"weight_decay": again.config.weight_decay}
    )
    assert again.config.lr == pytest.approx(SMALL.lr)
    assert again.config.weight_decay == pytest.approx(SMALL.weight_decay)
    assert again.steps == 1000


@given(rules=RULES, steps=st.integers(1001, 10**6))
def test_two_leaps_are_one(rules: RuleChoice, steps: int) -> None:
    """The rates are equal. The decay is equal if it matters throughout."""
    middle = at(SMALL, WIDE.model_copy(update={"d_model": 256, "n_head": 8}), 4000, rules=rules)
    twice = carry(
        middle.config,
        horizon_steps=middle.steps,
        shape=WIDE,
        tokens=steps * SMALL.tokens_per_step,
        tokens_per_step=SMALL.tokens_per_step,
        rules=rules,
    )
    once = at(SMALL, WIDE, steps, rules=rules)
    assert block_lr(twice) == pytest.approx(block_lr(once), rel=1e-9)
    assert twice.config.weight_decay == pytest.approx(once.config.weight_decay, rel=1e-6)


@given(rules=RULES, factor=st.integers(2, 64))
def test_another_batch_re_derives_the_rest(rules: RuleChoice, factor: int) -> None:
    tokens = 10**10
    one = at(SMALL, WIDE, tokens=tokens, rules=rules)
    other = at(
        SMALL, WIDE, tokens=tokens, rules=rules, tokens_per_step=factor * SMALL.tokens_per_step
    )
    assert other.config.batch_size == factor * one.config.batch_size
    assert other.steps == pytest.approx(one.steps / factor, rel=1e-3)
    assert block_lr(other) == pytest.approx(block_lr(one) * factor**0.5)
    assert other.config.lr_warmup / other.steps == pytest.approx(0.02, rel=0.01)
    if rules.weight_decay != "kept":
        scales = [
            timescale(block_lr(each), each.config.weight_decay, each.steps) for each in (one, other)
        ]
        assert scales[0] == pytest.approx(scales[1])


def test_our_own_trainer_is_told_the_base_and_does_the_rest() -> None:
    """If the config states the parametrization, the blocks train at its rate times base / width."""
    assert (RuleChoice().depth, RuleChoice(in_config=True).depth) == ("depth_mup", "complete_p")
    assert RuleChoice(in_config=True, depth="depth_mup").depth == "depth_mup"
    said = at(SMALL, WIDE, 10**5, rules=RuleChoice(in_config=True))
    unsaid = at(SMALL, WIDE, 10**5, rules=RuleChoice(depth="complete_p"))
    assert (said.config.mup_base_width, said.config.mup_base_depth) == (128, 4)
    assert block_lr(said) == pytest.approx(unsaid.config.lr)
    assert (unsaid.config.mup_base_width, unsaid.config.mup_base_depth) == (None, None)
    # Carrying the result further keeps the base.
    on = carry(said.config, horizon_steps=said.steps, shape=WIDE, tokens=10**9,
               tokens_per_step=SMALL.tokens_per_step, rules=RuleChoice(in_config=True))  # fmt: skip
    assert (on.config.mup_base_width, on.config.mup_base_depth) == (128, 4)
    assert on.config.lr < said.config.lr


def test_a_7b_on_161b_tokens_has_what_fits_of_published_runs_say() -> None:
    carried = carry(SMALL, horizon_steps=1000, shape=TARGET, tokens=TARGET.tokens)
    assert carried.tokens_per_step == pytest.approx(1.45e6, rel=0.01)
    assert carried.steps == pytest.approx(110_800, rel=0.01)
    assert carried.base_lr * carried.base_width / TARGET.d_model == pytest.approx(block_lr(carried))
    # A rule of the whole size leaves nothing for depth.
    rules = RuleChoice(width="step_law")
    whole = carry(SMALL, horizon_steps=1000, shape=TARGET, tokens=TARGET.tokens, rules=rules)
    assert "lr, by depth" not in {each.what for each in whole.disagreements}
    assert whole.base_lr == block_lr(whole)


@pytest.mark.parametrize("weight_decay", [0.0, 1e-4])
def test_a_decay_that_the_proxy_cannot_have_felt_is_not_carried(weight_decay: float) -> None:
    source = SMALL.model_copy(update={"weight_decay": weight_decay})
    carried = carry(source, horizon_steps=1000, shape=TARGET, tokens=TARGET.tokens)
    tau = timescale(block_lr(carried), carried.config.weight_decay, carried.steps)
    assert tau == pytest.approx(best_timescale(23.0), rel=0.01)
    (value,) = [each for each in carried.carried if each.name == "weight_decay"]
    assert "is too short to show" in value.rule


def test_every_value_says_what_carried_it_and_what_else_could_have() -> None:
    carried = carry(SMALL, horizon_steps=1000, shape=TARGET, tokens=TARGET.tokens)
    carriable = [name for name in Config.model_fields if not name.startswith("code.")]
    assert [each.name for each in carried.carried] == carriable
    assert all(each.rule for each in carried.carried)
    by_name = {each.what: each for each in carried.disagreements}
    assert set(by_name) >= {"lr, by width", "lr, by depth", "lr, by length", "tokens a step"}
    for what, each in by_name.items():
        assert each.taken in each.values and each.why and each.spread > 1
        if what.startswith("lr, "):
            assert each.values[each.taken] == pytest.approx(block_lr(carried))
    assert by_name["tokens a step"].taken == "step_law"
    assert any("small models' best rates" in note for note in carried.notes)
    assert Carried.model_validate_json(carried.model_dump_json()) == carried


def test_a_ladder_that_contradicts_the_default_changes_the_plan() -> None:
    """The best rates at one width and batch do not change with the tokens."""
    one = BestRate(d_model=128, params=1e6, tokens=1e6, tokens_per_step=2048, lr=2e-3, log_sd=0.1)
    support = LadderSupport(
        best_rates=tuple(one.model_copy(update={"tokens": t}) for t in (1e6, 1e7, 1e8))
    )
    default = carry(SMALL, horizon_steps=1000, shape=TARGET, tokens=TARGET.tokens)
    carried = carry(SMALL, horizon_steps=1000, shape=TARGET, tokens=TARGET.tokens, support=support)
    assert carried.rules.horizon == "none"
    assert block_lr(carried) > 5 * block_lr(default)
    (length,) = [each for each in carried.disagreements if each.what == "lr, by length"]
    assert length.taken == "none" and "the ladder supports" in length.why


@pytest.mark.parametrize("horizon", [1, 20])
def test_a_warmup_that_fills_the_schedule_is_refused(horizon: int) -> None:
    with pytest.raises(TargetError, match=f"warm-up of 20 steps in a schedule of {horizon} "):
        carry(SMALL, horizon_steps=horizon, shape=WIDE, tokens=10**9)


def test_a_batch_below_one_sequence_becomes_one() -> None:
    carried = carry(SMALL, horizon_steps=1000, shape=TARGET, tokens=10**6)
    assert (carried.config.batch_size, carried.tokens_per_step) == (1, 8192)
    assert carried.steps == 123


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
