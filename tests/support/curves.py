"""Provide learning curves, synthetic or from real training."""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from autoresearch.layout import CURVE_FILE
from funnel.stress.detectors import judge_run
from tests.support.rows import ok
from trainer.schema import CurveLines, CurvePoint, TrialFailed, TrialOk
from trajectory.rows import StressVerdict

Floats = NDArray[np.float64]
Shape = Callable[[Floats], Floats]
"""A function from steps [n] to losses [n]."""


def power_law(floor: float = 3.0, height: float = 4.0, exponent: float = 0.3) -> Shape:
    """Return the shape of a sound run's loss."""
    return lambda step: floor + height * step**-exponent


def points(
    loss: Sequence[float] | Floats, *, grad_norm: Floats | None = None, every: int = 1
) -> list[CurvePoint]:
    """Return the curve that logs the first step, every ``every``-th step and the last one."""
    norms = np.ones(len(loss)) if grad_norm is None else grad_norm
    return [
        CurvePoint(
            step=step,
            tokens=step * 256,
            loss=float(value),
            lr=1e-3,
            grad_norm=float(norm),
            elapsed_s=0.1 * step,
        )
        for step, (value, norm) in enumerate(zip(loss, norms, strict=True), start=1)
        if step == 1 or step % every == 0 or step == len(loss)
    ]


def left_by(trial: Path) -> list[CurvePoint]:
    """Return the curve that a trial left in its directory."""
    return CurveLines().feed((trial / CURVE_FILE).read_bytes())


def noisy(
    shape: Shape, steps: int, sigma: float, *, seed: int = 0, heavy_tailed: bool = False
) -> Floats:
    """Return the losses of ``steps`` steps with noise of ``sigma`` per batch, none negative."""
    rng = np.random.default_rng(seed)
    draws = rng.standard_t(4, steps) if heavy_tailed else rng.normal(size=steps)
    return np.maximum(shape(np.arange(1.0, steps + 1)) + sigma * draws, 0.0)


def judged(
    curve: Sequence[CurvePoint],
    result: TrialOk | TrialFailed | None = None,
    *,
    steps: int | None = None,
    warmup: int = 10,
) -> StressVerdict:
    """Return the verdict on the curve of a run that ended well."""
    steps = steps or curve[-1].step
    return judge_run(curve, result or ok(4.0), steps=steps, warmup=warmup)
