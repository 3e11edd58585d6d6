"""What the replicates of a table say of the noise of a run.

How noisy a config is, seed after seed, is mostly its own: on cpu-tiny's table the difference of two
runs of a config tells as much of the difference of two others as its score and knobs do. A noise of
one size for all that score alike, with tails as heavy on both sides as the differences of all
configs together have, draws ruined runs for tame configs and miracles for all; one miracle of the
baseline's makes a night in which nothing is ever kept, which no real night was. So sizes are
learned from the knobs, and tails from what is left.

That only the worse half has tails is read off the configs with four runs: on 118 of cpu-tiny's the
best lies apart from the three others by twice, three and five times their width in 13, 6 and 2
cases, where Gaussians have 13, 7 and 3; the worst in 28, 14 and 8.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random

import numpy as np
from scipy.optimize import minimize
from scipy.special import digamma, logsumexp, polygamma
from scipy.stats import norm, rankdata
from sklearn.ensemble import ExtraTreesRegressor

from bench.simulator.encoding import Matrix
from bench.simulator.noise import MOST_DOF, ByLevel, NoiseModel, Shape, log_peak
from bench.simulator.runs import RunTable
from bench.simulator.surrogate import Forest, Vector

LEAST_CONFIGS = 12
"""Run more than once, below which nothing is learned of the noise."""
LEAST_FOR_KNOBS = 100
"""From which on the size is learned from the knobs."""
LEAST_GROUPS = 30
"""Run more than twice, from which on skew and what stays unexplained of sizes are told."""
MOST_RUNS = 24
"""Of one config that count: some baselines were run fifty times."""
TREES, LEAF, FOLDS = 200, 5, 5
STARTS = ((-0.3, 0.0, 0.3), (-0.1, 2.0, 0.6))
"""Where the most likely noise is looked for from; see :func:`_shape`."""
FARTHEST = 3.0
"""From 1, the logarithm of the factor from sizes to scales."""
LEAST_DOF = 2.05
"""Below two there is no variance."""
REACHES = (0.01, 0.02, 0.03, 0.05, 0.1, 0.2, 0.35, 0.5, 0.75, 1.0, 1.5, 2.5, 4.0)
PLACES, NODES = 61, 13
"""Of the sums that stand for integrals over where a config's runs lie, and over its size."""


@dataclass(frozen=True)
class ByKnobs:
    """What a forest makes of the knobs and the score, times what a config has of its own."""

    forest: Forest
    factor: float
    """From what the trees tell to the scale of the noise's shape."""
    unexplained: float
    """Standard deviation of the logarithm of a config's own factor."""
    known: Mapping[str, tuple[float, float]]
    """By config_hash of those run more than once: the mean of that logarithm as their runs have it,
    and its variance."""
    ends: tuple[float, float]
    """Scales that nine tenths of the table's configs lie between."""

    def of(self, row: Vector, config_hash: str, truth: float) -> float:
        """See :class:`bench.simulator.noise.Sizes`."""
        told = float(self.forest.predict(np.append(row, truth)[None])[0])
        mean, variance = self.known.get(config_hash, (0.0, self.unexplained**2))
        own = mean + math.sqrt(variance) * Random(f"size:{config_hash}").gauss(0, 1)
        return self.factor * math.exp(told + own)

    def __str__(self) -> str:
        return (
            f"scale {self.ends[0]:.4f} to {self.ends[1]:.4f} by knobs and score, and for a config "
            f"of its own by a factor of e to the ± {self.unexplained:.2f}"
        )


@dataclass(frozen=True)
class Group:
    """The runs of one config that was run more than once, in the order of their seeds."""

    key: str
    seeds: tuple[int, ...]
    scores: Vector

    @property
    def log_sd(self) -> float:
        """Logarithm of its standard deviation, unbiased for a Gaussian."""
        freedom = len(self.scores) - 1
        sd = max(float(np.std(self.scores, ddof=1)), 1e-9)
        return math.log(sd) - (float(digamma(freedom / 2)) + math.log(2 / freedom)) / 2

    @property
    def doubt(self) -> float:
        """Variance of that, for a Gaussian."""
        return float(polygamma(1, (len(self.scores) - 1) / 2)) / 4


