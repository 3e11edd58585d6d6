"""Edits to choose among."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from agent.proposers.surrogate.scales import share
from bench.searches.neighbours import Neighbourhood
from tests.support.memories import MENU, fresh_memory

MEMORY = fresh_memory()
AROUND = Neighbourhood.of(MEMORY)
ELITE = MENU.defaults | {"lr": 4e-3, "norm": "rmsnorm", "d_ff": 1024, "beta2": 0.99}


def test_every_edit_changes_something_within_the_menu_and_no_more_than_allowed() -> None:
    for most in (1, 3):
        around = Neighbourhood.of(replace(MEMORY, max_changes=most))
        edits = around.drawn(Random(1), [ELITE], 300)
        edits += [around.varied(Random(n), edit) for n, edit in enumerate(edits)]
        for edit in filter(None, edits):
            assert len(edit) <= most
            for name, value in edit.items():
                assert MENU.domains[name].contains(value)
                assert value != MENU.defaults[name]


def test_no_edit_is_there_twice_and_every_knob_is_turned() -> None:
    edits = AROUND.drawn(Random(1), [ELITE], 400)
    assert len({tuple(sorted(edit.items())) for edit in edits}) == len(edits) > 200
    assert {name for edit in edits for name in edit} == set(MENU.knobs)


def test_towards_an_elite_takes_its_values() -> None:
    rng, taken = Random(3), 0
    for _ in range(100):
        edit = AROUND.towards(rng, ELITE)
        taken += any(edit.get(name) == ELITE[name] for name in ("lr", "norm", "d_ff", "beta2"))
    assert taken >= 95
    assert AROUND.towards(rng, MENU.defaults) == {}


def test_steps_are_small() -> None:
    rng, domain = Random(2), MENU.domains["lr"]
    moves = [AROUND.by_steps(rng).get("lr") for _ in range(600)]
    shares = [abs(share(domain, move) - share(domain, 1e-3)) for move in moves if move is not None]
    assert len(shares) > 30
    assert sorted(shares)[len(shares) // 2] < 0.1


@pytest.mark.parametrize("name", list(MENU.knobs))
def test_any_knob_can_be_varied(name: str) -> None:
    value = MENU.domains[name].ends[-1]
    found = [AROUND.varied(Random(seed), {name: value}) for seed in range(40)]
    assert len({tuple(edit.items()) for edit in found}) > 10
    assert any(name not in edit for edit in found)
