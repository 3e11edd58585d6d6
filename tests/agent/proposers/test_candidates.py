import math
from collections.abc import Callable
from dataclasses import replace
from random import Random
from statistics import fmean

import numpy as np
import pytest

from agent.menu.rails import Rails
from agent.proposers.base import SearchView
from agent.proposers.draws import Draw, Edit, Edits, first_allowed, gate
from agent.proposers.sampler import CHECKED, climbed, crossed, drawn
from agent.proposers.surrogate.observed import Observed
from agent.proposers.surrogate.promise import Promise
from agent.proposers.surrogate.space import Floats
from tests.support.memories import MENU, fresh_memory, remember
from trainer.schema import Budget, Config, gpt

RAILS = Rails(MENU, budget=Budget())
KNOBS = len(MENU.knobs)


def width(config: Config) -> float:
    """Return a score that favors more weights only, which the menu's constraints oppose."""
    return 3.0 - 0.3 * math.log(config.n_layer * config.d_model**2 / 1e6)


def rate(config: Config) -> float:
    """Return a score that depends on the learning rate and beta2 only."""
    rate, beta2 = math.log10(config.lr / 8e-3), math.log10((1 - config.beta2) / 0.02)
    return 3.5 + abs(rate) + abs(beta2)


def told(score: Callable[[Config], float], iterations: int = 60) -> SearchView:
    """Return a memory of random near and far edits that pass the rails, with their scores."""
    rng, view = Random(0), replace(fresh_memory(), max_changes=KNOBS)
    while view.iter <= iterations:
        edits = Edits.of(view)
        every = (Draw(edits.small(rng) if n % 2 else edits.whole(rng), "") for n in range(5000))
        draw = first_allowed(RAILS, view, every, 5000)
        assert draw is not None
        config = gpt(MENU.apply(view.reference, draw.changes))
        view = remember(view, draw.changes, score(config) + rng.gauss(0, 0.01))
    return view


WIDTH, RATE = told(width), told(rate)


def promise_of(view: SearchView) -> Promise:
    return Promise.of(view, Observed.of(view.evidence))


def allowed_in(view: SearchView) -> Callable[[Edit], bool]:
    passes = gate(RAILS, view)
    return lambda edit: passes(Draw(edit, "because"))


@pytest.mark.parametrize("view", [WIDTH, pytest.param(RATE, marks=pytest.mark.slow)])
def test_a_climb_ends_higher_than_the_draws_it_began_with(view: SearchView) -> None:
    """Only allowed configs count: where more weights score better, the climb leaves the menu."""
    promise, edits, allowed = promise_of(view), Edits.of(view), allowed_in(view)

    def best(found: list[Edit], worth_M: Floats) -> float:
        places = np.argsort(-worth_M, kind="stable").tolist()
        return float(next(worth_M[place] for place in places if allowed(found[place])))

    better = []
    for seed in range(12):
        draws = drawn(Random(seed), edits, promise)
        climbing = climbed(Random(seed), edits, promise, promise.best_bar, allowed)
        better.append(best(*climbing) / best(draws, promise.worth(draws, promise.best_bar)))
    assert fmean(better) > 1.1


@pytest.mark.slow
def test_where_the_way_up_leads_out_of_the_menu_what_is_allowed_is_among_the_first() -> None:
    """A climb that ignores the rails ranks up to hundreds of refused configs first."""
    view = told(width, 100)
    promise, edits, allowed = promise_of(view), Edits.of(view), allowed_in(view)
    first: dict[bool, list[int]] = {True: [], False: []}
    for seed in range(12):
        for heeded, leads in ((True, allowed), (False, bool)):
            found, worth_M = climbed(Random(seed), edits, promise, promise.best_bar, leads)
            best = np.argsort(-worth_M, kind="stable").tolist()
            passes = (allowed(found[place]) for place in best)
            first[heeded].append(next(number for number, one in enumerate(passes) if one))
    assert max(first[True]) < CHECKED
    assert 5 * fmean(first[True]) < fmean(first[False])


@pytest.mark.parametrize("most", [1, 3, KNOBS])
def test_every_candidate_is_an_edit_within_the_menu_and_there_once(most: int) -> None:
    view = replace(RATE, max_changes=most)
    promise, edits = promise_of(view), Edits.of(view)
    found, worth_M = climbed(Random(1), edits, promise, promise.best_bar, allowed_in(view))
    assert len(found) == len(worth_M) == len({frozenset(edit.items()) for edit in found})
    assert len(climbed(Random(1), edits, promise, promise.best_bar, lambda _: False)[0]) > 100
    for edit in found:
        assert 1 <= len(edit) <= most
        for name, value in edit.items():
            assert MENU.domains[name].contains(value)
            assert value != MENU.defaults[name]
    assert {name for edit in found for name in edit} == set(MENU.knobs)
    assert len(found) > len(drawn(Random(1), edits, promise)) + (100 if most == KNOBS else 10)


def test_a_crossing_has_each_knob_of_one_of_its_parents() -> None:
    promise = promise_of(RATE)
    parents = [promise.now, *promise.elites]
    found = crossed(Random(2), Edits.of(RATE), promise)
    assert len(found) > 50
    for edit in found:
        there = {**promise.now, **edit}
        assert any(
            all(there[name] in (one[name], other[name]) for name in there)
            for one in parents
            for other in parents
        )
