"""What carrying a few of the best to a long run forgoes."""

from __future__ import annotations

import numpy as np

from bench.table.carried import _forgone


def test_it_is_what_the_best_of_those_carried_lacks() -> None:
    short, long = np.array([1.0, 2.0, 3.0]), np.array([5.0, 4.0, 3.5])
    whole, without = np.array([0, 1, 2]), np.array([0, 1])
    assert _forgone(short, long, 1, [whole]) == (1.5, 0.0)
    assert _forgone(short, long, 2, [whole, without]) == (0.25, 0.5)
    assert _forgone(short, long, 3, [whole]) == (0.0, 1.0)
