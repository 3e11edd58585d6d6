"""Detect trouble in a long run's learning curve and give a verdict; all functions are pure.

A rise of the level counts if it exceeds both an amount that matters and a multiple of what noise
alone would show (levels, noise and excursions: :mod:`funnel.stress.curve`). Thresholds are named
below, each with its reason.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from funnel.stress.curve import MIN_POINTS, Curve, Excursion, excursions, level_se, noise_sd
from funnel.stress.stall import LEAST_FALL, find_stall
from trainer.schema import CurvePoint, Measured, TrialFailed
from trajectory.rows import StressVerdict

RISE_NATS = 0.1
"""Smallest rise of the loss in nats that is worth a verdict. A tenth of a nat is ten percent of
perplexity."""
RISE_SHARE = 0.03
"""The same threshold for losses of unknown unit, as a share of the median loss. It is a tenth of a
nat of the three or so that language models are trained down to."""
SHORT_Z = 4.0
"""Threshold of a short level, in sigmas of one point. Of a thousand medians of seven, the highest
lies 1.6 sigmas up, and the best of the wide levels before it 0.7 down."""
WIDE_Z = 6.0
"""Threshold in standard errors of a wide level. It must cover the luck of the best of many levels,
about three, and that of the level compared with it, again three."""
BLOWUP_FACTOR = 10.0
"""Factor by which the gradient norm must rise. In sound runs it drifts by factors of two or three.
"""

FLAT_AFTER_SHARE = 0.8
"""Share of the schedule after which a run may go flat, since it has had its schedule."""
FLAT_LOSS_SHARE = 0.01
"""Fall of the loss per factor e (2.7) in steps, as a share of the loss, below which it is flat. At
the end of a sound pretraining run, with the exponents of Hoffmann et al. 2022, the fall is two to
three percent."""
FLAT_RATIO = 0.1
"""The same threshold as a share of the earlier fall per factor e in steps. A power law of exponent
0.5 keeps half of its pace or more."""
FLAT_Z = 3.0
"""Standard errors added to the slope before it is called flat, so that noise cannot hide a larger
fall."""
_FLAT_GRID = np.arange(0.1, FLAT_AFTER_SHARE + 1e-9, 0.05)
"""Shares of the schedule that are tried as the start of flatness."""
_BINS = 20


def divergence(curve: Curve) -> StressVerdict | None:
    """Find the step from which the loss rose and stayed up: it ends above its best, by more than
    noise explains."""
    risen = [excursion for excursion in _loss_excursions(curve) if excursion.end is None]
    if not risen:
        return None
    first = min(risen, key=lambda excursion: excursion.start)
    return StressVerdict(
        outcome="diverges",
        step=int(curve.step[first.start]),
        explanation=f"the loss rose from {first.best:.3f} and ended at {curve.last_level:.3f}"
        f"{curve.unit} (noise of one step {curve.noise:.3f})",
    )


def spikes(curve: Curve) -> list[StressVerdict]:
    """Find each rise of the loss that came back, after the settling."""
    found: list[StressVerdict] = []
    covered = -1
    passed = (e for e in _loss_excursions(curve) if e.end is not None)
    for excursion in sorted(passed, key=lambda e: e.start):
        end = excursion.end or 0
        step = int(curve.step[excursion.start])
        if step <= curve.settled or excursion.start <= covered:
            continue
        covered = end
        found.append(
            StressVerdict(
                outcome="spikes",
                step=step,
                explanation=f"the loss rose from {excursion.best:.3f} to {excursion.peak:.3f}"
                f"{curve.unit} and was back by step {curve.step[end]} (noise of one step "
                f"{curve.noise:.3f})",
            )
        )
    return found


def gradient_blowup(curve: Curve) -> StressVerdict | None:
    """Find the step from which the gradient norm stayed BLOWUP_FACTOR-fold higher, after the
    settling."""
    x = curve.log_grad_norm[curve.begins :]
    if len(x) < 2 * curve.wide:
        return None
    se = level_se(x, noise_sd(x, curve.wide), curve.wide, curve.wide)
    threshold = max(math.log(BLOWUP_FACTOR), WIDE_Z * se)
    for excursion in excursions(curve, x, curve.wide, threshold, best_at_first=math.inf):
        if excursion.end is None:
            best, peak = math.exp(excursion.best), math.exp(excursion.peak)
            return StressVerdict(
                outcome="grad_blowup",
                step=int(curve.step[curve.begins + excursion.start]),
                explanation=f"the gradient norm rose from {best:.3g} to {peak:.3g} and stayed "
                "there",
            )
    return None


def plateau(
    curve: Curve, *, flat_share: float = FLAT_LOSS_SHARE, least_fall: float = LEAST_FALL
) -> StressVerdict | None:
    """Find the step from which the loss stopped falling, if before FLAT_AFTER_SHARE of the
    schedule.

    Either the slope alone shows it, or a curve that stopped fits better than one that continued
    (:mod:`funnel.stress.stall`).

    :param flat_share: fall of the loss per factor e in steps below which it is flat, as a share.
    :param least_fall: smallest missed fall, as a share of the loss, that is worth reporting.
    """
    if not curve.knows_rate:  # an unknown schedule may be what flattens the curve
        return None
    flat = _flat_slope(curve, flat_share)
    if flat is not None:
        return flat
    # A spike spoils both fits.
    stall = None if spikes(curve) else find_stall(curve, least_fall)
    if stall is None:
        return None
    return StressVerdict(
        outcome="plateaus",
        step=stall.step,
        explanation=f"from step {stall.step} on the loss fell by {stall.seen:.3f} nats per token, "
        f"where by the curve before it and the schedule {stall.due:.3f} were due",
    )


def _flat_slope(curve: Curve, flat_share: float) -> StressVerdict | None:
    """Find the step from which the slope is flat.

    The slope is that of the loss over the logarithm of the step, in nats per factor e, fitted to
    medians of bins. On this axis a power law keeps falling at any number of steps.
    """
    level = float(np.median(curve.loss[-curve.wide :]))
    last = _slope(curve, FLAT_AFTER_SHARE, 1.0)
    for share in _FLAT_GRID:
        after = _slope(curve, share, 1.0)
        before = _slope(curve, share / 4, share)
        if after is None or last is None:
            continue
        pace = 0.0 if before is None else max(0.0, before.fall - FLAT_Z * before.se)
        bound = max(flat_share * level, FLAT_RATIO * pace)
        if after.fall + FLAT_Z * after.se < bound and last.fall - FLAT_Z * last.se < bound:
            step = max(1, round(share * curve.steps))
            return StressVerdict(
                outcome="plateaus",
                step=step,
                explanation=f"from step {step} on the loss fell by {after.fall:.3f} "
                f"(se {after.se:.3f}) nats per token for each factor e in steps; below "
                f"{bound:.3f} it counts as flat",
            )
    return None


def _loss_excursions(curve: Curve) -> Iterator[Excursion]:
    """Yield excursions of the loss, over windows of both widths."""
    # At first, the best level is the loss of the first step, within its noise.
    first = float(curve.loss[0]) + 3 * curve.noise
    rise = RISE_NATS
    if not curve.knows_rate:
        rise = RISE_SHARE * abs(float(np.median(curve.loss)))
    short = max(rise, SHORT_Z * curve.noise)
    wide = max(rise, WIDE_Z * curve.wide_se)
    for width, threshold in ((curve.short, short), (curve.wide, wide)):
        yield from excursions(curve, curve.loss, width, threshold, best_at_first=first)


@dataclass(frozen=True, slots=True)
class _Slope:
    """The speed at which the loss falls, in nats per token for each factor e in steps."""

    fall: float
    se: float


def _slope(curve: Curve, begin: float, end: float) -> _Slope | None:
    """Fit the slope between two shares of the schedule; return None if there are too few points."""
    inside = (curve.step >= begin * curve.steps) & (curve.step <= end * curve.steps)
    count = int(inside.sum())
    bins = min(_BINS, count // 3)
    if bins < 3:
        return None
    x = np.log(curve.step[inside])
    groups = np.array_split(np.arange(count), bins)
    x_bins = np.array([x[group].mean() for group in groups])
    y_bins = np.array([np.median(curve.loss[inside][group]) for group in groups])
    x_bins -= x_bins.mean()
    spread = float((x_bins**2).sum())
    slope = float((x_bins * y_bins).sum()) / spread
    residual = y_bins - y_bins.mean() - slope * x_bins
    residual_sd = math.sqrt(float((residual**2).sum()) / (bins - 2))
    sd = max(
        level_se(curve.loss[curve.begins :], curve.noise, count // bins, curve.wide), residual_sd
    )
    return _Slope(-slope, sd / math.sqrt(spread))


def judge_run(
    points: Sequence[CurvePoint], result: Measured | TrialFailed, *, steps: int, warmup: int
) -> StressVerdict:
    """Return the verdict on one run: the most severe thing that happened.

    A run that ran out of memory or time is judged by its curve if that shows trouble of its own,
    and is ``failed`` otherwise.

    :param points: the curve as far as it exists, in ascending steps.
    :param steps: steps of the schedule.
    :param warmup: steps of the schedule in which the learning rate still rises.
    """
    last_step = points[-1].step if points else 0
    if isinstance(result, TrialFailed) and result.status == "nonfinite":
        done = last_step if result.steps is None else result.steps
        return StressVerdict(outcome="nonfinite", step=done + 1, explanation=result.message)
    if result.is_printed and _ended_elsewhere(points, steps):
        return StressVerdict(
            outcome="failed",
            step=last_step or None,
            explanation=f"its curve ends at step {last_step}, not {steps} as requested: the script "
            "ignores the requested length, or its curve counts in another unit",
        )
    if len(points) >= MIN_POINTS:
        curve = Curve(points, steps=steps, warmup=warmup)
        verdict = divergence(curve) or gradient_blowup(curve)
        if verdict is None and not isinstance(result, TrialFailed):
            verdict = plateau(curve) or _spiked(spikes(curve))
        if verdict is not None:
            return verdict
    if isinstance(result, TrialFailed):
        why = f"{result.status}: {result.message}"
        return StressVerdict(outcome="failed", step=last_step + 1, explanation=why)
    if len(points) < MIN_POINTS:
        # A command that ended with a score need not print a curve.
        return StressVerdict(
            outcome="survives" if result.is_printed else "failed",
            explanation=f"its curve has {len(points)} points, and {MIN_POINTS} are needed to judge",
        )
    return StressVerdict(outcome="survives", explanation="no detector found anything")


def _spiked(rises: Sequence[StressVerdict]) -> StressVerdict | None:
    if len(rises) < 2:
        return rises[0] if rises else None
    more = f"{rises[0].explanation}; {len(rises)} such spikes in all"
    return rises[0].model_copy(update={"explanation": more})


def _ended_elsewhere(points: Sequence[CurvePoint], steps: int) -> bool:
    """Return whether a command's curve ends at another step than requested, by more than the
    distance between two of its points. Scripts count from 0 or from 1, and print only every so many
    steps."""
    if len(points) < 2 or not steps:
        return False
    between = max(b.step - a.step for a, b in pairwise(points))
    return abs(points[-1].step - steps) > between
