"""The noise of one run, as the replicates of a table show it.

Three things of it are measured and simulated: how large it is at a level of the score (good configs
are less noisy), how heavy its tails are (Student's t), and how much of it configs share on a seed.
The last falls with their distance: a child of few edits is lucky with its parent, and two configs
that have little in common are lucky apart. So the luck of a seed is a random field over the encoded
menu, of covariance ``shared × exp(-distance / reach)``, and the rest is each run's own.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random

import numpy as np
from scipy.special import ndtr, stdtrit
from scipy.stats import norm, rankdata
from scipy.stats import t as student

from bench.simulator.encoding import Matrix
from bench.simulator.runs import RunTable
from bench.simulator.surrogate import Vector

LEVELS = 5
"""Groups of configs, by their score, whose noise is told apart."""
LEAST_PAIRS = 12
"""Of a group."""
WAVES = 192
"""Of which the field of a seed is made."""
MOST_DOF = 60.0
"""From which on tails are as good as a Gaussian's."""
REACHES = (0.1, 0.2, 0.35, 0.5, 0.75, 1.0, 1.5, 2.5, 4.0)


@dataclass(frozen=True)
class NoiseModel:
    """What one run's score is off by."""

    levels: tuple[float, ...]
    """Scores, ascending, between which the scale is interpolated."""
    scales: tuple[float, ...]
    """Scale of the t distribution there."""
    dof: float
    shared: float
    """Correlation of two runs of one seed as their configs draw near to each other."""
    reach: float
    """Distance in the encoded menu by which that has fallen to 1/e."""
    pairs: int
    """Differences of two runs of one config, from which all this is."""
    columns: int
    worst: float = math.inf
    """Of the differences, in scales: nothing worse than was seen is drawn."""
    _fields: dict[int, tuple[Vector, Vector]] = field(default_factory=dict, repr=False)

    def of(self, row: Vector, config_hash: str, seed: int, truth: float) -> float:
        """The noise of this config's run on this seed, always the same."""
        own = Random(f"own:{config_hash}:{seed}").gauss(0, 1)
        luck = math.sqrt(self.shared) * self._luck(row, seed) + math.sqrt(1 - self.shared) * own
        scale = float(np.interp(truth, self.levels, self.scales))
        if self.dof >= MOST_DOF:
            return scale * luck
        share = min(max(float(ndtr(luck)), 1e-12), 1 - 1e-12)
        return scale * min(max(float(stdtrit(self.dof, share)), -self.worst), self.worst)

    def _luck(self, row: Vector, seed: int) -> float:
        """The field of a seed at a config: standard normal there."""
        if not self.shared:
            return 0.0
        if seed not in self._fields:
            rng = np.random.default_rng([7, seed])
            self._fields[seed] = (rng.standard_normal(WAVES), rng.standard_normal(WAVES))
        cosines, sines = self._fields[seed]
        phases = _frequencies(self.columns) @ row / self.reach
        waves = cosines @ np.cos(phases) + sines @ np.sin(phases)
        return float(waves) / math.sqrt(WAVES)

    def __str__(self) -> str:
        ends = f"{self.scales[0]:.4f} at {self.levels[0]:.3f}"
        if len(self.levels) > 1:
            ends += f" to {self.scales[-1]:.4f} at {self.levels[-1]:.3f}"
        tails = (
            "Gaussian tails"
            if self.dof >= MOST_DOF
            else f"t of {self.dof:.1f} degrees, {self.worst:.0f} scales at most"
        )
        return (
            f"scale {ends}; {tails}; shared on a seed {self.shared:.2f}, falling by 1/e in "
            f"{self.reach:.2f} (from {self.pairs} pairs)"
        )


_FREQUENCIES: dict[int, Matrix] = {}


def _frequencies(columns: int) -> Matrix:
    """Draws of the spectrum of exp(-distance): a Cauchy distribution of so many dimensions."""
    if columns not in _FREQUENCIES:
        rng = np.random.default_rng(columns)
        normal = rng.standard_normal((WAVES, columns))
        _FREQUENCIES[columns] = normal / np.abs(rng.standard_normal((WAVES, 1)))
    return _FREQUENCIES[columns]


def noise_of(
    table: RunTable, rows: Mapping[str, Vector], truths: Mapping[str, float], unexplained: Vector
) -> NoiseModel:
    """From the differences of the replicates of each config.

    :param rows: the encoded configs.
    :param truths: of each config, which its level is told by.
    :param unexplained: by a surrogate of the good configs it was not shown: where nothing was
        replicated, its middle is all there is, and more than the noise.
    """
    columns = len(next(iter(rows.values())))
    keys, differences = _differences(table, truths)
    if len(keys) < LEAST_PAIRS:
        middle = float(np.median(np.abs(unexplained))) / 0.6745
        return NoiseModel((0.0,), (middle,), MOST_DOF, 0.0, 1.0, len(keys), columns)
    at = np.array([truths[key] for key in keys])
    levels, scales = _scales(at, differences)
    standard = differences / np.interp(at, levels, scales)
    dof, _, stretch = student.fit(standard, floc=0.0)
    shared, reach = (0.0, 1.0)
    if table.shares_seeds:
        shared, reach = _field(np.array([rows[key] for key in keys]), standard)
    return NoiseModel(
        tuple(levels),
        tuple(float(scale * stretch) for scale in scales),
        float(min(max(dof, 2.2), MOST_DOF)),
        shared,
        reach,
        len(keys),
        columns,
        float(np.max(np.abs(standard)) / stretch),
    )


def _differences(table: RunTable, truths: Mapping[str, float]) -> tuple[list[str], Vector]:
    """Of each config's first two runs in the order of the seeds, over the root of two: as large as
    one run's noise. Where seeds are shared, without what all configs have of it: that one seed is
    luckier than another for everybody changes no comparison."""
    keys, found = [], []
    for key, by_seed in table.scores.items():
        scores = [score for seed in sorted(by_seed) for score in by_seed[seed]]
        if key not in truths or len(scores) < 2:
            continue
        keys.append(key)
        found.append((scores[1] - scores[0]) / 2**0.5)
    differences = np.array(found)
    if table.shares_seeds and found:
        differences -= np.median(differences)
    return keys, differences


def _scales(at: Vector, differences: Vector) -> tuple[list[float], list[float]]:
    """The middle size of the differences of the configs of a level."""
    groups = max(1, min(LEVELS, len(at) // LEAST_PAIRS))
    parts = np.array_split(np.argsort(at), groups)
    levels = [float(np.median(at[part])) for part in parts]
    sizes = [float(np.median(np.abs(differences[part]))) / 0.6745 for part in parts]
    least = max(max(sizes) * 1e-3, 1e-9)
    return levels, [max(size, least) for size in sizes]


def _field(rows: Matrix, standard: Vector) -> tuple[float, float]:
    """How much of the noise two configs share on a seed, by least squares over all pairs of them.

    Normal scores stand for the differences, so that a ruinous seed is one and not all of it."""
    scores = norm.ppf((rankdata(standard) - 0.5) / len(standard))
    first, second = np.triu_indices(len(scores), 1)
    products = scores[first] * scores[second]
    distances = np.linalg.norm(rows[first] - rows[second], axis=1)
    found: list[tuple[float, float, float]] = []
    for reach in REACHES:
        falls = np.exp(-distances / reach)
        shared = float(np.clip((falls @ products) / (falls @ falls), 0.0, 0.98))
        found.append((float(np.sum((products - shared * falls) ** 2)), shared, reach))
    _, shared, reach = min(found)
    return shared, reach
