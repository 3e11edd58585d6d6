"""Forecast the target's loss curve from a ladder.

The curve is the final loss, from the ladder's law, times the shape of a curve under the target's
schedule. The law (:mod:`funnel.forecast.scaling_law`) is fitted to the ends of the rungs' training
curves, because a comparison also sees training losses. The shape comes from
:mod:`funnel.forecast.curve_shape`. Draws of both give the band, and the smooth modes from
which a comparison draws sound runs. The form of the shape adds two errors to the spread of the
draws:

- At least ``FORM``, from the error on published curves (data of Luo et al. 2025, docs/forecast.md).
  The shape was fitted to two Llama-2 models of 25 and 100 M and predicted one of 400 M, at four
  times the compute. Its error was 0.2 % root mean square and at most 0.6 %.
- The error on the largest rungs when the shape is fitted to the smaller ones.

Both grow with the square root of the doublings of compute between the fitted and the predicted run.
"""

import math
from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np

from funnel.forecast.band import (
    BothRuns,
    Forecast,
    ForecastPoint,
    LadderBasis,
    log_middle,
)
from funnel.forecast.curve_shape import CurveShape, fit_curve_shape
from funnel.forecast.faults import catches, planned
from funnel.forecast.robust_fit import Array
from funnel.forecast.rung_runs import BinnedCurve, RungRun, ScheduleShape, first_share
from funnel.forecast.scaling_law import FinishedRun, ScalingFit, fit_scaling_law
from funnel.forecast.watch import (
    LEAST_WIGGLE,
    SoundRuns,
    Watch,
    median_error,
    noise_of,
    principal_modes,
)
from funnel.target.shape import size_text

POINTS = 161
"""Number of points; ``POINTS - 1`` is a multiple of eight, for the milestones."""
FORM = 0.004
FORM_DOUBLINGS = 2.0
"""Doublings of compute over which ``FORM`` was measured."""
LEAST_FREEDOM, MOST_FREEDOM = 8.0, 30.0
QUIETER_MOST = 4.0
"""Largest factor by which a larger batch is assumed to reduce the noise."""
_KEPT_RUNGS = 3
_BACKTESTS = 2


def make_ladder_forecast(
    runs: Sequence[RungRun],
    both: BothRuns,
    schedule: ScheduleShape,
    *,
    seed: int,
    other_rules: Sequence[str] = (),
) -> Forecast:
    """Return the forecast of the target's run from a ladder.

    :param runs: the ladder's runs of one recipe, each trained to its end.
    :param schedule: the target's schedule.
    :param other_rules: differences, in words, between the rules that carried the recipe to the
        target and to the rungs.
    :raises HandoffError: if the ladder gives no law, or the bytes per token are unknown.
    """
    rng = np.random.default_rng(seed)
    shape = fit_curve_shape(runs)
    finished = [
        FinishedRun(params=run.params, tokens=run.tokens, loss=math.exp(level) * both.nats_to_bpb)
        for run, level in zip(runs, shape.end_level, strict=True)
    ]
    fit = fit_scaling_law(finished, seed=seed)
    size, total = float(both.target_params), float(schedule.steps * both.tokens_per_step)
    share_P = _places(first_share(schedule))
    ends_R = np.log(fit.draws(size, total))
    descent_RP = shape.draw(share_P, schedule, (size, total), rng, len(ends_R))
    far = float(fit.doublings(size, total))
    log_RP = ends_R[:, None] + descent_RP + _form_doubt(runs, far, share_P, rng, len(ends_R))
    tokens_P = np.maximum(np.round(share_P * total), 1)
    points = tuple(
        ForecastPoint(
            tokens=int(tokens),
            step=max(1, round(tokens / both.tokens_per_step)),
            low_bpb=low,
            middle_bpb=middle,
            high_bpb=high,
        )
        for tokens, low, middle, high in zip(
            tokens_P, *np.exp(np.percentile(log_RP, [2.5, 50.0, 97.5], axis=0)), strict=True
        )
    )
    sound = _sound_runs(runs, shape, fit, both, tokens_P, log_RP)
    basis = _basis(fit, size, schedule, sound, points)
    return Forecast(
        **dict(both),
        points=points,
        assumptions=tuple(assumptions_of(basis, both, runs, other_rules)),
        ladder=basis,
    )


def _places(first: float) -> Array:
    """Return ``POINTS`` shares of a run, from ``first`` to 1.

    Half are spaced geometrically and half linearly, so a sharp fall at the end is resolved too.
    """
    half = POINTS // 2
    by_factor = np.geomspace(first, 1.0, half + 2)[:-1]
    by_step = np.linspace(first, 1.0, half + 2)[1:-1]
    places = np.unique(np.concatenate([by_factor, by_step, [1.0]]))
    missing = POINTS - len(places)
    if missing > 0:
        gaps = np.argsort(np.diff(places))[::-1][:missing]
        places = np.sort(np.concatenate([places, (places[gaps] + places[gaps + 1]) / 2]))
    return places[-POINTS:]


def _form_doubt(
    runs: Sequence[RungRun],
    far: float,
    share_P: Array,
    rng: np.random.Generator,
    count: int,
) -> Array:
    """Return draws of the form's log error, ``(count, P)``; it is zero at the end of the run.

    :param far: doublings of compute from the largest rung to the target.
    """
    log_left_P = np.log(share_P) / math.log(share_P[0])  # 1 at the first place, 0 at the end
    scale = FORM * math.sqrt(max(far / FORM_DOUBLINGS, 1.0))
    modes = [scale * (1 - share_P) * np.cos(math.pi * k * log_left_P) for k in range(3)]
    modes.extend(_seen_errors(runs, share_P, max(far, 1.0), rng))
    return rng.standard_normal((count, len(modes))) @ np.array(modes)


