import math
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import islice
from random import Random
from statistics import fmean
from typing import Any

import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from agent.menu.files import ProxyMenu, parse_menu
from agent.menu.rails import Rails
from agent.proposers.base import Proposer, ProposerError, SearchView
from agent.proposers.draws import RandomProposer, uniform_draws
from agent.proposers.sampler import (
    LEAST_SHARE,
    STARTUP,
    SamplerProposer,
    far_and_near,
    far_share,
)
from agent.proposers.surrogate.gaussian_process import GaussianProcess
from agent.proposers.surrogate.observed import Observed
from agent.proposers.surrogate.promise import Promise
from autoresearch.errors import SpecError
from autoresearch.values import Scalar
from tests.support.memories import MENU, RAILS, constants, fresh_memory, memory_of, remember
from tests.support.programs import finished
from tests.support.rows import failed as failed_trial
from tests.support.searches import HERE, prior_of
from trainer.schema import Budget
from trajectory.proposals import ModelIdea
from trajectory.rows import Rules

WHOLE = Rails(MENU, budget=Budget())


def changes(proposer: Proposer, view: SearchView) -> dict[str, Scalar]:
    found: dict[str, Scalar] = proposer.propose(view).reply.changes
    return found


def reason(proposer: Proposer, view: SearchView) -> str:
    return str(proposer.propose(view).reply.reason)


@pytest.mark.slow
def test_another_process_offers_the_same() -> None:
    script = (
        "from tests.support.memories import *\n"
        "from agent.proposers.sampler import SamplerProposer\n"
        "print(SamplerProposer(RAILS).propose(memory_of(40)).reply, end='')"
    )
    other = finished(sys.executable, "-c", script)
    assert other.stdout == str(SamplerProposer(RAILS).propose(memory_of(40)).reply)


def test_chance_rules_until_enough_is_measured() -> None:
    sampler = SamplerProposer(RAILS, chance=0.0)
    assert "1 measured configs, of 8 to start a model with" in reason(sampler, fresh_memory())
    view = memory_of(STARTUP - 1, failing=0)
    assert re.match(rf"most promising of \d+ by {STARTUP} measured", reason(sampler, view))
    assert "drawn uniformly" in reason(sampler, memory_of(30, failing=1))


def test_its_arithmetic_uses_one_thread_and_resets_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def threads() -> list[int]:
        return [one["num_threads"] for one in threadpool_info() if one["user_api"] == "blas"]

    seen: list[list[int]] = []
    whole = GaussianProcess.fit

    def fit(*told: Any) -> GaussianProcess:
        seen.append(threads())
        return whole(*told)

    monkeypatch.setattr(GaussianProcess, "fit", fit)
    with threadpool_limits(limits=2, user_api="blas"):
        SamplerProposer(RAILS, chance=0.0).propose(memory_of(20))
        assert set(threads()) == {2}
    assert [set(found) for found in seen] == [{1}]


@pytest.mark.slow
@pytest.mark.parametrize("most", [2, 7, len(MENU.knobs)])
def test_near_and_far_edits_reach_every_knob_within_the_limit(most: int) -> None:
    sampler = SamplerProposer(Rails(MENU, budget=Budget(), max_changes=most))
    view = replace(memory_of(40), max_changes=most)
    found = [changes(sampler, replace(view, iter=n)) for n in range(41, 161)]
    sizes = [len(one) for one in found]
    assert {name for one in found for name in one} == set(MENU.knobs)
    assert (1 in sizes, max(sizes) <= most, max(sizes) >= min(most, 9)) == (True, True, True)
    assert sum(size > 3 for size in sizes) > (20 if most > 3 else -1)


