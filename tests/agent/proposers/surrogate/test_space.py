"""Test menus as coordinates, and the positions of values in a domain."""

from __future__ import annotations

import math
from collections.abc import Mapping
from random import Random
from statistics import median

import numpy as np
import pytest

from agent.proposers.surrogate.space import Space, anywhere, is_ordered, near, share, shares
from autoresearch.domains.choices import Ladder
from autoresearch.domains.ranges import RealRange, WholeRange
from autoresearch.values import Scalar
from tests.support.memories import MENU

SPACE = Space.of(MENU.domains)
BASELINE: Mapping[str, Scalar] = MENU.defaults


def apart(name: str, one: Scalar, other: Scalar) -> float:
    points_NP = SPACE.points([{**BASELINE, name: one}, {**BASELINE, name: other}])
    return float(np.linalg.norm(points_NP[0] - points_NP[1]))


def test_the_ends_of_a_scale_and_two_words_are_as_far_apart() -> None:
    assert apart("lr", 1e-4, 3e-2) == pytest.approx(1)
    assert apart("activation", "gelu", "swiglu") == pytest.approx(1)
    assert apart("tie_embeddings", True, False) == pytest.approx(1)
    assert apart("lr", 1e-3, 1e-3) == 0


def test_a_log_scale_and_a_ladder_are_reckoned_in_their_own_steps() -> None:
    assert apart("lr", 1e-3, 2e-3) == pytest.approx(apart("lr", 1e-2, 2e-2))
    assert apart("batch_size", 4, 8) == pytest.approx(apart("batch_size", 16, 32))


def test_each_knob_has_coordinates_of_its_own() -> None:
    widths = np.bincount(SPACE.knobs)
    assert len(widths) == len(MENU.knobs)
    assert dict(zip(MENU.knobs, widths, strict=True))["norm"] == 2
    assert sum(widths) == len(MENU.knobs) + 4  # four choices between two words


def test_an_edited_config_lies_where_the_whole_one_does() -> None:
    edit: dict[str, Scalar] = {"lr": 4e-3, "norm": "rmsnorm", "batch_size": 16}
    whole = SPACE.points([{**BASELINE, **edit}])
    assert np.array_equal(SPACE.edited(BASELINE, [edit]), whole)
    assert not np.array_equal(SPACE.edited(BASELINE, [{}]), whole)
    elsewhere = SPACE.edited(BASELINE, [{"code.activation": "return x"}])
    assert np.array_equal(elsewhere, SPACE.edited(BASELINE, [{}]))


def test_what_is_outside_the_menu_is_outside_the_space() -> None:
    assert SPACE.contains(BASELINE)
    assert not SPACE.contains({**BASELINE, "lr": 1.0})
    assert not SPACE.contains({**BASELINE, "lr": math.nan})


def test_many_places_are_the_places_of_each() -> None:
    rng = Random(0)
    for domain in (one for one in MENU.domains.values() if is_ordered(one)):
        values = [*domain.ends, *(anywhere(domain, rng) for _ in range(50))]
        found = shares(domain, values).tolist()
        assert found == pytest.approx([share(domain, value) for value in values], abs=1e-12)
        assert 0 <= min(found) < max(found) <= 1


def test_what_lies_outside_is_at_the_end() -> None:
    domain = RealRange(low=0.1, high=10, scale="log")
    assert shares(domain, [0.01, 1.0, 1000.0]).tolist() == pytest.approx([0, 0.5, 1])
    assert shares(RealRange(low=2, high=2), [2.0, 3.0]).tolist() == [0, 0]


def test_what_is_near_is_a_value_as_it_is_proposed() -> None:
    rng = Random(1)
    for domain in MENU.domains.values():
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
