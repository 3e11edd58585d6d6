"""What a forecast from a ladder rests on, and what it is worth."""

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
    """Of compute, from the largest rung to the target."""
    end_low_bpb: Positive
    end_middle_bpb: Positive
    end_high_bpb: Positive
    """The finished target's training loss, 95 %."""
    total_tokens: PositiveInt
    wrong_size: Finite
    """What half of the parameters add to the log loss."""
    sound: SoundRuns
    caught: tuple[Catch, ...]
    """What a comparison of every step's loss would catch."""
    narrowing: str
    """What more ladder would do for the band; nothing where it is usable."""

    @property
    def is_usable(self) -> bool:
        """Whether a comparison would catch what it must; where not, the forecast is worthless."""
        return is_usable(self.caught)

    @property
    def end_half_width(self) -> float:
        """Of the band at the end, relative."""
        return (self.end_high_bpb - self.end_low_bpb) / (2 * self.end_middle_bpb)