def far_and_near_memory(
    iterations: int, sizes: Sequence[int], level: Callable[[int], float | None]
) -> SearchView:
    """Return a memory of random edits of these numbers of knobs in turn, whose scores depend on
    that number; None: the config fails."""
    view, rng = replace(fresh_memory(), max_changes=len(MENU.knobs)), Random(0)
    while view.iter <= iterations:
        names = rng.sample(list(MENU.knobs), sizes[view.iter % len(sizes)])
        edit = {name: MENU.domains[name].draw(rng) for name in names}
        score = level(len(edit))
        try:
            noisy = None if score is None else score + rng.gauss(0, 0.05)
            view = remember(view, edit, noisy)
        except SpecError:
            continue
    return view


def test_far_draws_are_as_many_as_they_are_worth() -> None:
    """The share is half before any result, hardly any when all far draws are bad or fail, and most
    when all of them are better."""
    assert far_share(fresh_memory()) == 0.5
    for off, expected in ((2.0, (LEAST_SHARE, 0.15)), (-0.3, (0.6, 0.9))):
        view = far_and_near_memory(40, (9, 2), lambda size, off=off: 4.0 + off * (size > 3))
        assert expected[0] <= far_share(view) <= expected[1]
    view = far_and_near_memory(40, (9, 2), lambda size: 3.9 if size <= 3 else None)
    assert far_share(view) <= 0.1


def test_what_a_model_makes_of_the_reference_is_no_far_draw() -> None:
    """The model changes five knobs of sixteen and scores level with the reference."""
    view = far_and_near_memory(60, (2, 5, 12), lambda size: 4.5 if size > 8 else 4.0)
    far, near = far_and_near(view)
    assert max(len(far), len(near)) <= 20
    assert min(far) > 0.2


@pytest.mark.parametrize(("moves", "above"), [(True, 0.2), (False, -0.2)])
def test_a_later_config_is_compared_with_its_own_reference(moves: bool, above: float) -> None:
    """Results are compared with the last kept config, or with the baseline if races are."""
    view = fresh_memory()
    start = view.evidence.configs[MENU.baseline.config_hash].mean
    view = remember(view, {"lr": 5e-3}, start - 0.4)
    kept = list(view.evidence.configs.values())[-1]
    kept.action = "keep"
    view = remember(view, {"lr": 4e-3}, start - 0.2)
    view.evidence.incumbent_hash = kept.config_hash
    if moves:
        view = replace(view, reference=kept.config)
    assert far_and_near(view) == ([], pytest.approx([-0.4, above]))


def test_a_models_idea_is_tried_only_if_it_is_about_as_promising_as_the_searchs_own() -> None:
    sampler = SamplerProposer(WHOLE, chance=0.0)
    view = replace(memory_of(40), max_changes=len(MENU.knobs))
    promise = Promise.of(view, Observed.of(view.evidence))
    best = changes(sampler, replace(view, iter=41))
    draws = [one.changes for one in islice(uniform_draws(Random(0), view, ""), 60)]
    worth = promise.worth([best, *draws], promise.best_bar - promise.provable).tolist()
    least = draws[worth.index(min(worth)) - 1]
    assert min(worth) < 0.1 * worth[0]
    for idea, kind in ((best, "llm"), (least, "sampler")):
        evidence = view.evidence.snapshot()
        evidence.ideas = (ModelIdea(changes=idea, reason="a larger rate", model="tiny"),)
        offer = sampler.propose(replace(view, evidence=evidence, iter=42))
        assert offer.record.kind == kind
        assert (offer.record.model == "tiny") == (offer.reply.changes == idea)


@pytest.mark.slow
def test_the_model_looks_for_gains_that_a_race_could_prove() -> None:
    """With a margin the model prefers uncertain configs: one surely level with the best is not
    worth a run."""
    view = replace(memory_of(60), max_changes=len(MENU.knobs), rules=Rules())
    promise = Promise.of(view, Observed.of(view.evidence))
    assert promise.provable > 0
    assert Promise.of(replace(view, rules=None), Observed.of(view.evidence)).provable == 0

    def doubt(margin: float) -> float:
        sampler = SamplerProposer(WHOLE, chance=0.0, margin=margin)
        picks = [changes(sampler, replace(view, iter=n)) for n in range(61, 81)]
        return fmean(promise.scores.predict(promise.space.edited(promise.now, picks))[1].tolist())

    assert doubt(0.0) < doubt(1.0) < doubt(4.0)


