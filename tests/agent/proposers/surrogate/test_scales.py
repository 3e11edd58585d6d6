"""Test the positions of values in a domain."""

from __future__ import annotations

from random import Random
from statistics import median

import pytest

from agent.proposers.surrogate.space import anywhere, is_ordered, near, share, shares
from autoresearch.domains.choices import Ladder
from autoresearch.domains.ranges import RealRange, WholeRange
from tests.support.memories import MENU

ORDERED = [name for name, domain in MENU.domains.items() if is_ordered(domain)]


@pytest.mark.parametrize("name", ORDERED)
def test_many_places_are_the_places_of_each(name: str) -> None:
    domain, rng = MENU.domains[name], Random(0)
    values = [*domain.ends, *(anywhere(domain, rng) for _ in range(50))]
    found = shares(domain, values).tolist()
    assert found == pytest.approx([share(domain, value) for value in values], abs=1e-12)
    assert 0 <= min(found) < max(found) <= 1


def test_what_lies_outside_is_at_the_end() -> None:
    domain = RealRange(low=0.1, high=10, scale="log")
    assert shares(domain, [0.01, 1.0, 1000.0]).tolist() == pytest.approx([0, 0.5, 1])
    assert shares(RealRange(low=2, high=2), [2.0, 3.0]).tolist() == [0, 0]


@pytest.mark.parametrize("name", list(MENU.knobs))
def test_what_is_near_is_a_value_as_it_is_proposed(name: str) -> None:
    domain, rng = MENU.domains[name], Random(1)
    for end in domain.ends:
        for reach in (0.0, 0.1, 3.0):
            value = near(domain, end, reach, rng)
            assert domain.contains(value)
            assert value == domain.normal(domain.rounded(value))


def test_near_is_as_near_as_it_says() -> None:
    rng, domain = Random(2), RealRange(low=1e-4, high=1e-1, scale="log")
    middle = domain.at(0.5)
    moves = [abs(share(domain, near(domain, middle, 0.1, rng)) - 0.5) for _ in range(999)]
    assert 0.055 < median(moves) < 0.08  # 0.67 standard deviations


@pytest.mark.parametrize(
    "domain",
    [WholeRange(low=0, high=400, step=100), Ladder(type="int", choices=(2, 4, 8, 16, 32))],
)
def test_where_values_are_counted_the_next_one_is_within_reach(
    domain: WholeRange | Ladder,
) -> None:
    rng = Random(3)
    middle = domain.at(0.5)
    found = [near(domain, middle, 0.001, rng) for _ in range(300)]
    assert len(set(found)) >= 3
    assert found.count(middle) > 60