def _seen_errors(
    runs: Sequence[RungRun], share_P: Array, far: float, rng: np.random.Generator
) -> list[Array]:
    """Return the shape's errors on the largest rungs when it is fitted to the smaller ones."""
    sizes = sorted({run.compute for run in runs})
    errors = []
    for size in sizes[_KEPT_RUNGS:][-_BACKTESTS:]:
        seen = [run for run in runs if run.compute < size]
        asked = next(run for run in runs if run.compute == size)
        curve = BinnedCurve.of(asked)
        drawn = fit_curve_shape(seen).draw(
            curve.share, asked.schedule, (asked.params, asked.tokens), rng, 100
        )
        error = curve.log_loss - np.median(drawn, axis=0)
        late = curve.share > 0.8
        error -= np.average(error[late], weights=curve.weight[late])
        doublings = max(math.log2(size / max(run.compute for run in seen)), 1.0)
        smooth = np.convolve(np.pad(error, 4, mode="edge"), np.ones(9) / 9, mode="valid")
        grown = smooth * math.sqrt(max(far / doublings, 1.0))
        errors.append(np.interp(share_P, curve.share, grown) * (share_P < 1))
    return [error / math.sqrt(len(errors)) for error in errors]


def _sound_runs(
    runs: Sequence[RungRun],
    shape: CurveShape,
    fit: ScalingFit,
    both: BothRuns,
    tokens_P: Array,
    log_RP: Array,
) -> SoundRuns:
    largest = max(runs, key=lambda run: run.compute)
    first = first_share(largest.schedule) * largest.schedule.steps
    curve = [p.loss for p in largest.curve if p.step > first and math.isfinite(p.loss)]
    noise, correlation = noise_of(np.log(curve))
    per_bin = len(curve) / len(BinnedCurve.of(largest).share)
    bin_noise = noise * math.sqrt((1 + correlation) / (1 - correlation) / per_bin)
    quieter = math.sqrt(both.tokens_per_step / largest.tokens_per_step)
    # With few rungs some draws lie far out: they are tails and must not inflate the sd.
    inner_RP = np.clip(log_RP, *np.percentile(log_RP, [1.0, 99.0], axis=0))
    return SoundRuns(
        log_tokens=tuple(float(v) for v in np.log(tokens_P)),
        modes=principal_modes(inner_RP),
        freedom=min(max(float(fit.runs), LEAST_FREEDOM), MOST_FREEDOM),
        wiggle=max(LEAST_WIGGLE, math.sqrt(max(shape.misfit**2 - bin_noise**2, 0.0))),
        noise=noise / min(max(quieter, 1.0), QUIETER_MOST),
        correlation=correlation,
    )


def _basis(
    fit: ScalingFit,
    size: float,
    schedule: ScheduleShape,
    sound: SoundRuns,
    points: tuple[ForecastPoint, ...],
) -> LadderBasis:
    total = float(points[-1].tokens)
    tokens_W, points_W = planned(first_share(schedule), total, schedule.steps)
    error_W = median_error(sound.noise, sound.correlation, points_W)
    watch = Watch(sound, tokens_W, error_W, total, partial(log_middle, points))
    wrong_size = float(np.log(fit.law.at(size / 2, total) / fit.law.at(size, total)))
    low, middle, high = (float(edge) for edge in fit.predict(size, total))
    return LadderBasis(
        law=fit.law,
        exponents=fit.exponents,
        runs=fit.runs,
        scatter=fit.scatter,
        drift_per_doubling=fit.drift_per_doubling,
        doublings=float(fit.doublings(size, total)),
        end_low_bpb=low,
        end_middle_bpb=middle,
        end_high_bpb=high,
        total_tokens=round(total),
        wrong_size=wrong_size,
        sound=sound,
        caught=catches(watch, wrong_size),
    )


def assumptions_of(
    basis: LadderBasis,
    both: BothRuns,
    runs: Sequence[RungRun],
    other_rules: Sequence[str] = (),
) -> Iterator[str]:
    """Yield the assumptions of a forecast from a ladder, one sentence each.

    :param other_rules: differences, in words, between the rules that carried the recipe to the
        target and to the rungs.
    """
    largest = max(runs, key=lambda run: run.compute)
    spread = basis.exponents
    yield (
        f"the cloud trains on text like the corpus {both.corpus}, and repeats none of it so often "
        "that the training loss understates the loss on new text; other texts give other numbers"
    )
    yield (
        f"the end is the law of {basis.runs} runs, whose largest has "
        f"{size_text(round(largest.params))} parameters and {size_text(round(largest.tokens))} "
        f"tokens: {basis.doublings:.1f} doublings of compute below the target; the law errs by "
        f"{basis.drift_per_doubling:.2%} with each, as it did over the largest rungs when it was "
        f"fitted to the smaller; its exponents are {basis.law.alpha:.2f} "
        f"({spread.alpha_low:.2f} to {spread.alpha_high:.2f}) and {basis.law.beta:.2f} "
        f"({spread.beta_low:.2f} to {spread.beta_high:.2f}), correlated by {spread.correlation:.2f}"
    )
    yield (
        "the way down is that of the rungs, by what the target's schedule does to it (Luo et al. "
        "2025, arXiv 2503.12811); the recipe was carried to every rung "
        + (
            f"otherwise than to the target ({'; '.join(other_rules)})"
            if other_rules
            else "by the same rules as to the target"
        )
    )
    yield (
        f"a sound run differs from another by {basis.scatter:.2%}, wanders by "
        f"{basis.sound.wiggle:.2%} and has a noise of {basis.sound.noise:.2%} a step, as the "
        "largest rung had"
    )
