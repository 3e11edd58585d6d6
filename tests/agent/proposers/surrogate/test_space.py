"""Test menus as coordinates."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import pytest

from agent.proposers.surrogate.space import Space
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


def test_what_is_outside_the_menu_is_outside_the_space() -> None:
    assert SPACE.contains(BASELINE)
    assert not SPACE.contains({**BASELINE, "lr": 1.0})
    assert not SPACE.contains({**BASELINE, "lr": math.nan})


def test_a_knob_outside_the_space_does_not_move_a_point() -> None:
    edited = SPACE.edited(BASELINE, [{"code.activation": "return x"}])
    assert np.array_equal(edited, SPACE.edited(BASELINE, [{}]))
