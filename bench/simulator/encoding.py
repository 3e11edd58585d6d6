"""Configs as vectors: every knob of a menu in [0, 1]."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

from agent.menu.files import ProxyMenu
from autoresearch.domains.base import Domain
from autoresearch.domains.choices import Choices, Ladder
from autoresearch.domains.ranges import Range
from autoresearch.values import Scalar
from trainer.spec import Config

Matrix: TypeAlias = np.ndarray[Any, np.dtype[np.float64]]


class Encoder:
    """A number's place between its domain's ends, on its scale; of a list of numbers the place in
    ascending order; for words a column each."""

    def __init__(self, menu: ProxyMenu) -> None:
        self._menu = menu

    def matrix(self, configs: Sequence[Config]) -> Matrix:
        """One row a config."""
        return np.array([self._row(config) for config in configs], dtype=np.float64)

    def _row(self, config: Config) -> list[float]:
        values = self._menu.knob_values(config)
        return [
            column
            for name, domain in self._menu.domains.items()
            for column in _columns(domain, values[name])
        ]


def _columns(domain: Domain, value: Scalar) -> list[float]:
    if isinstance(domain, Ladder):
        ladder = sorted(domain.choices)
        return [ladder.index(float(value)) / (len(ladder) - 1)]
    if isinstance(domain, Choices):
        return [float(value == choice) for choice in domain.choices]
    assert isinstance(domain, Range), f"{domain} has no order and no choices"
    low, high, at = float(domain.low), float(domain.high), float(value)
    if domain.scale == "log":
        low, high, at = math.log(low), math.log(high), math.log(at)
    return [(at - low) / (high - low)]
