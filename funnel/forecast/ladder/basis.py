"""Define the basis of a forecast from a ladder, and its power."""

from __future__ import annotations

from autoresearch.values import Finite, Frozen, NonNegative, Positive, PositiveInt
from funnel.forecast.ladder.faults import Catch, is_usable
from funnel.forecast.ladder.sound_runs import SoundRuns
from funnel.forecast.scaling_law import Exponents, ScalingLaw


class LadderBasis(Frozen):
    """The law of the ladder's ends, and what sound runs may look like."""

    law: ScalingLaw
    """Bits per byte."""
    exponents: Exponents
    runs: PositiveInt
    scatter: NonNegative
    drift_per_doubling: NonNegative
    doublings: NonNegative
    """Doublings of compute from the largest rung to the target."""
    end_low_bpb: Positive
    end_middle_bpb: Positive
    end_high_bpb: Positive
    """The finished target's training loss, 95 %."""
    total_tokens: PositiveInt
    wrong_size: Finite
    """Change of the log loss for half of the parameters."""
    sound: SoundRuns
    caught: tuple[Catch, ...]
    """Faults that a comparison of every step's loss would catch."""
    narrowing: str
    """Effect of a larger ladder on the band; empty if the band is usable."""

    @property
    def is_usable(self) -> bool:
        """Whether a comparison would catch what it must; where not, the forecast is worthless."""
        return is_usable(self.caught)

    @property
    def end_half_width(self) -> float:
        """Relative half width of the band at the end."""
        return (self.end_high_bpb - self.end_low_bpb) / (2 * self.end_middle_bpb)