@pytest.mark.slow
def test_it_learns_where_the_good_values_are() -> None:
    rng, view = Random(0), fresh_memory()
    while view.iter <= 60:
        rate = float(MENU.domains["lr"].draw(rng))
        score = 3.7 + 0.3 * abs(math.log10(rate / 6e-3)) + rng.gauss(0, 0.02)
        view = remember(view, {"lr": rate, "lr_warmup": rng.randint(0, 30)}, score)

    def off(proposer: Proposer) -> float:
        found = [changes(proposer, replace(view, iter=n)) for n in range(61, 181)]
        rates = [float(one["lr"]) for one in found if "lr" in one]
        return fmean(abs(math.log10(rate / 6e-3)) for rate in rates)

    assert off(SamplerProposer(RAILS, chance=0.0)) < 0.5 * off(RandomProposer(RAILS))


@pytest.mark.parametrize("kind", [SamplerProposer, RandomProposer])
def test_what_is_being_raced_meanwhile_is_not_offered_again(
    kind: type[SamplerProposer | RandomProposer],
) -> None:
    proposer, view = kind(RAILS), memory_of(30)
    for _ in range(16):
        config = MENU.apply(view.reference, changes(proposer, view))
        assert config not in view.pending
        view = replace(view, pending=(*view.pending, config))


TWO_WAYS = {
    "norm": '"choice", choices = ["layernorm", "rmsnorm"], default = "layernorm"',
    "activation": '"choice", choices = ["gelu", "swiglu"], default = "gelu"',
    "positions": '"choice", choices = ["learned", "rotary"], default = "learned"',
    "tie_embeddings": '"choice", choices = [true, false], default = true',
    "n_layer": '"int", choices = [4, 2], default = 4',
}


def small_menu(knobs: int) -> ProxyMenu:
    """Return a menu of this many knobs with two values each, in any combination."""
    names = list(TWO_WAYS)[:knobs]
    lines = [f"knobs.{name} = {{ type = {TWO_WAYS[name]} }}" for name in names]
    return parse_menu("\n".join(['name = "small"', *lines, constants(*names)]), "small")


@pytest.mark.parametrize(("kind", "knobs"), [(SamplerProposer, 5), (RandomProposer, 3)])
def test_the_configs_of_a_small_menu_are_found_and_then_it_says_so(
    kind: type[SamplerProposer | RandomProposer], knobs: int
) -> None:
    """The search is exhaustive even when far configs score badly and only far ones remain."""
    menu = small_menu(knobs)
    proposer = kind(Rails(menu, budget=Budget()))
    view = replace(fresh_memory(menu), max_changes=knobs)
    with pytest.raises(ProposerError):
        while True:
            found = changes(proposer, view)
            view = remember(view, found, 3.9 + 0.1 * len(found))
    assert len(view.evidence.configs) >= 0.95 * 2**knobs


@pytest.mark.slow
def test_it_goes_on_where_the_reference_failed_on_a_seed_and_nothing_else_was_measured() -> None:
    view = replace(fresh_memory(), priors=(prior_of(HERE),), max_changes=len(MENU.knobs))
    own = view.evidence.configs[MENU.baseline.config_hash]
    own.failures.extend([failed_trial()] * 6)
    view = remember(view, {"lr": 0.02}, None)
    for iteration in range(2, 12):
        reply = SamplerProposer(WHOLE, chance=0.0).propose(replace(view, iter=iteration)).reply
        assert WHOLE.check(reply, view.reference, view.evidence.configs).verdict.allowed
