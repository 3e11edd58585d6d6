"""The judge's rules that are compared on real runs, at equal runs.

The goals are 1.25 times what the rules of before truly gain, at most one in a hundred of the
candidates kept that are no better, and at most half a percent told too much.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import nan
from statistics import fmean

from autoresearch.errors import SettingsError
from bench.judge_rules import OBrienFleming
from bench.simulator.comparison import Mean
from bench.simulator.night import Night
from trajectory.rules import Rules

BEFORE = "z_drop 1, first_drop 0.35"
"""What was shipped until the rules were chosen on these worlds: what the goals are measured by."""
RULES: dict[str, Rules | None] = {
    BEFORE: Rules(z_drop=1.0, first_drop=0.35),
    "as shipped": None,
    "two pairs, z_drop 1, first_drop 0.35": Rules(max_runs=2, z_drop=1.0, first_drop=0.35),
    "three pairs, z_drop 1, first_drop 0.35": Rules(max_runs=3, z_drop=1.0, first_drop=0.35),
    "six pairs, z_drop 1, first_drop 0.35": Rules(max_runs=6, z_drop=1.0, first_drop=0.35),
    "z 1.6, z_drop 1, first_drop 0.35": Rules(z_keep=1.6, z_drop=1.0, first_drop=0.35),
    "z 2.0, z_drop 1, first_drop 0.35": Rules(z_keep=2.0, z_drop=1.0, first_drop=0.35),
    "z_drop 0.5, first_drop 0.35": Rules(z_drop=0.5, first_drop=0.35),
    "z_drop 1, first_drop -0.3": Rules(z_drop=1.0, first_drop=-0.3),
    "z_drop 0.5, first_drop -0.3": Rules(z_drop=0.5, first_drop=-0.3),
    "z 1.6, z_drop 0.5, first_drop -0.3": Rules(z_keep=1.6, z_drop=0.5, first_drop=-0.3),
    "z 2.0, z_drop 0.5, first_drop -0.3": Rules(z_keep=2.0, z_drop=0.5, first_drop=-0.3),
    "three pairs, z 1.6, z_drop 0.5, first_drop -0.3": Rules(
        max_runs=3, z_keep=1.6, z_drop=0.5, first_drop=-0.3
    ),
    "z 1.6, z_drop 0.5, first_drop -0.3, O'Brien and Fleming": OBrienFleming(
        z_keep=1.6, z_drop=0.5, first_drop=-0.3
    ),
}
"""By name; None: those the product ships with."""


def rules_named(name: str) -> Rules | None:
    """Those of this name.

    :raises SettingsError: where there are none.
    """
    if name not in RULES:
        raise SettingsError(f"there are no rules {name!r}; choose some of {', '.join(RULES)}")
    return RULES[name]


GAIN_GOAL, NULLS_GOAL, INFLATION_GOAL = 1.25, 0.01, 0.005


@dataclass(frozen=True, slots=True)
class Worth:
    """What some nights under one rule came to."""

    gain: Mean
    more: Mean
    """Than the rules of before in the same nights."""
    ratio: float
    """Of both mean gains."""
    nulls_kept: float
    """Share of the candidates that were no better which were kept."""
    near_kept: float
    """The same of those that differ by next to nothing, either way."""
    near: float
    """Their share of all candidates: how many of a night's ideas do next to nothing."""
    inflation: float
    """What was told too much, as a share of what was truly gained."""
    keeps: float
    iterations: float

    @classmethod
    def of(cls, nights: Sequence[Night], before: Sequence[Night]) -> Worth:
        gains = [night.true_gain for night in nights]
        others = [night.true_gain for night in before]
        told = [(night.told_gain, night.true_gain) for night in nights]
        known = [(claim, true) for claim, true in told if claim is not None]
        nulls, near = sum(one.nulls for one in nights), sum(one.near_nulls for one in nights)
        iterations = fmean(night.stages[-1].iteration for night in nights)
        return cls(
            gain=Mean.of(gains),
            more=Mean.of([a - b for a, b in zip(gains, others, strict=True)]),
            ratio=_share(fmean(gains), fmean(others)),
            nulls_kept=_share(sum(one.false_keeps for one in nights), nulls),
            near_kept=_share(sum(one.near_nulls_kept for one in nights), near),
            near=near / (iterations * len(nights)),
            inflation=_share(
                sum(claim - true for claim, true in known), sum(true for _, true in known)
            ),
            keeps=fmean(one.keeps for one in nights),
            iterations=iterations,
        )

    @property
    def reaches(self) -> bool:
        """All three goals, by the values alone."""
        return (
            self.ratio >= GAIN_GOAL
            and self.nulls_kept <= NULLS_GOAL
            and self.inflation <= INFLATION_GOAL
        )

    def is_beaten_by(self, other: Worth) -> bool:
        """Whether another gains as much, keeps as few nulls and inflates as little, and is better
        in one of them."""
        mine = (-self.gain.value, self.nulls_kept, self.inflation)
        theirs = (-other.gain.value, other.nulls_kept, other.inflation)
        return mine != theirs and all(b <= a for a, b in zip(mine, theirs, strict=True))


def frontier(worths: Mapping[str, Worth]) -> list[str]:
    """The rules that none beats."""
    return [
        name
        for name, worth in worths.items()
        if not any(worth.is_beaten_by(other) for other in worths.values())
    ]


def rules_markdown(place: str, nights: Mapping[str, Sequence[Night]], runs: int) -> str:
    """A row a rule; those on the frontier in bold, those that reach all goals marked so."""
    count = len(nights[BEFORE])
    if not count:
        return f"{place}: no round is whole yet"
    worths = {name: Worth.of(mine, nights[BEFORE]) for name, mine in nights.items()}
    heads = ["true gain × 1000", "less before", "× before", "no better, kept"]
    heads += ["next to nothing, kept", "told too much", "keeps", "iterations"]
    near = worths[BEFORE].near
    lines = [
        f"{place}, {runs} runs a night, {count} paired nights; {near:.0%} of candidates under the "
        f"rules of before ({BEFORE}) do next to nothing:",
        "",
        f"| rules | {' | '.join(heads)} |",
        f"|{' --- |' * (len(heads) + 1)}",
    ]
    best = set(frontier(worths))
    for name, worth in worths.items():
        said = f"**{name}**" if name in best else name
        cells = [str(worth.gain), "" if name == BEFORE else str(worth.more)]
        cells += [f"{worth.ratio:.2f}", f"{worth.nulls_kept:.1%}", f"{worth.near_kept:.1%}"]
        cells += [f"{worth.inflation:+.1%}", f"{worth.keeps:.1f}", f"{worth.iterations:.0f}"]
        reached = ": reaches all goals" if worth.reaches else ""
        lines.append(f"| {said}{reached} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _share(part: float, whole: float) -> float:
    return part / whole if whole else nan
