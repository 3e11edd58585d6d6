"""Define the basis of a forecast from a ladder: its law, its model of sound runs, its power."""

from __future__ import annotations

from autoresearch.values import Finite, Frozen, NonNegative, Positive, PositiveInt
from funnel.forecast.ladder.faults import Catch, is_usable
from funnel.forecast.ladder.sound_runs import SoundRuns
from funnel.forecast.scaling_law import Exponents, ScalingLaw


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
