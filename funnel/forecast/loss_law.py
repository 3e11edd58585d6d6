"""Fit a law in tokens to the loss of a config's long runs, and estimate its uncertainty.

A curve counts from the end of its warm-up and initial steep fall,
``max(2 × warm-up, 5 % of the steps)``, until its learning rate falls below NEAR_PEAK of its peak.
The cloud's first day is near the peak, and the gain from a falling learning rate is not progress
of the recipe. If annealing gains 0.1 nats in all, a run has half of that at half of the peak, and a
law fitted to it bends down. At four fifths of the peak the run has gained 0.02 nats. The curve is
averaged in bins of equal width in log tokens.

Two kinds of uncertainty are estimated:

- Noise. Each replicate resamples the runs with replacement, and their residuals in blocks of
  neighboring bins (Künsch 1989, "The jackknife and the bootstrap for general stationary
  observations"; block length n^(1/3)). The cloud run is a single run too, so each replicate is
  multiplied by ``exp(N(0, run_sd))``, with the campaign's own run-to-run sd.
- Form. One law need not hold for long. The law is fitted to the earlier bins and predicts the last
  ones. Its root mean square error per doubling of tokens, over several cuts, is
  ``drift_per_doubling``. Past the last bin the forecast widens by that much with every doubling.
  The high edge never exceeds its value at the last bin, because a sound run does not rise.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from autoresearch.errors import HandoffError
from autoresearch.values import Frozen, NonNegative, Positive, PositiveInt
from funnel.forecast.power_law import Array, PowerLaws, fit_power_laws
from trainer.spec import CurvePoint

BINS = 32
FEWEST_BINS = 8
SETTLED = 0.05
"""Share of the steps before which the loss falls too steeply for a power law."""
NEAR_PEAK = 0.8
"""Least learning rate of a point that counts, relative to the peak."""
REPLICATES = 500
CUTS = (0.4, 0.5, 0.6, 0.7)
"""Shares of the bins that the law is fitted to in the backtest."""
LAST_BINS = 4
COVERAGE = 0.95


class LossLaw(Frozen):
    """The law and its uncertainty, in nats per token of the runs' own tokenizer."""

    floor: NonNegative
    """E in ``E + A (tokens / scale)^-alpha``."""
    amplitude: NonNegative
    """A in the law."""
    exponent: Positive
    """alpha in the law."""
    scale: Positive
    """Tokens by which the law is scaled."""
    from_tokens: PositiveInt
    """First token of the bins."""
    to_tokens: PositiveInt
    """Last token of the bins; the law extrapolates beyond it."""
    runs: PositiveInt
    bins: PositiveInt
    residual_sd: NonNegative
    """Relative sd of one bin about the law."""
    drift_per_doubling: NonNegative
    """Relative error of the law per doubling of tokens beyond the bins."""
    run_sd: NonNegative
    """Relative sd from one run to the next, as given to :func:`fit_loss_law`."""


@dataclass(frozen=True, slots=True)
class LawBand:
    """A law and its bootstrap replicates."""

    fall: LossLaw
    replicates: PowerLaws
    factors: Array
    """Run-to-run factor of each replicate."""

    def quantiles(self, tokens_N: Array) -> tuple[Array, Array, Array]:
        """Return low, middle and high loss at these tokens, in nats per token."""
        loss_RN = self.replicates.at(tokens_N) * self.factors[:, None]
        tail = 100 * (1 - COVERAGE) / 2
        low_N, middle_N, high_N = np.percentile(loss_RN, [tail, 50.0, 100 - tail], axis=0)
        doublings_N = np.maximum(np.log2(tokens_N / self.fall.to_tokens), 0.0)
        widening_N = np.exp(self.fall.drift_per_doubling * doublings_N)
        # The loss of a sound run does not rise, so past the last bin the high edge is capped at its
        # value there, however large the drift.
        last_R = self.replicates.at(np.array([float(self.fall.to_tokens)]))[:, 0] * self.factors
        ceiling = np.where(doublings_N > 0, np.percentile(last_R, 100 - tail), np.inf)
        return low_N / widening_N, middle_N, np.minimum(high_N * widening_N, ceiling)


def fit_loss_law(
    curves: Sequence[Sequence[CurvePoint]], *, warmup: int, run_sd: float, seed: int
) -> LawBand:
    """Fit the law of one config's long runs.

    :param curves: one curve per run, all of the same length.
    :param run_sd: relative sd from one run to the next.
    :raises HandoffError: if too few points of the curves count.
    """
    usable = [_usable(curve, warmup) for curve in curves]
    bins = _Bins.of(usable)
    law = fit_power_laws(bins.tokens, bins.mean[None, :], bins.weights)
    fitted_N = law.at(bins.tokens)[0]
    generator = np.random.default_rng(seed)
    loss_RN = _resampled(bins, fitted_N, generator)
    fall = LossLaw(
        floor=float(law.floors[0]),
        amplitude=float(law.amplitudes[0]),
        exponent=float(law.exponents[0]),
        scale=law.scale,
        from_tokens=usable[0][0].tokens,
        to_tokens=usable[0][-1].tokens,
        runs=len(curves),
        bins=len(bins.tokens),
        residual_sd=float(np.std(bins.mean / fitted_N - 1)),
        drift_per_doubling=_drift(bins),
        run_sd=run_sd,
    )
    return LawBand(
        fall=fall,
        replicates=fit_power_laws(bins.tokens, loss_RN, bins.weights),
        factors=np.exp(generator.normal(0.0, run_sd, REPLICATES)),
    )


