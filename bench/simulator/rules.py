"""The judge's rules that are compared on real runs."""

from __future__ import annotations

from bench.judge_rules import OBrienFleming
from trajectory.rules import Rules

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
