"""How well surrogates rank real runs that they were not shown, among the better third.

A search asks its model which neighbour of a good config is better still, so that is what is asked
here: half of what a model is told is drawn from anywhere, half from the better third, and it ranks
others of the better third.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from statistics import fmean

import numpy as np
from scipy.stats import spearmanr

from agent.proposers.surrogate.gaussian_process import GaussianProcess
from agent.proposers.surrogate.promise import Fit
from agent.proposers.surrogate.scales import Floats
from agent.proposers.surrogate.space import Space
from bench.figure import Figure
from bench.searches.forest import Forest
from bench.simulator.runs import RunTable

TOLD = (20, 80)
DRAWS = 12
ASKED = 150
FITS: dict[str, Fit] = {"process": GaussianProcess.fit, "forest": Forest.fit}


def run(table: RunTable, sigma: float) -> Iterator[Figure]:
    """Spearman's correlation, mean of DRAWS.

    :param sigma: of one run, in the table's scores.
    """
    space = Space.of(table.menu.domains)
    points = space.points([table.menu.knob_values(table.configs[key]) for key in table.means])
    scores = np.array(list(table.means.values()))
    for count in TOLD:
        for name, fit in FITS.items():
            rng = random.Random(count)
            ranks = [_rank(rng, fit, space, points, scores, count, sigma) for _ in range(DRAWS)]
            yield Figure(
                f"{table.name}: {name} told {count}",
                fmean(ranks),
                "rank correlation",
                note=f"{len(scores)} configs; sd of a draw {np.std(ranks):.2f}",
            )


def _rank(
    rng: random.Random,
    fit: Fit,
    space: Space,
    points: Floats,
    scores: Floats,
    count: int,
    sigma: float,
) -> float:
    good = np.argsort(scores)[: len(scores) // 3].tolist()
    told = rng.sample(range(len(scores)), count // 2)
    told += [one for one in rng.sample(good, len(good)) if one not in told][: count // 2]
    rest = [one for one in good if one not in told]
    asked = rng.sample(rest, min(ASKED, len(rest)))
    above = scores[told] - scores[told].min()
    unit = max(float(np.median(above)), 2 * sigma)
    far = np.maximum(above / unit, 1)
    targets = np.where(above > unit, 1 + np.log(far), above / unit)
    model = fit(points[told], targets, (sigma / unit) ** 2 / far, space.knobs)
    return float(spearmanr(model.predict(points[asked])[0], scores[asked]).statistic)
