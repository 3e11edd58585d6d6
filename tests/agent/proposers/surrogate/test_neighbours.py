"""Edits to choose among."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from agent.proposers.surrogate.neighbours import by_steps, neighbours, towards, varied
from tests.support.memories import MENU, fresh_memory

MEMORY = fresh_memory()
ELITE = MENU.defaults | {"lr": 4e-3, "norm": "rmsnorm", "d_ff": 1024, "beta2": 0.99}


def test_every_edit_changes_something_within_the_menu_and_no_more_than_allowed() -> None:
    for most in (1, 3):
        memory = replace(MEMORY, max_changes=most)
        edits = neighbours(Random(1), memory, [ELITE], 300)
        edits += [varied(Random(n), memory, edit) for n, edit in enumerate(edits)]
        for edit in filter(None, edits):
            assert len(edit) <= most
            for name, value in edit.items():
                assert MENU.domains[name].contains(value)
                assert value != MENU.defaults[name]


def test_no_edit_is_there_twice_and_every_knob_is_turned() -> None:
    edits = neighbours(Random(1), MEMORY, [ELITE], 400)
    assert len({tuple(sorted(edit.items())) for edit in edits}) == len(edits) > 250
    assert {name for edit in edits for name in edit} == set(MENU.knobs)


def test_towards_an_elite_takes_its_values() -> None:
    rng, taken = Random(3), 0
    for _ in range(100):
        edit = towards(rng, MEMORY, ELITE)
        taken += any(edit.get(name) == ELITE[name] for name in ("lr", "norm", "d_ff", "beta2"))
    assert taken >= 95
    assert towards(rng, MEMORY, MENU.defaults) == {}


def test_steps_are_small() -> None:
    rng, domain = Random(2), MENU.domains["lr"]
    moves = [by_steps(rng, MEMORY).get("lr") for _ in range(600)]
    shares = [abs(domain.share(move) - domain.share(1e-3)) for move in moves if move is not None]
    assert len(shares) > 30
    assert sorted(shares)[len(shares) // 2] < 0.1


@pytest.mark.parametrize("name", list(MENU.knobs))
def test_any_knob_can_be_varied(name: str) -> None:
    domain = MENU.domains[name]
    value = domain.ends[-1]
    found = [varied(Random(seed), MEMORY, {name: value}) for seed in range(40)]
    assert any(edit.get(name) not in (None, value) for edit in found) or not domain.ORDERED
    assert any(name not in edit for edit in found)
