"""Define the basis of a forecast from a ladder: its law, its sound runs, the faults it would catch.

The faults are added to draws of sound runs. A fault counts as caught at the first analysis by which
a share ``POWER`` of the faulty runs has raised an alarm. A forecast is usable if every needed fault
is caught before the run ends; otherwise it is reported as worthless.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from autoresearch.values import Finite, Frozen, NonNegative, Positive, PositiveInt
from funnel.forecast.ladder.sound_runs import SoundRuns
from funnel.forecast.ladder.watch import Watch
from funnel.forecast.power_law import Array
from funnel.forecast.scaling_law import Exponents, ScalingLaw

POWER = 0.95
EARLY, LATE = 0.05, 0.5
"""Shares of the steps at which a faulty run stops learning."""
HIGH = 0.05
"""Relative excess of the loss that a usable forecast must detect."""
DRIFT = 0.05
"""Relative excess of the loss at the end of a drift that grows linearly."""


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault, described by its change of the log loss."""

    name: str
    words: str
    from_share: float
    """Share of the run after which the fault is present."""
    added: Callable[[Array, Callable[[Array], Array], float], Array]
    """Function that returns the change, given tokens, the forecast's log middle, and the run's
    total tokens."""
    is_needed: bool


def listed_faults(wrong_size: float) -> tuple[Fault, ...]:
    """Return the faults that a launch plan lists.

    :param wrong_size: change of the log loss when the parameters are halved, by the ladder's law.
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
    """A fault, and when a comparison would catch it."""

    name: str
    words: str
    from_tokens: PositiveInt
    """Tokens from which the fault is present."""
    by_tokens: PositiveInt | None
    """Tokens by which it is caught; None if it is not caught."""
    is_needed: bool


def catches(watch: Watch, faults: Sequence[Fault]) -> tuple[Catch, ...]:
    """Return when each fault would be caught in runs with these windows."""
    analyses = watch.analyses
    found = []
    for fault in faults:
        added_W = fault.added(analyses.tokens, watch.log_middle, analyses.total_tokens)
        first_R = watch.alarms_with_fault(added_W)
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
    """Return whether every needed fault is caught."""
    return all(catch.by_tokens is not None for catch in found if catch.is_needed)


class LadderBasis(Frozen):
    """The law of the rungs' final losses, the model of sound runs, and the faults to be caught."""

    law: ScalingLaw
    """Law of the final loss, in bits per byte."""
    exponents: Exponents
    runs: PositiveInt
    scatter: NonNegative
    drift_per_doubling: NonNegative
    doublings: NonNegative
    """Doublings of compute from the largest rung to the target."""
    end_low_bpb: Positive
    end_middle_bpb: Positive
    end_high_bpb: Positive
    """95 % interval of the finished target's training loss: low edge, middle and high edge."""
    total_tokens: PositiveInt
    wrong_size: Finite
    """Change of the log loss when the parameters are halved."""
    sound: SoundRuns
    caught: tuple[Catch, ...]
    """Faults that a comparison of every step's loss would catch."""
    narrowing: str
    """Effect of a larger ladder on the band, in words; empty if the band is usable."""

    @property
    def is_usable(self) -> bool:
        """Whether a comparison would catch the needed faults; if not, the forecast is worthless."""
        return is_usable(self.caught)

    @property
    def end_half_width(self) -> float:
        """Half width of the band at the end of the run, relative to its middle."""
        return (self.end_high_bpb - self.end_low_bpb) / (2 * self.end_middle_bpb)
