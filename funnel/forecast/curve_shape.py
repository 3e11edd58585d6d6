"""Fit the shape of a loss curve relative to its final loss, which all sizes share.

``L(x) / L(1) - 1 = k (s(x)^-b - 1) + c (LD(1) - LD(x))``. Here ``x`` is the completed share of the
run, ``s`` the progress by summed learning rate, and ``LD`` the gain from decreases of the rate
(:mod:`funnel.forecast.rung_runs`). If a recipe is carried correctly, the curve relative
to its final loss is nearly the same at every size (Qiu et al. 2025, arXiv 2507.02119). ``k`` and
``c`` change with powers of parameters and tokens, which are fitted to the rungs under a prior.

The exponents, powers and speeds lie on a grid. At each grid point the two amplitudes and every
rung's own level are a linear least-squares problem, and all points are solved at once. Draws sample
grid points by how well they fit, so they reflect what the rungs leave undetermined.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import NamedTuple

import numpy as np

from funnel.forecast.robust_fit import Array
from funnel.forecast.rung_runs import BinnedCurve, RungRun, ScheduleShape

EXPONENTS = (0.15, 0.25, 0.35, 0.45, 0.55, 0.7, 0.9, 1.1)
"""Candidate values of ``b``."""
SPEEDS = (3.0, 6.0, 12.0, 25.0, 50.0, 100.0, 300.0, 1000.0)
"""Speeds at which the gain of a decrease settles, over the longest rung.

At 3 the gain has barely settled at the end of the rung; at 1000 it settles at once.
"""
PARAMS_TRENDS = (0.0, 0.1, 0.2)
TOKENS_TRENDS = (-0.5, -0.4, -0.3, -0.2, -0.1, 0.0)
"""Candidate powers of tokens by which an amplitude changes; ``PARAMS_TRENDS`` are those of
parameters."""
PARAMS_PRIOR = (0.1, 0.08)
"""Prior mean and sd of the power of parameters, for both amplitudes.

From 25 to 400 M parameters at equal length, the published fits (Luo et al.) grow by powers of 0.19
and 0.17.
"""
FALL_PRIOR, ANNEAL_PRIOR = (-0.3, 0.12), (-0.15, 0.12)
"""Prior mean and sd of the power of tokens, for each amplitude.