def noise_of(
    table: RunTable, rows: Mapping[str, Vector], truths: Mapping[str, float], unexplained: Vector
) -> NoiseModel:
    """The noise as a table's replicates show it.

    :param rows: the encoded configs.
    :param truths: of each config, which its level is told by.
    :param unexplained: by a surrogate of the good configs it was not shown: where nothing was
        replicated, its middle is all there is, and more than the noise.
    """
    weights = np.ones(len(next(iter(rows.values()))))
    groups = _groups(table, truths)
    if len(groups) < LEAST_CONFIGS:
        middle = float(np.median(np.abs(unexplained))) / 0.6745
        sizes: ByLevel | ByKnobs = ByLevel((0.0,), (middle,))
        return NoiseModel(sizes, Shape(MOST_DOF), 0.0, 1.0, weights, len(groups))
    at = np.array([truths[group.key] for group in groups])
    levels, scales = _levels(at, groups)
    by_level = np.log(np.interp(at, levels, scales))
    if len(groups) < LEAST_FOR_KNOBS:
        told = by_level
    else:
        inputs = np.array([np.append(rows[group.key], truths[group.key]) for group in groups])
        told, forest = _sizes(inputs, groups)
    shape, own, factor = _shape(groups, told)
    if len(groups) < LEAST_FOR_KNOBS:
        sizes = ByLevel(tuple(levels), tuple(factor * scale for scale in scales))
    else:
        ends = factor * np.exp(np.quantile(told, (0.05, 0.95)))
        known = dict(_own(groups, forest.predict(inputs), own))
        sizes = ByKnobs(forest, factor, own, known, (float(ends[0]), float(ends[1])))
    shared, reach = (0.0, 1.0)
    if table.shares_seeds:
        weights = _importances(rows, truths)
        weighted = {key: weights * row for key, row in rows.items()}
        shared, reach = _field(groups, weighted, by_level)
    return NoiseModel(sizes, shape, shared, reach, weights, len(groups))


def _groups(table: RunTable, truths: Mapping[str, float]) -> list[Group]:
    """Where seeds are shared, without what all configs have of one: that one seed is luckier than
    another for everybody changes no comparison."""
    found = []
    for key, by_seed in table.scores.items():
        runs = [(seed, score) for seed in sorted(by_seed) for score in by_seed[seed]][:MOST_RUNS]
        if key in truths and len(runs) > 1:
            seeds, scores = zip(*runs, strict=True)
            found.append(Group(key, seeds, np.array(scores)))
    if not table.shares_seeds:
        return found
    luck: dict[int, list[float]] = defaultdict(list)
    for group in found:
        for seed, off in zip(group.seeds, group.scores - np.median(group.scores), strict=True):
            luck[seed].append(float(off))
    common = {seed: float(np.median(offs)) for seed, offs in luck.items()}
    return [
        Group(one.key, one.seeds, one.scores - np.array([common[seed] for seed in one.seeds]))
        for one in found
    ]


