"""Determine which faults a comparison would catch, and when, by planting them in draws of sound
runs.

A fault counts as caught from the first analysis at which ``POWER`` of the runs with it have raised
an alarm. A forecast is usable if the ``NEEDED`` faults are caught before the run is over; otherwise
it is worthless, and is called so.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from autoresearch.values import Frozen, PositiveInt
from funnel.forecast.ladder.watch import Watch
from funnel.forecast.power_law import Array

POWER = 0.95
EARLY, LATE = 0.05, 0.5
"""Shares of the steps at which a run stops learning."""
HIGH = 0.05
"""Too high, relative: what a usable forecast must tell."""
DRIFT = 0.05
"""Higher by this at the end, growing with the steps."""


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault, as its change of the logarithm of the loss."""

    name: str
    words: str
    from_share: float
    """Share of the run after which it is present."""
    added: Callable[[Array, Callable[[Array], Array], float], Array]
    """Function of tokens, the forecast's log middle, and the run's tokens."""
    is_needed: bool


def listed_faults(wrong_size: float) -> tuple[Fault, ...]:
    """Those that a plan speaks of.

    :param wrong_size: what half of the parameters add to the log loss, by the ladder's law.
    """
    return (
        _higher("2 % too high", 0.02),
        _higher("5 % too high", HIGH, is_needed=True),
        _higher("10 % too high", 0.10),
        _higher("40 % too high", 0.40),
        _stopped(EARLY, "stopped learning at 5 % of the steps"),
        _stopped(LATE, "stopped learning at 50 % of the steps"),
        Fault(
            "drift",
            "drifts up, 5 % by the end",
            0.0,
            lambda tokens, _, total: np.log1p(DRIFT * tokens / total),
            False,
        ),
        Fault(
            "size",
            "has half the parameters",
            0.0,
            lambda tokens, _, __: np.full(len(tokens), wrong_size),
            False,
        ),
    )


def _higher(words: str, by: float, *, is_needed: bool = False) -> Fault:
    def added(tokens: Array, _: Callable[[Array], Array], __: float) -> Array:
        return np.full(len(tokens), math.log1p(by))

    return Fault(f"x{1 + by:.2f}", words, 0.0, added, is_needed)


def _stopped(share: float, words: str) -> Fault:
    def added(tokens: Array, log_middle: Callable[[Array], Array], total: float) -> Array:
        stop = log_middle(np.array([share * total]))[0]
        more: Array = np.where(tokens > share * total, stop - log_middle(tokens), 0.0)
        return more

    return Fault(f"stop{share:.2f}", words, share, added, True)


class Catch(Frozen):
    """When a fault is caught; None where it is not."""

    name: str
    words: str
    from_tokens: PositiveInt
    """From which on it is there."""
    by_tokens: PositiveInt | None
    is_needed: bool


def catches(watch: Watch, faults: Sequence[Fault]) -> tuple[Catch, ...]:
    """When each would be, in runs with these windows."""
    analyses = watch.analyses
    found = []
    for fault in faults:
        added_W = fault.added(analyses.tokens, watch.log_middle, analyses.total_tokens)
        first_R = watch.alarms_of_sound_with(added_W)
        starts = fault.from_share * analyses.total_tokens
        analysis = math.ceil(float(np.quantile(first_R, POWER, method="higher")))
        caught = analysis < len(analyses.tokens)
        found.append(
            Catch(
                name=fault.name,
                words=fault.words,
                from_tokens=max(1, round(starts or analyses.tokens[0])),
                by_tokens=round(analyses.tokens[analysis]) if caught else None,
                is_needed=fault.is_needed,
            )
        )
    return tuple(found)


def is_usable(found: Sequence[Catch]) -> bool:
    """Whether the needed ones are all caught."""
    return all(catch.by_tokens is not None for catch in found if catch.is_needed)