The data term falls with a power of 0.28 to 0.37 of the tokens (Hoffmann, Besiroglu), or of 0.43 to
0.51 of the sum of rates (Luo). The gain of annealing is proportional to the peak rate, whose
exponent is between 0 and -0.3 (Delphi).
"""
LATE = 0.8
"""Share of a run after which the curve determines its final loss."""
INDEPENDENT = 8.0
"""Effective number of a rung's bins: errors of the form are smooth, so neighboring bins share them.
"""
LEAST_ERROR = 5e-4
"""Least relative error of a bin."""


TRENDS = list(product(PARAMS_TRENDS, TOKENS_TRENDS))
"""Every pair of powers of parameters and tokens that an amplitude may have."""


@dataclass(frozen=True, slots=True)
class _Form:
    """One candidate form of a term."""

    value: float
    """Exponent of a fall, or speed at which the gain of a decrease settles."""
    is_fall: bool
    by_steps: bool = False
    """Whether a gain settles in the same number of steps in every run, not in the same share."""
    by_sums: bool = False
    """Whether a gain settles by sums of rates, not exponentially in steps."""

    def at(self, share: Array, schedule: ScheduleShape, longest: float) -> Array:
        """Return the term at an amplitude of 1, at these shares of a run.

        :param longest: steps of the longest rung.
        """
        if self.is_fall:
            progress = np.maximum(schedule.at(share, schedule.progress()), 1e-6)
            fall: Array = progress**-self.value - 1
            return fall
        speed = self.value * (schedule.steps / longest if self.by_steps else 1.0)
        gained = schedule.annealed(speed, by_sums=self.by_sums)
        left: Array = gained[-1] - schedule.at(share, gained)
        return left


FALLS = [_Form(exponent, is_fall=True) for exponent in EXPONENTS]
ANNEALS = [
    _Form(speed, False, by_steps, by_sums)
    for speed, by_steps, by_sums in product(SPEEDS, (False, True), (False, True))
]


class _Origin(NamedTuple):
    """The reference run of the amplitudes: the largest parameters, tokens and steps of any rung."""

    params: float
    tokens: float
    steps: float

    def scale(self, trend: tuple[float, float], params: float, tokens: float) -> float:
        """Return the factor of an amplitude for a run with other parameters and tokens."""
        by_params = (params / self.params) ** trend[0]
        return float(by_params * (tokens / self.tokens) ** trend[1])

    def over_end(
        self, pair: tuple[int, int], amplitude: Array, share: Array, schedule: ScheduleShape,
        size: tuple[float, float],
    ) -> Array:  # fmt: skip
        """Return ``L(x) / L(1) - 1`` of a run by one pair of candidates."""
        rise = np.zeros(len(share))
        for candidate, forms, height in zip(pair, (FALLS, ANNEALS), amplitude, strict=True):
            form, trend = divmod(int(candidate), len(TRENDS))
            feature = forms[form].at(share, schedule, self.steps)
            rise += height * self.scale(TRENDS[trend], *size) * feature
        return rise


@dataclass(frozen=True, slots=True)
class CurveShape:
    """How probable each pair of candidates, a fall F and an anneal G, is given the rungs.

    A candidate is a form with one of the TRENDS.
    """

    probability: Array
    """Probability of each pair, ``(F, G)``."""
    amplitude: Array
    """Amplitudes k and c, ``(F, G, 2)``."""
    information: Array
    """Inverse covariance of the amplitudes, ``(F, G, 2, 2)``."""
    end_level: Array
    """Fitted ``ln L(1)`` of each rung."""
    misfit: float
    """Root mean square error of a bin under the best form, noise included."""
    origin: _Origin

    def draw(
        self, share: Array, schedule: ScheduleShape, size: tuple[float, float],
        rng: np.random.Generator, count: int,
    ) -> Array:  # fmt: skip
        """Return draws of ``ln L(x) - ln L(1)`` of another run, ``(count, X)``.

        :param size: the run's parameters and tokens.
        """
        chosen = rng.choice(self.probability.size, count, p=self.probability.ravel())
        rows = np.zeros((count, len(share)))
        for row, choice in enumerate(chosen):
            pair = divmod(int(choice), self.probability.shape[1])
            root = np.linalg.cholesky(self.information[pair] + 1e-3 * np.eye(2))
            luck = np.linalg.solve(root.T, rng.standard_normal(2))
            amplitude = np.maximum(self.amplitude[pair] + luck, 0.0)
            rows[row] = self.origin.over_end(pair, amplitude, share, schedule, size)
        return np.log1p(rows)


def fit_curve_shape(runs: Sequence[RungRun]) -> CurveShape:
    """Fit the shape that these runs share.

    :raises HandoffError: if a curve is too short.
    """
    binned = [BinnedCurve.of(run) for run in runs]
    origin = _Origin(
        params=max(run.params for run in runs),
        tokens=max(run.tokens for run in runs),
        steps=float(max(run.schedule.steps for run in runs)),
    )
    x_FP, x_GP = (_features(runs, binned, forms, origin) for forms in (FALLS, ANNEALS))
    y_P = np.concatenate([_centred(curve, curve.over_end) for curve in binned])
    w_P = np.concatenate([curve.pull / curve.weight.sum() for curve in binned]) * INDEPENDENT
    amplitude, squares, information = _solve(x_FP, x_GP, y_P, w_P)
    freedom = max(INDEPENDENT * len(runs) - len(runs) - 4, 2.0)
    variance = max(float(squares.min()) / freedom, LEAST_ERROR**2)
    cost_F, cost_G = _costs(FALLS, FALL_PRIOR), _costs(ANNEALS, ANNEAL_PRIOR)
    log_probability = -squares / (2 * variance) - cost_F[:, None] - cost_G
    probability = np.exp(log_probability - log_probability.max())
    best = divmod(int(log_probability.argmax()), len(cost_G))
    levels = []
    for run, curve in zip(runs, binned, strict=True):
        size = run.params, run.tokens
        over = origin.over_end(best, amplitude[best], curve.share, run.schedule, size)
        late = curve.share >= LATE  # there the error of the form hardly matters
        level = (curve.log_loss - np.log1p(over))[late]
        levels.append(float(np.average(level, weights=curve.weight[late])))
    return CurveShape(
        probability=probability / probability.sum(),
        amplitude=amplitude,
        information=information / variance,
        end_level=np.array(levels),
        misfit=float(np.sqrt(squares[best] / (INDEPENDENT * len(runs)))),
        origin=origin,
    )


def _costs(forms: Sequence[_Form], tokens_prior: tuple[float, float]) -> Array:
    """Return the negative logarithm of each candidate's prior, without its constant."""
    params, tokens = np.array(TRENDS).T
    of_params = (params - PARAMS_PRIOR[0]) / PARAMS_PRIOR[1]
    of_tokens = (tokens - tokens_prior[0]) / tokens_prior[1]
    return np.tile((of_params**2 + of_tokens**2) / 2, len(forms))


