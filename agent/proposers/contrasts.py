"""Compare configs, and values of a knob, by their measured scores.

Only common seeds are compared if there are any. A seed's effect on parent and child cancels, but
need not cancel between configs that are further apart. So the spread of a difference is the pair's
own, with the spread of unpaired runs as prior for few pairs. The spread pooled over races is not
used, since races only pair parents with children. A knob's effect is read only from pairs of
configs that differ in nothing else: the mean over all configs with a value mostly reflects their
other values.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean

from agent.menu.files import ProxyMenu
from autoresearch.values import Scalar
from trainer.schema import Measure
from trajectory.evidence import ConfigEvidence
from trajectory.ranking import RACE_PRIOR_DOF, Noise


@dataclass(frozen=True, slots=True)
class Contrast:
    """Difference between two configs' measured objectives."""

    delta: float
    """Difference of objectives: negative is better."""
    stderr: float | None
    """None while the noise is unknown."""
    pairs: int
    """Number of common seeds; 0 if there are none and means are compared."""

    def text(self, measure: Measure) -> str:
        """Return ``-31±14``, as a difference of scores in parts of their unit."""
        return measure.counted(self.delta, self.stderr)

    @property
    def weight(self) -> float:
        """Absolute size in standard errors."""
        return abs(self.delta) / self.stderr if self.stderr else abs(self.delta)


def contrast(
    entry: ConfigEvidence, other: ConfigEvidence | None, noise: Noise | None
) -> Contrast | None:
    """Return the first config's difference from the second; None if either has no score."""
    if other is None or not entry.scores or not other.scores:
        return None
    common = sorted(entry.scores.keys() & other.scores.keys())
    if common:
        differences = [entry.scores[seed] - other.scores[seed] for seed in common]
        delta, pairs = fmean(differences), len(common)
        stderr = None
        if noise is not None:
            squares = math.fsum((each - delta) ** 2 for each in differences)
            # The variance of unpaired runs weighs as RACE_PRIOR_DOF degrees of freedom.
            spread = (RACE_PRIOR_DOF * 2 * noise.sigma**2 + squares) / (RACE_PRIOR_DOF + pairs - 1)
            stderr = math.sqrt(spread / pairs)
        return Contrast(delta, stderr, pairs)
    stderr = noise.sigma * math.sqrt(1 / entry.n + 1 / other.n) if noise else None
    return Contrast(entry.mean - other.mean, stderr, 0)


@dataclass(frozen=True, slots=True)
class Effect:
    """Effect of changing one knob from one value to another, all else equal."""

    before: Scalar
    after: Scalar
    contrast: Contrast


def effects(
    menu: ProxyMenu, entries: Iterable[ConfigEvidence], noise: Noise | None
) -> dict[str, list[Effect]]:
    """Return, by knob, the effects of every two values measured on common seeds in otherwise equal
    configs; the best known first, then the largest."""
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
        anchor = max(group, key=lambda entry: entry.n)
        for entry in group:
            measured = None if entry is anchor else contrast(entry, anchor, noise)
            if measured is None or not measured.pairs:
                continue
            before, after = (menu.knob_value(e.config, name) for e in (anchor, entry))
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


def _pooled(contrasts: Sequence[Contrast]) -> Contrast:
    """Return their mean, weighted by pairs."""
    pairs = sum(each.pairs for each in contrasts)
    delta = sum(each.delta * each.pairs for each in contrasts) / pairs
    known = [each.pairs * each.stderr for each in contrasts if each.stderr is not None]
    return Contrast(delta, math.hypot(*known) / pairs if known else None, pairs)