def _levels(at: Vector, groups: Sequence[Group]) -> tuple[list[float], list[float]]:
    """The middle size of the noise of the configs of a level."""
    parts = np.array_split(np.argsort(at), max(1, min(5, len(at) // LEAST_CONFIGS)))
    logs = np.array([group.log_sd for group in groups])
    levels = [float(np.median(at[part])) for part in parts]
    return levels, [float(np.exp(np.mean(logs[part]))) for part in parts]


def _sizes(inputs: Matrix, groups: Sequence[Group]) -> tuple[Vector, Forest]:
    """Logarithms of the sizes, each by trees that were not shown it, and trees shown all."""
    logs = np.array([group.log_sd for group in groups])
    weights = 1 / np.array([group.doubt for group in groups])
    folds = np.random.default_rng(0).permutation(len(groups)) % FOLDS
    told = np.empty(len(groups))
    for fold in range(FOLDS):
        shown = folds != fold
        shown_it = Forest(inputs[shown], logs[shown], leaf=LEAF, weights=weights[shown])
        told[~shown] = shown_it.predict(inputs[~shown])
    return told, Forest(inputs, logs, leaf=LEAF, weights=weights)


def _own(
    groups: Sequence[Group], told: Vector, own: float
) -> list[tuple[str, tuple[float, float]]]:
    """What runs of a config say of its own factor, drawn towards none as far as they are few."""
    found = []
    for group, log_size in zip(groups, told, strict=True):
        weight = own**2 / (own**2 + group.doubt)
        mean = weight * (group.log_sd - float(log_size))
        found.append((group.key, (mean, (1 - weight) * own**2)))
    return found


def _shape(groups: Sequence[Group], told: Vector) -> tuple[Shape, float, float]:
    """The shape, what stays unexplained of sizes, and the factor from sizes to the shape's scale.

    All at once, by maximum likelihood: where a config's runs lie and what its size has of its own
    are integrated out. Two runs of each of many configs say how far differences reach, and only
    more runs of some say whether that is because some configs are wild or because runs are.
    """
    batches = _batches(groups, told)
    more = sum(len(group.scores) > 2 for group in groups) >= LEAST_GROUPS

    def parts(point: Vector) -> tuple[float, Shape, float]:
        """The factor, the shape and what stays unexplained."""
        dof = min(LEAST_DOF + math.exp(min(point[1], 5.0)), MOST_DOF)
        factor = math.exp(min(max(point[0], -FARTHEST), FARTHEST))  # no noise at all has no scale
        return factor, Shape(dof), abs(float(point[2])) if more else 0.0

    def unlikely(point: Vector) -> float:
        return -sum(_likely(batch, *parts(point)) for batch in batches)

    ends = []
    for start in STARTS:
        options = {"maxiter": 200, "xatol": 0.02, "fatol": 0.05}
        found = minimize(unlikely, start, method="Nelder-Mead", options=options)
        ends.append((float(found.fun), tuple(found.x)))
    factor, shape, own = parts(np.array(min(ends)[1]))
    off = [_off(group, log_size) for group, log_size in zip(groups, told, strict=True)]
    worst = float(np.max(np.concatenate(off))) / factor
    return replace(shape, worst=worst or math.inf), own, factor


def _off(group: Group, log_size: float) -> Vector:
    """Of each run from the middle one, in sizes. Of two runs one is as much better as the other is
    worse, which says of neither side how far it reaches."""
    off: Vector = (group.scores - np.median(group.scores)) / math.exp(log_size)
    return off if len(off) > 2 else np.zeros(1)


@dataclass(frozen=True)
class _Batch:
    """Configs that were run equally often."""

    runs: Matrix
    """One row a config, in sizes, about the middle."""
    widths: Vector
    """From the best to the worst of each."""


def _batches(groups: Sequence[Group], told: Vector) -> list[_Batch]:
    by_count: dict[int, list[Vector]] = defaultdict(list)
    for group, log_size in zip(groups, told, strict=True):
        middle = (group.scores.min() + group.scores.max()) / 2
        by_count[len(group.scores)].append((group.scores - middle) / math.exp(log_size))
    return [_Batch(np.array(rows), np.ptp(rows, axis=1)) for rows in by_count.values()]


_AT = np.linspace(-1, 1, PLACES)
_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(NODES)


def _likely(batch: _Batch, factor: float, shape: Shape, own: float) -> float:
    """Logarithm of how likely the runs are, but for a constant."""
    nodes, weights = (_NODES, _WEIGHTS) if own else (np.zeros(1), np.ones(1))
    scale = factor * np.exp(own * nodes)[None, :]
    reach = batch.widths[:, None] / 2 + 5 * scale
    places = reach[:, :, None] * _AT
    total = np.zeros((*scale.repeat(len(batch.runs), 0).shape, PLACES))
    for run in batch.runs.T:
        z = (run[:, None, None] - places) / scale[:, :, None]
        tail = (shape.dof + 1) / 2 * np.log1p(z**2 / shape.dof)
        total -= np.where(z < 0, z**2 / 2, tail)
    peak = math.log(2 * shape.better_share) + log_peak(MOST_DOF)
    total += batch.runs.shape[1] * (peak - np.log(scale[:, :, None]))
    total += np.log(reach[:, :, None]) + np.log(weights / weights.sum())[None, :, None]
    return float(logsumexp(total.reshape(len(batch.runs), -1), axis=1).sum())


def _importances(rows: Mapping[str, Vector], truths: Mapping[str, float]) -> Vector:
    """How much each column says of the score, 1 in the mean. On cpu-tiny's table a distance by
    these explains twice as much of what seeds share as one in which all columns count alike."""
    keys = list(rows)
    forest = ExtraTreesRegressor(TREES, min_samples_leaf=LEAF, random_state=0)
    forest.fit(np.array([rows[key] for key in keys]), [truths[key] for key in keys])
    told: Vector = forest.feature_importances_
    return told / told.mean() if told.any() else np.ones(len(told))


def _field(
    groups: Sequence[Group], rows: Mapping[str, Vector], told: Vector
) -> tuple[float, float]:
    """How much of the noise two configs share on a seed, by least squares over all pairs of them
    that were run on the same two seeds.

    Normal scores stand for the differences, so that a ruinous seed is one and not all of it. Sizes
    are those of the level: where neighbours share their luck, the knobs would tell it as size."""
    found: dict[tuple[int, int], list[tuple[Vector, float]]] = defaultdict(list)
    for group, log_size in zip(groups, told, strict=True):
        for i in range(0, len(group.scores) - 1, 2):
            difference = (group.scores[i + 1] - group.scores[i]) / math.exp(log_size)
            found[group.seeds[i], group.seeds[i + 1]].append((rows[group.key], difference))
    distances, products = [], []
    for of_seeds in found.values():
        scores = norm.ppf((rankdata([one for _, one in of_seeds]) - 0.5) / len(of_seeds))
        first, second = np.triu_indices(len(scores), 1)
        places = np.array([row for row, _ in of_seeds])
        products.append(scores[first] * scores[second])
        distances.append(np.linalg.norm(places[first] - places[second], axis=1))
    return _falling(np.concatenate(distances), np.concatenate(products))


def _falling(distances: Vector, products: Vector) -> tuple[float, float]:
    fits: list[tuple[float, float, float]] = []
    for reach in REACHES:
        falls = np.exp(-distances / reach)
        shared = float(np.clip((falls @ products) / (falls @ falls), 0.0, 0.98))
        fits.append((float(np.sum((products - shared * falls) ** 2)), shared, reach))
    _, shared, reach = min(fits)
    return shared, reach
