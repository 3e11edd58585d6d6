"""The judge's rules that are compared on real runs."""

from __future__ import annotations

import math

from trajectory.rules import Rules


class OBrienFleming(Rules):
    """Keeps early at ``z_keep sqrt(max_runs / pairs)`` (Biometrics 35, 1979)."""

    def keeps_early(self, z: float, pairs: int) -> bool:
        """The bar falls to z_keep at the last pair."""
        return pairs >= 2 and z >= self.z_keep * math.sqrt(self.max_runs / pairs)


RULES: dict[str, Rules | None] = {
    "as shipped": None,
    "two pairs": Rules(max_runs=2),
    "three pairs": Rules(max_runs=3),
    "six pairs": Rules(max_runs=6),
    "z 1.6": Rules(z_keep=1.6),
    "z 2.0": Rules(z_keep=2.0),
    "z_drop 0.5, first_drop -0.3": Rules(z_drop=0.5, first_drop=-0.3),
    "z 1.6, z_drop 0.5, first_drop -0.3": Rules(z_keep=1.6, z_drop=0.5, first_drop=-0.3),
    "the same, O'Brien and Fleming": OBrienFleming(z_keep=1.6, z_drop=0.5, first_drop=-0.3),
}
"""By name; None: those the product ships with."""