def _features(
    runs: Sequence[RungRun], binned: Sequence[BinnedCurve], forms: Sequence[_Form], origin: _Origin
) -> Array:
    """Return one term for each candidate, ``(F, P)``, with each rung's mean subtracted."""
    columns = []
    for run, curve in zip(runs, binned, strict=True):
        features = [
            _centred(curve, form.at(curve.share, run.schedule, origin.steps)) for form in forms
        ]
        scales = [origin.scale(trend, run.params, run.tokens) for trend in TRENDS]
        columns.append(np.array([feature * scale for feature in features for scale in scales]))
    return np.concatenate(columns, axis=1)


def _centred(curve: BinnedCurve, values: Array) -> Array:
    centred: Array = values - np.average(values, weights=curve.pull)
    return centred


def _solve(x_FP: Array, x_GP: Array, y_P: Array, w_P: Array) -> tuple[Array, Array, Array]:
    """Solve for the amplitudes of every pair of candidates, none below zero.

    Return amplitudes ``(F, G, 2)``, weighted squares ``(F, G)`` and information ``(F, G, 2, 2)``.
    """
    ff_F, gg_G = (x_FP**2) @ w_P, (x_GP**2) @ w_P
    fg_FG = (x_FP * w_P) @ x_GP.T
    fy_F, gy_G, yy = x_FP @ (w_P * y_P), x_GP @ (w_P * y_P), float((w_P * y_P**2).sum())
    shape = fg_FG.shape
    ff, gg = np.broadcast_to(ff_F[:, None], shape), np.broadcast_to(gg_G[None], shape)
    fy, gy = np.broadcast_to(fy_F[:, None], shape), np.broadcast_to(gy_G[None], shape)
    determinant = np.maximum(ff * gg - fg_FG**2, 1e-12 * ff * gg + 1e-300)
    k, c = (gg * fy - fg_FG * gy) / determinant, (ff * gy - fg_FG * fy) / determinant
    only_k, only_c = np.maximum(fy / ff, 0.0), np.maximum(gy / np.maximum(gg, 1e-300), 0.0)
    alone = fy * only_k >= gy * only_c
    negative = (k < 0) | (c < 0)
    k = np.where(negative, np.where(alone, only_k, 0.0), k)
    c = np.where(negative, np.where(alone, 0.0, only_c), c)
    squares = yy - 2 * (k * fy + c * gy) + k * k * ff + 2 * k * c * fg_FG + c * c * gg
    ridge = 1e-9
    information = np.stack(
        [np.stack([ff + ridge, fg_FG], axis=-1), np.stack([fg_FG, gg + ridge], axis=-1)], axis=-2
    )
    return np.stack([k, c], axis=-1), np.maximum(squares, 0.0), information
