"""Select what a surrogate learns from a campaign:

- One number per config, the mean of its runs, with its variance. Per run, a config that raced over
four seeds would weigh four times as much as its neighbor, and the baseline most.

- A seed affects the reference and partly its neighbors. That part is subtracted, as far as the
campaign's own races show that configs share it; at first nothing.

- Only configs better than the reference need fine distinctions. A ruinous learning rate is ten
times as far away as any gain, so much worse scores are compressed by a logarithm.

- A failed config has no number: a penalty would need an invented size, and harms the search (arXiv
2603.24647). Failure is learned separately.

- The :data:`BEST` best configs and the :data:`LATEST` latest, which bounds the time.

- Some configs of earlier campaigns, if there are any, on this campaign's scale. Each has the
baseline's mean plus its gain in standard deviations of one run here, and the baseline's values of
knobs that it does not have. It is used with probability ``PRIOR_WORTH / (PRIOR_WORTH + measured)``,
drawn afresh for each iteration, so that a misleading prior is soon outvoted. The fading follows πBO
(Hvarfner et al. 2022).
"""

import heapq
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from operator import attrgetter
from typing import Self

import numpy as np

from agent.proposers.base import SearchView
from agent.proposers.draws import rng_for
from agent.proposers.surrogate.space import Floats, Space, Values
from trajectory.evidence import ConfigEvidence, Evidence
from trajectory.ranking import Noise

BEST = 100
LATEST = 100
PRIOR_RUNS = 0.25
"""Runs here that a config of an earlier campaign counts as: another text or budget need not agree
with this one to within a run's noise."""


@dataclass(frozen=True, slots=True)
class Observed:
    """Configs that a surrogate learns from, each in the order first seen."""

    measured: tuple[ConfigEvidence, ...]
    """The best and the latest configs with more scores than failures."""
    failed: tuple[ConfigEvidence, ...]
    """The latest others that failed on any seed, at most as many as were measured."""

    @classmethod
    def of(cls, evidence: Evidence, *, best: int = BEST, latest: int = LATEST) -> Self:
        """Select configs of the evidence.

        :param best: number of the best configs.
        :param latest: number of the latest configs.
        """
        configs = evidence.configs.values()
        newest = list(islice(reversed(configs), latest))
        sound = (entry for entry in configs if is_sound(entry))
        leading = heapq.nsmallest(best, sound, key=attrgetter("mean"))
        recent = [entry for entry in newest if is_sound(entry)]
        measured = {entry.config_hash: entry for entry in (*leading, *recent)}
        failed = [entry for entry in newest if entry.failures and not is_sound(entry)]
        failed = failed[: len(measured)]
        return cls(_in_order(measured.values()), _in_order(failed))


def is_sound(entry: ConfigEvidence) -> bool:
    """Return whether a config's mean is representative. It is not if it has one score and one
    failure; a reference with many runs is, despite one failure."""
    return entry.n > len(entry.failures)


def _in_order(entries: Iterable[ConfigEvidence]) -> tuple[ConfigEvidence, ...]:
    return tuple(sorted(entries, key=lambda entry: (entry.iter, entry.config_hash)))


@dataclass(frozen=True, slots=True)
class Scores:
    """N configs as a surrogate sees them, the reference at 0 and gains below it."""

    values: tuple[Values, ...]
    points: Floats
    """[N, P]"""
    targets: Floats
    """[N]"""
    variances: Floats
    """[N]: variance of the noise in each target."""
    unit: float
    """Score difference of one unit of the targets, near the reference and below it."""

    @classmethod
    def of(
        cls,
        view: SearchView,
        space: Space,
        observed: Sequence[ConfigEvidence],
        priors: Sequence[tuple[Values, float]] = (),
    ) -> Self:
        """Scale the scores of configs.

        :param observed: configs with scores.
        :param priors: knobs and scores of configs measured elsewhere, placed last.
        """
        noise = Noise.of(view.evidence) or Noise(0.0, 0, 0.0)
        reference = view.evidence.configs[view.reference.config_hash]
        effects = {
            seed: noise.shared * (score - reference.mean)
            for seed, score in reference.scores.items()
        }
        seen = [(view.menu.knob_values(entry.config), entry) for entry in observed]
        inside = [(values, entry) for values, entry in seen if space.contains(values)]
        # Means without the seeds' effects on the reference.
        scores = [
            math.fsum(score - effects.get(seed, 0.0) for seed, score in entry.scores.items())
            / entry.n
            for _, entry in inside
        ]
        score_N = np.array([*scores, *(score for _, score in priors)])
        runs_N = np.array([entry.n for _, entry in inside] + [PRIOR_RUNS] * len(priors))
        all_values = tuple(values for values, _ in (*inside, *priors))
        above_N = score_N - reference.mean
        apart = np.abs(above_N[above_N != 0])
        unit = max(float(np.median(apart)) if len(apart) else 0.0, 2 * noise.sigma, 1e-9)
        target_N = above_N / unit
        far_N = np.maximum(target_N, 1)
        return cls(
            values=all_values,
            points=space.points(all_values),
            targets=np.where(target_N > 1, 1 + np.log(far_N), target_N),
            variances=(noise.sigma / unit) ** 2 / runs_N / far_N,
            unit=unit,
        )


PRIOR_WORTH = 5
"""Configs measured here at which half of a prior's configs are used."""
MOST = 100
"""Most points of all priors together, which bounds the time."""


def prior_points(view: SearchView, measured: int) -> list[tuple[Values, float]]:
    """Return the knobs and scores of the priors' configs used in this iteration, in their order.

    None while this campaign's own scale is unknown, or if its runs do not differ at all.
    """
    baseline = view.evidence.configs.get(view.evidence.baseline_hash or "")
    sigma = view.evidence.sigma
    if not view.priors or baseline is None or not baseline.n or not sigma:
        return []
    rng = rng_for("priors", view)
    chance = PRIOR_WORTH / (PRIOR_WORTH + measured)
    every = [config for prior in view.priors for config in prior.configs]
    chosen = [config for config in every if rng.random() < chance]
    if len(chosen) > MOST:
        chosen = [chosen[place] for place in sorted(rng.sample(range(len(chosen)), MOST))]
    domains, defaults = view.menu.domains, view.menu.defaults
    return [
        (
            defaults | {name: domains[name].normal(value) for name, value in config.values.items()},
            baseline.mean + config.gain * sigma,
        )
        for config in chosen
    ]
