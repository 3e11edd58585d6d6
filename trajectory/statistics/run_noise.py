"""How much one run's score says of its config."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RunNoise:
    """What one run's score is worth: ours or another tool's."""

    sigma: float
    """Pooled sd of one run within a config."""
    dof: int
    """Degrees of freedom behind it."""
