"""Predict by a surrogate how far configs improve, and whether they train at all."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from agent.proposers.base import SearchView
from agent.proposers.surrogate.gaussian_process import GaussianProcess
from agent.proposers.surrogate.observed import Observed, Scores
from agent.proposers.surrogate.space import Floats, Space, Values
from autoresearch.domains.base import Domain
from autoresearch.domains.choices import Choices
from autoresearch.values import Scalar
from trainer.schema import AnyConfig
from trajectory.ranking import Noise

ELITES = 8
"""Number of configs to take single values from."""
FAILURE_VARIANCE = 0.05
"""Noise variance of a failure (0 or 1) as evidence about the chance that neighbors fail."""
CERTAIN = 1e-4


def expected_improvement(mean_M: Floats, sd_M: Floats, bar: float) -> Floats:
    """Return the expected amount by which a normal variable falls below the bar (Mockus, Tiesis and
    Zilinskas 1978)."""
    z_M = (bar - mean_M) / sd_M
    below_M = 0.5 * np.array([math.erfc(-z / math.sqrt(2)) for z in z_M.tolist()])
    density_M = np.exp(-0.5 * z_M**2) / math.sqrt(2 * math.pi)
    improvement_M: Floats = (bar - mean_M) * below_M + sd_M * density_M
    return improvement_M


@dataclass(frozen=True, slots=True)
class Promise:
    """A surrogate of a campaign's present state, which scores edits of its reference."""

    space: Space
    now: Values
    """Knobs of the reference."""
    scores: GaussianProcess
    failing: GaussianProcess | None
    """Model of the chance to fail; None if nothing has failed."""
    reference_bar: float
    """The reference's score according to the surrogate."""
    best_bar: float
    """Score of the best config measured here, kept or not; at most the reference's."""
    provable: float
    """Least gain that a whole race keeps; 0 while the noise or the rules are unknown."""
    unit: float
    """Score difference of one unit of the surrogate's scores, near the reference and below it."""
    elites: tuple[Values, ...]
    """Knobs of the best observed configs, without the reference."""

    @classmethod
    def of(
        cls,
        view: SearchView,
        observed: Observed,
        priors: Sequence[tuple[Values, float]] = (),
    ) -> Self:
        """Fit the surrogates to a campaign.

        :param priors: knobs and scores of configs measured elsewhere.
        """
        space = Space.of(_domains(view))
        seen = Scores.of(view, space, observed.measured, priors)
        model = GaussianProcess.fit(seen.points, seen.targets, seen.variances, space.knobs)
        failed = _points(view, space, [entry.config for entry in observed.failed])
        failing = None
        if len(failed):
            both = np.concatenate([seen.points, failed])
            share = np.repeat([0.0, 1.0], [len(seen.points), len(failed)])
            failing = model.about(both, share, np.full(len(both), FAILURE_VARIANCE))
        believed_N = model.predict(seen.points)[0]
        order = np.argsort(believed_N, kind="stable")[: ELITES + 1]
        pending = _points(view, space, view.pending)
        # assume their expected scores, so that further proposals explore elsewhere
        if len(pending):
            model = model.about(
                np.concatenate([seen.points, pending]),
                np.concatenate([seen.targets, model.predict(pending)[0]]),
                np.concatenate([seen.variances, np.full(len(pending), CERTAIN)]),
            )
        now = view.menu.knob_values(view.reference)
        reference_bar = float(model.predict(space.points([now]))[0][0])
        here = seen.points[: len(seen.points) - len(priors)]
        return cls(
            space=space,
            now=now,
            scores=model,
            failing=failing,
            reference_bar=reference_bar,
            best_bar=min([reference_bar, *model.predict(here)[0].tolist()]),
            provable=provable(view) / seen.unit,
            unit=seen.unit,
            elites=tuple(seen.values[place] for place in order if seen.values[place] != now),
        )

    def worth(self, edits: Sequence[Mapping[str, Scalar]], bar: float) -> Floats:
        """Return each edit's expected improvement on the bar, times the chance that it trains."""
        points_MP = self.space.edited(self.now, edits)
        worth_M = expected_improvement(*self.scores.predict(points_MP), bar)
        if self.failing is not None:
            worth_M = worth_M * (1 - np.clip(self.failing.predict(points_MP)[0], 0, 1))
        return worth_M

    def effects(self, edits: Sequence[Mapping[str, Scalar]]) -> tuple[list[float], list[float]]:
        """Return each edit's predicted difference from the reference, and its standard
        deviation."""
        mean_M, sd_M = self.scores.predict(self.space.edited(self.now, edits))
        # Undo the compression of much worse scores.
        score_M = np.where(mean_M > 1, np.exp(np.maximum(mean_M, 1) - 1), mean_M)
        delta_M = (score_M - self.reference_bar) * self.unit
        return delta_M.tolist(), (sd_M * np.maximum(score_M, 1) * self.unit).tolist()


def provable(view: SearchView) -> float:
    """Return the least gain that a whole race keeps, as a difference of objectives; 0 while the
    noise or the rules are unknown."""
    noise, rules = Noise.of(view.evidence), view.rules
    if noise is None or rules is None:
        return 0.0
    runs = view.evidence.configs[view.reference.config_hash].n
    return rules.z_keep * noise.stderr(rules.max_runs, runs)


def _domains(view: SearchView) -> dict[str, Domain]:
    """Return the knobs' domains; of code, the functions seen so far, if there are several."""
    domains = dict(view.menu.domains)
    for name in view.menu.code_knobs:
        configs = (view.reference, *(one.config for one in view.evidence.configs.values()))
        seen = sorted({str(view.menu.knob_value(config, name)) for config in configs})
        if len(seen) > 1:
            domains[name] = Choices(choices=tuple(seen))
        else:
            del domains[name]
    return domains


def _points(view: SearchView, space: Space, configs: Sequence[AnyConfig]) -> Floats:
    values = [view.menu.knob_values(config) for config in configs]
    return space.points([one for one in values if space.contains(one)])
