"""Test carrying a recipe to another size, by hand and against published runs."""

import math
from statistics import median

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoresearch.errors import TargetError
from funnel.targets.architecture import load_target
from funnel.transfer.carry import Carried, carry
from funnel.transfer.rules import WidthRule, batches, best_timescale, timescale
from tests.support.configs import config
from tests.support.published_runs import RUNS, STEP_LAW_GRID, Cell, PublishedRun
from trainer.schema import Config

TARGET = load_target("llama-7b")
SMALL = config(lr=2e-3, weight_decay=2.0, lr_warmup=20, batch_size=16)
"""Small config whose weight decay matters: its time scale is a quarter of 1,000 steps."""
WIDE = SMALL.model_copy(update={"d_model": 512, "n_head": 16, "d_ff": 2048, "n_layer": 16})

RULES = st.sampled_from(["mup", "sqrt_width"])


def at(source: Config, shape: Config, steps: int = 1000, **changed: object) -> Carried:
    keywords = {"tokens": steps * SMALL.tokens_per_step, "tokens_per_step": SMALL.tokens_per_step}
    return carry(source, horizon_steps=1000, shape=shape, **(keywords | changed))  # type: ignore[arg-type]


@given(rule=RULES)
def test_a_recipe_at_its_own_size_and_length_is_itself(rule: WidthRule) -> None:
    again = at(SMALL, SMALL, lr_rule=rule)
    assert again.config.model_copy(update={"lr": SMALL.lr}) == SMALL.model_copy(
        update={"weight_decay": again.config.weight_decay}
    )
    assert again.config.lr == pytest.approx(SMALL.lr)
    assert again.config.weight_decay == pytest.approx(SMALL.weight_decay)
    assert again.steps == 1000


@given(rule=RULES, steps=st.integers(1001, 10**6))
def test_two_leaps_are_one(rule: WidthRule, steps: int) -> None:
    """The rates are equal. The decay is equal if it matters throughout."""
    middle = at(SMALL, WIDE.model_copy(update={"d_model": 256, "n_head": 8}), 4000, lr_rule=rule)
    twice = carry(
        middle.config,
        horizon_steps=middle.steps,
        shape=WIDE,
        tokens=steps * SMALL.tokens_per_step,
        tokens_per_step=SMALL.tokens_per_step,
        lr_rule=rule,
    )
    once = at(SMALL, WIDE, steps, lr_rule=rule)
    assert twice.config.lr == pytest.approx(once.config.lr, rel=1e-9)
    assert twice.config.weight_decay == pytest.approx(once.config.weight_decay, rel=1e-6)


@given(rule=RULES, factor=st.integers(2, 64))
def test_another_batch_re_derives_the_rest(rule: WidthRule, factor: int) -> None:
    tokens = 10**10
    one = at(SMALL, WIDE, tokens=tokens, lr_rule=rule)
    other = at(
        SMALL, WIDE, tokens=tokens, lr_rule=rule, tokens_per_step=factor * SMALL.tokens_per_step
    )
    assert other.config.batch_size == factor * one.config.batch_size
    assert other.steps == pytest.approx(one.steps / factor, rel=1e-3)
    assert other.config.lr == pytest.approx(one.config.lr * factor**0.5)
    assert other.config.lr_warmup / other.steps == pytest.approx(0.02, rel=0.01)
    scales = [timescale(c.config.lr, c.config.weight_decay, c.steps) for c in (one, other)]
    assert scales[0] == pytest.approx(scales[1])


def test_the_factors_of_width_and_depth_are_the_published_ones() -> None:
    """Adam's rate of a hidden matrix is proportional to 1 / fan_in (table 8). EleutherAI's
    nanoGPT-mup scales rates with depth by m^(alpha - 1), with alpha 1 or 1/2."""
    by_name = {each.what: each.values for each in at(SMALL, WIDE).disagreements}
    width, depth = by_name["lr, by width"], by_name["lr, by depth"]
    assert width["mup"] == pytest.approx(width["sqrt_width"] / math.sqrt(4))
    assert depth["depth_mup"] == pytest.approx(depth["complete_p"] / math.sqrt(4))
    assert depth["complete_p"] == pytest.approx(SMALL.lr / 4)


def test_a_7b_on_161b_tokens_has_what_fits_of_published_runs_say() -> None:
    carried = carry(SMALL, horizon_steps=1000, shape=TARGET, tokens=TARGET.tokens)
    assert carried.tokens_per_step == pytest.approx(1.45e6, rel=0.01)
    assert carried.steps == pytest.approx(110_800, rel=0.01)
    assert carried.base_lr * carried.base_width / TARGET.d_model == pytest.approx(carried.config.lr)


