"""Judge a long run: one word for its config, with the step at which it happened."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from funnel.stress.curve import MIN_POINTS, Curve
from funnel.stress.detectors import divergence, gradient_blowup, plateau, spikes
from trainer.spec import CommandOk, CurvePoint, Measured, TrialFailed
from trajectory.rows import StressVerdict


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
    if isinstance(result, CommandOk) and _ended_elsewhere(points, steps):
        return StressVerdict(
            outcome="failed",
            step=last_step or None,
            explanation=f"its curve ends at step {last_step}, not {steps} as requested: the script "
            "ignores the requested length, or its curve counts in another unit",
        )
    if len(points) >= MIN_POINTS:
        verdict = _judge_curve(Curve(points, steps=steps, warmup=warmup), result)
        if verdict is not None:
            return verdict
    if isinstance(result, TrialFailed):
        why = f"{result.status}: {result.message}"
        return StressVerdict(outcome="failed", step=last_step + 1, explanation=why)
    if len(points) < MIN_POINTS:
        return _of_too_few(len(points), result)
    return StressVerdict(outcome="survives", explanation="no detector found anything")


def _of_too_few(points: int, result: Measured) -> StressVerdict:
    if isinstance(result, CommandOk):
        return StressVerdict(
            outcome="survives",
            explanation=f"it ended with a score; its curve has {points} points, of {MIN_POINTS} "
            "that a verdict on it needs",
        )
    return StressVerdict(
        outcome="failed",
        explanation=f"its curve has {points} points, and {MIN_POINTS} are needed to judge",
    )


def _ended_elsewhere(points: Sequence[CurvePoint], steps: int) -> bool:
    """Return whether a command's curve ends at another step than requested, by more than the
    distance between two of its points. Scripts count from 0 or from 1, and print only every so many
    steps."""
    if len(points) < 2 or not steps:
        return False
    between = max(b.step - a.step for a, b in pairwise(points))
    return abs(points[-1].step - steps) > between


def _judge_curve(curve: Curve, result: Measured | TrialFailed) -> StressVerdict | None:
    rose = divergence(curve)
    if rose is not None:
        return StressVerdict(outcome="diverges", step=rose.step, explanation=rose.explanation)
    blew_up = gradient_blowup(curve)
    if blew_up is not None:
        return StressVerdict(
            outcome="grad_blowup", step=blew_up.step, explanation=blew_up.explanation
        )
    if isinstance(result, TrialFailed):
        return None
    flat = plateau(curve)
    if flat is not None:
        return StressVerdict(outcome="plateaus", step=flat.step, explanation=flat.explanation)
    rises = spikes(curve)
    if rises:
        more = f"; {len(rises)} such spikes in all" if len(rises) > 1 else ""
        return StressVerdict(
            outcome="spikes", step=rises[0].step, explanation=rises[0].explanation + more
        )
    return None
