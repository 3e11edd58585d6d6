"""What is known of one config against another, and of one value of a knob against another.

Only common seeds are compared where there are any. What a seed does to both cancels in parent and
child, and need not in configs that are further apart: so the spread of a difference is the pair's
own, from that of unpaired runs as far as a few pairs cannot tell, and never the one pooled over
races, which are all of parent and child. A knob's
effect is read only from pairs of configs that differ in nothing else: the mean over all configs
that had a value says more about what else they had.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean

from agent.menu.files import ProxyMenu
from autoresearch.values import Scalar
from trainer.spec import Measure
from trajectory.evidence import ConfigEvidence
from trajectory.ranking import RACE_PRIOR_DOF, Noise


@dataclass(frozen=True, slots=True)
class Contrast:
    """How much one config measured above another."""

    delta: float
    """Of objectives: negative is better."""
    stderr: float | None
    """None while the noise is unknown."""
    pairs: int
    """Common seeds; 0 where there is none and means are compared."""

    def text(self, measure: Measure) -> str:
        """``-31±14``, as scores go and in the parts of their unit."""
        return measure.counted(self.delta, self.stderr)

    @property
    def weight(self) -> float:
        """In standard errors, however it points."""
        return abs(self.delta) / self.stderr if self.stderr else abs(self.delta)


def contrast(
    entry: ConfigEvidence, other: ConfigEvidence | None, noise: Noise | None
) -> Contrast | None:
    """The first against the second; None where one of them was not measured."""
    if other is None or not entry.scores or not other.scores:
        return None
    common = sorted(entry.scores.keys() & other.scores.keys())
    if common:
        delta = fmean(entry.scores[seed] - other.scores[seed] for seed in common)
        return Contrast(delta, _paired_stderr(entry, other, common, noise), len(common))
    stderr = noise.sigma * math.sqrt(1 / entry.n + 1 / other.n) if noise else None
    return Contrast(entry.mean - other.mean, stderr, 0)


def _paired_stderr(
    entry: ConfigEvidence, other: ConfigEvidence, common: Sequence[int], noise: Noise | None
) -> float | None:
    """The variance of unpaired runs weighs as much as RACE_PRIOR_DOF degrees of freedom."""
    if noise is None:
        return None
    differences = [entry.scores[seed] - other.scores[seed] for seed in common]
    mean, pairs = fmean(differences), len(differences)
    squares = math.fsum((each - mean) ** 2 for each in differences)
    spread = (RACE_PRIOR_DOF * 2 * noise.sigma**2 + squares) / (RACE_PRIOR_DOF + pairs - 1)
    return math.sqrt(spread / pairs)


@dataclass(frozen=True, slots=True)
class Effect:
    """What turning one knob from one value to another did, all else equal."""

    before: Scalar
    after: Scalar
    contrast: Contrast


def effects(
    menu: ProxyMenu, entries: Iterable[ConfigEvidence], noise: Noise | None
) -> dict[str, list[Effect]]:
    """By knob, the effects of every two values that were measured on common seeds in configs that
    are alike otherwise; those known best first, and of those the largest."""
    alike: dict[tuple[str, tuple[Scalar, ...]], list[ConfigEvidence]] = defaultdict(list)
    names = list(menu.knobs)
    for entry in entries:
        values = tuple(menu.knob_values(entry.config).values())
        for place, name in enumerate(names):
            alike[name, values[:place] + values[place + 1 :]].append(entry)
    seen: dict[str, dict[tuple[Scalar, Scalar], list[Contrast]]] = defaultdict(dict)
    for (name, _), group in alike.items():
        if len(group) < 2:
            continue
        for before, after, measured in _steps(menu, name, group, noise):
            known = seen[name]
            if (after, before) in known:
                flipped = Contrast(-measured.delta, measured.stderr, measured.pairs)
                known[after, before].append(flipped)
            else:
                known.setdefault((before, after), []).append(measured)
    return {
        name: sorted(
            (Effect(*values, _pooled(each)) for values, each in seen[name].items()),
            key=lambda effect: (-effect.contrast.pairs, -effect.contrast.weight),
        )
        for name in names
        if name in seen
    }


def _steps(
    menu: ProxyMenu, name: str, group: Sequence[ConfigEvidence], noise: Noise | None
) -> Iterable[tuple[Scalar, Scalar, Contrast]]:
    """Each of a group against the one that was measured most."""
    anchor = max(group, key=lambda entry: entry.n)
    for entry in group:
        if entry is anchor:
            continue
        measured = contrast(entry, anchor, noise)
        if measured is not None and measured.pairs:
            before, after = (menu.knob_value(e.config, name) for e in (anchor, entry))
            yield before, after, measured


def _pooled(contrasts: Sequence[Contrast]) -> Contrast:
    """Their mean, weighed by pairs."""
    pairs = sum(each.pairs for each in contrasts)
    delta = sum(each.delta * each.pairs for each in contrasts) / pairs
    known = [each.pairs * each.stderr for each in contrasts if each.stderr is not None]
    return Contrast(delta, math.hypot(*known) / pairs if known else None, pairs)