def test_muon_s_rate_follows_the_root_of_the_width_and_its_decay_its_own_rate() -> None:
    muon = SMALL.model_copy(update={"optimizer": "muon", "mup_base_width": 32})
    wide = WIDE.model_copy(update={"n_layer": SMALL.n_layer})
    carried = at(muon, wide, lr_rule="sqrt_width")
    # from the rate at the source's own width, 128, which is half of that at 32
    assert carried.config.lr == pytest.approx(SMALL.lr / 2 / 2)
    plain, fourfold = (
        at(one.model_copy(update={"weight_decay": 1e-4}), SMALL, lr_rule="sqrt_width")
        for one in (muon, muon.model_copy(update={"muon_lr_ratio": 4.0}))
    )
    assert fourfold.config.weight_decay == pytest.approx(plain.config.weight_decay / 4)


@pytest.mark.parametrize("weight_decay", [0.0, 1e-4])
def test_a_decay_that_the_proxy_cannot_have_felt_is_not_carried(weight_decay: float) -> None:
    source = SMALL.model_copy(update={"weight_decay": weight_decay})
    carried = carry(source, horizon_steps=1000, shape=TARGET, tokens=TARGET.tokens)
    tau = timescale(carried.config.lr, carried.config.weight_decay, carried.steps)
    assert tau == pytest.approx(best_timescale(23.0), rel=0.01)


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
            assert each.values[each.taken] == pytest.approx(carried.config.lr)
    assert by_name["tokens a step"].taken == "step_law"
    # Ma and Yarats: 2 / (1 - beta2) steps.
    assert by_name["lr_warmup"].values["untuned"] == math.ceil(2 / (1 - SMALL.beta2))
    assert any("small models' best rates" in note for note in carried.notes)
    assert Carried.model_validate_json(carried.model_dump_json()) == carried


@pytest.mark.parametrize("horizon", [1, 20])
def test_a_warmup_that_fills_the_schedule_is_refused(horizon: int) -> None:
    with pytest.raises(TargetError, match=f"warm-up of 20 steps in a schedule of {horizon} "):
        carry(SMALL, horizon_steps=horizon, shape=WIDE, tokens=10**9)


@given(
    warmup=st.integers(0, 900), horizon=st.integers(901, 100_000), tokens=st.integers(10**8, 10**13)
)
def test_tokens_are_covered_and_warm_up_is_a_share(warmup: int, horizon: int, tokens: int) -> None:
    source = SMALL.model_copy(update={"lr_warmup": warmup})
    carried = carry(source, horizon_steps=horizon, shape=TARGET, tokens=tokens)
    assert carried.tokens_per_step == carried.config.tokens_per_step
    assert carried.steps == -(-tokens // carried.tokens_per_step)
    share = carried.config.lr_warmup / carried.steps
    assert share == pytest.approx(warmup / horizon, abs=1 / carried.steps)


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
    cell: Cell, shape: Config, tokens: int, rule: str = "delphi", batch: int | None = None
) -> float:
    """Return the rate of one small run as a rule of the length carries it to a large one."""
    plan = carry(
        cell.config, horizon_steps=cell.steps, shape=shape, tokens=tokens, tokens_per_step=batch
    )
    by_length = {each.what: each.values for each in plan.disagreements}.get("lr, by length")
    return by_length[rule] if by_length else plan.config.lr


def rate(run: PublishedRun, rule: str = "delphi") -> float:
    """Return the median ratio of the rate carried from Step Law's grid to the published rate."""
    return median(
        carried(cell, run.config, run.tokens, rule) / run.config.lr for cell in STEP_LAW_GRID
    )


@pytest.mark.parametrize("run", NAMED)
def test_the_rate_is_within_twice_the_one_used(run: PublishedRun) -> None:
    assert hit(rate(run)) == (run.name not in MISSED_RATES)


@pytest.mark.parametrize("run", [p for p in NAMED if p.values[0].tokens_per_step])  # type: ignore[union-attr]
def test_the_batch_is_within_twice_the_one_used(run: PublishedRun) -> None:
    assert run.tokens_per_step is not None
    tokens = batches(run.tokens, run.tokens_per_step)["step_law"]
    assert hit(tokens / run.tokens_per_step) == (run.name not in MISSED_BATCHES)


def test_the_rules_in_force_are_not_beaten_by_a_factor_of_two_of_any_other_length() -> None:
    """Published runs distinguish the rule of length. Without it, or with a law of the tokens that
    assumes another batch, most runs are missed."""
    hits = {}
    for horizon in ("delphi", "none", "step_law", "complete_d"):
        hits[horizon] = sum(hit(rate(run, horizon)) for run in RUNS)
    assert hits["delphi"] == len(RUNS) - len(MISSED_RATES)
    assert max(hits["none"], hits["step_law"], hits["complete_d"]) <= 3


def test_the_grids_own_optima_are_mostly_carried_from_each_other() -> None:
    """When this was written, 82% of the 272 pairs at the best batches were within a factor of
    two."""
    ratios = [
        carried(small, large.config, round(large.tokens), batch=large.tokens_per_step) / large.lr
        for small in STEP_LAW_GRID
        for large in STEP_LAW_GRID
        if small is not large
    ]
    assert len(ratios) == 272
    assert sum(map(hit, ratios)) / len(ratios) >= 0.75