def _usable(curve: Sequence[CurvePoint], warmup: int) -> list[CurvePoint]:
    steps = max((point.step for point in curve), default=0)
    peak = max((point.lr or 0.0 for point in curve), default=0.0)
    first = max(2 * warmup, math.ceil(SETTLED * steps)) + 1
    return [p for p in curve if p.step >= first and (p.lr or 0.0) >= NEAR_PEAK * peak]


@dataclass(frozen=True, slots=True)
class _Bins:
    """Curves of S runs in N bins; a bin is kept if every run has points in it."""

    tokens: Array
    """Geometric mean of the tokens in each bin, ``(N,)``."""
    losses: Array
    """Mean loss of each run in each bin, ``(S, N)``."""
    weights: Array
    """Mean number of points of a run in each bin, ``(N,)``."""

    @property
    def mean(self) -> Array:
        """Mean loss over the runs, ``(N,)``."""
        mean_N: Array = self.losses.mean(axis=0)
        return mean_N

    @classmethod
    def of(cls, runs: Sequence[Sequence[CurvePoint]]) -> _Bins:
        if min(map(len, runs)) < FEWEST_BINS:
            raise HandoffError(
                f"a curve of the stress test has {min(map(len, runs))} points between its warm-up "
                f"and four fifths of its peak learning rate, and a law needs {FEWEST_BINS}; run a "
                "longer one with: autoresearch stress --steps 1000"
            )
        first = max(run[0].tokens or 0 for run in runs)
        last = min(run[-1].tokens or 0 for run in runs)
        edges = np.geomspace(first * (1 - 1e-9), last * (1 + 1e-9), BINS + 1)
        totals, counts, tokens = np.zeros((3, len(runs), BINS))
        for number, run in enumerate(runs):
            t_P = np.array([point.tokens for point in run], dtype=np.float64)
            loss_P = np.array([point.loss for point in run])
            place_P = np.digitize(t_P, edges) - 1
            inside_P = (place_P >= 0) & (place_P < BINS)
            np.add.at(totals[number], place_P[inside_P], loss_P[inside_P])
            np.add.at(tokens[number], place_P[inside_P], np.log(t_P[inside_P]))
            np.add.at(counts[number], place_P[inside_P], 1)
        kept = (counts > 0).all(axis=0)
        if kept.sum() < FEWEST_BINS:
            raise HandoffError(
                f"the curves of the stress test share {int(kept.sum())} stretches of tokens, and "
                f"a law needs {FEWEST_BINS}; run a longer one with: autoresearch stress "
                "--steps 1000"
            )
        return cls(
            tokens=np.exp(tokens[:, kept].sum(axis=0) / counts[:, kept].sum(axis=0)),
            losses=totals[:, kept] / counts[:, kept],
            weights=counts[:, kept].mean(axis=0),
        )


def _resampled(bins: _Bins, fitted_N: Array, generator: np.random.Generator) -> Array:
    """Return REPLICATES bootstrapped mean curves, ``(R, N)``."""
    runs, n = bins.losses.shape
    residual_SN = (bins.losses - fitted_N) * np.sqrt(bins.weights)
    level_S = np.average(bins.losses - fitted_N, axis=1, weights=bins.weights)
    residual_SN = residual_SN - level_S[:, None] * np.sqrt(bins.weights)
    block = max(1, round(n ** (1 / 3)))
    chosen_RS = generator.integers(0, runs, (REPLICATES, runs))
    start_RSB = generator.integers(0, n - block + 1, (REPLICATES, runs, -(-n // block)))
    place_RSN = (start_RSB[..., None] + np.arange(block)).reshape(REPLICATES, runs, -1)[..., :n]
    noise_RSN = residual_SN[chosen_RS[..., None], place_RSN] / np.sqrt(bins.weights)
    loss_RN: Array = fitted_N + (noise_RSN + level_S[chosen_RS][..., None]).mean(axis=1)
    return loss_RN


def _drift(bins: _Bins) -> float:
    """Return the relative error of the law per doubling of tokens beyond the fitted bins."""
    n = len(bins.tokens)
    last = slice(n - min(LAST_BINS, n // 4), n)
    reached = math.exp(float(np.log(bins.tokens[last]).mean()))
    seen = float(np.average(bins.mean[last], weights=bins.weights[last]))
    errors = []
    for share in CUTS:
        cut = max(4, round(share * n))
        law = fit_power_laws(bins.tokens[:cut], bins.mean[None, :cut], bins.weights[:cut])
        expected = float(np.average(law.at(bins.tokens[last])[0], weights=bins.weights[last]))
        errors.append((expected / seen - 1) / math.log2(reached / bins.tokens[cut - 1]))
    return math.sqrt(float(np.mean(np.square(errors))))
