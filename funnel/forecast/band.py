"""Forecast the target's loss curve from a ladder, as ``forecast.json`` of a launch plan holds it.

The curve is the final loss, by the law of the rungs' ends (:mod:`funnel.forecast.scaling_law`),
times the way down to it, by the schedule's correction (:mod:`funnel.forecast.schedule`). Both are
drawn again and again, the law by its replicates and the way down by fits to resampled rungs. The
band contains 95 % of the draws at each point.
"""

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import numpy as np
from pydantic import Field, ValidationError

from autoresearch.errors import HandoffError
from autoresearch.files import read_given
from autoresearch.values import Frozen, NonNegative, Positive, PositiveInt, explain
from funnel.forecast.scaling_law import (
    Array,
    FinishedRun,
    ScalingFit,
    ScalingLaw,
    fit_scaling_law,
)
from funnel.forecast.schedule import Curves, RungRun, ScheduleShape, over_end
from funnel.targets.shape import size_text

POINTS, RESAMPLES = 82, 40
# The relative error of the way down at its beginning (its form was off by 0.2 to 0.6 % for a
# published run of four times the compute: Luo et al. 2025, arXiv 2503.12811), and the relative sd
# by which sound runs wander about their own trend.
FORM, WANDER = 0.006, 0.003
# The excess of the loss that a usable forecast shows, and the half widths of the band at which a
# loss departs: about three sds.
SHOWN_EXCESS, ALARM = 0.05, 1.6
# With it 95 % of the runs that are SHOWN_EXCESS too high depart.
USABLE_HALF_WIDTH = SHOWN_EXCESS / (ALARM + 0.9)


class BothRuns(Frozen, extra="ignore"):
    """The ladder's text and the target's run, as a launch plan records them.

    Bytes per token are means of UTF-8; ``corpus_bytes_per_token`` is that of the proxies'
    tokenizer, ``bytes_per_token`` that of the target's, None if unknown. ``first_day_tokens`` are
    those of 24 hours at the planned utilization, even if the run is shorter.
    """

    target: str
    corpus: str
    corpus_bytes_per_token: Positive
    bytes_per_token: Positive | None
    target_params: PositiveInt  # without embeddings
    tokens_per_step: PositiveInt
    seq_len: PositiveInt
    first_day_tokens: PositiveInt
    schedule: ScheduleShape


class ForecastPoint(Frozen):
    """The band at one number of tokens; its half width is relative to its middle."""

    tokens: PositiveInt
    step: PositiveInt
    low_bpb: Positive
    middle_bpb: Positive
    high_bpb: Positive

    @property
    def half_width(self) -> float:
        return (self.high_bpb - self.low_bpb) / (2 * self.middle_bpb)


class LadderBasis(Frozen):
    """The ladder that a forecast rests on.

    ``doublings`` are those of compute from the largest rung to the target. ``missed`` is the
    relative error of the ladder's own prediction of its largest rung, if that lay outside its
    interval.
    """

    law: ScalingLaw
    drift_per_doubling: NonNegative
    doublings: NonNegative
    missed: float | None = None


class Forecast(BothRuns):
    """Expected loss of the cloud run, from ``points[0].tokens`` to ``points[-1].tokens``."""

    points: Annotated[tuple[ForecastPoint, ...], Field(min_length=2)]
    assumptions: tuple[str, ...]
    ladder: LadderBasis

    @property
    def telling_point(self) -> ForecastPoint | None:
        """The point from which a comparison can confirm the run; None if it never can."""
        if self.ladder.missed is not None:
            return None
        return next((p for p in self.points if p.half_width <= USABLE_HALF_WIDTH), None)

    @property
    def worth(self) -> str:
        """What a comparison with this forecast can show, in a sentence without a full stop."""
        if (point := self.telling_point) is not None:
            return (
                f"from step {point.step:,} (hour {24 * point.tokens / self.first_day_tokens:,.3g}) "
                f"on the band shows a loss that is {SHOWN_EXCESS:.0%} too high"
            )
        if self.ladder.missed is not None:
            return (
                "the forecast is worthless: the ladder's prediction of its own largest rung was "
                f"{self.ladder.missed:+.1%} off and outside its interval"
            )
        return (
            f"the forecast is worthless: its band is ± {self.points[-1].half_width:.1%} at the "
            f"end, {self.ladder.doublings:.1f} doublings of compute beyond the largest rung, and "
            f"± {USABLE_HALF_WIDTH:.0%} is needed; train larger rungs: autoresearch ladder --hours"
        )

    def at(self, tokens_N: Array) -> tuple[Array, Array, Array]:
        """Return low, middle and high bits per byte, interpolated in log tokens."""
        values = [(p.tokens, p.low_bpb, p.middle_bpb, p.high_bpb) for p in self.points]
        place, low, middle, high = np.log(np.array(values).T)
        x_N = np.log(tokens_N)
        return tuple(np.exp(np.interp(x_N, place, edge)) for edge in (low, middle, high))


def make_forecast(
    runs: Sequence[RungRun],
    both: BothRuns,
    *,
    seed: int,
    missed: float | None = None,
    other_rules: Sequence[str] = (),
) -> Forecast:
    """Return the forecast of the target's run from a ladder.

    :param runs: the ladder's runs of one recipe, each trained to its end.
    :param missed: error of the ladder's own prediction, if that lay outside its interval.
    :param other_rules: differences, in words, between the rules that carried the recipe to the
        target and to the rungs.
    :raises HandoffError: if the ladder gives no law.
    """
    nats = math.log(2) * both.corpus_bytes_per_token
    curves = Curves(runs)
    finished = [
        FinishedRun(params=run.params, tokens=run.tokens, loss=math.exp(level) / nats)
        for run, level in zip(runs, curves.end_levels(), strict=True)
    ]
    fit = fit_scaling_law(finished, seed=seed)
    total = float(both.schedule.steps * both.tokens_per_step)
    share_P, log_RP = _draws(curves, fit, both, total, np.random.default_rng(seed))
    edges = np.exp(np.percentile(log_RP, [2.5, 50.0, 97.5], axis=0))
    points = tuple(
        ForecastPoint(
            tokens=max(1, round(share * total)),
            step=max(1, round(share * both.schedule.steps)),
            low_bpb=low,
            middle_bpb=middle,
            high_bpb=high,
        )
        for share, low, middle, high in zip(share_P, *edges, strict=True)
    )
    basis = LadderBasis(
        law=fit.law,
        drift_per_doubling=fit.drift_per_doubling,
        doublings=float(fit.doublings(both.target_params, total)),
        missed=missed,
    )
    assumptions = _assumptions(fit, basis, both.corpus, other_rules)
    return Forecast(**dict(both), points=points, assumptions=assumptions, ladder=basis)


def _draws(
    curves: Curves, fit: ScalingFit, both: BothRuns, total: float, rng: np.random.Generator
) -> tuple[Array, Array]:
    """Return shares of the target's run, half spaced by factors, and draws of its log loss there,
    ``(R, P)``."""
    first, count = both.schedule.first_share, len(curves.runs)
    share_P = np.union1d(np.geomspace(first, 1, POINTS // 2), np.linspace(first, 1, POINTS // 2))
    features, scale = both.schedule.features(share_P), total / curves.largest
    ways = [
        over_end(curves.fit(rng.integers(count, size=count).tolist()), scale, *features)
        for _ in range(RESAMPLES)
    ]
    log_end_R = np.log(fit.draws(both.target_params, total))
    way_RP = np.array(ways)[rng.integers(RESAMPLES, size=len(log_end_R))]
    far = max(float(fit.doublings(both.target_params, total)) / 2, 1.0)
    form_R = FORM * math.sqrt(far) * rng.standard_normal(len(log_end_R))
    wander_RP = WANDER * rng.standard_normal(way_RP.shape)
    return share_P, log_end_R[:, None] + way_RP + form_R[:, None] * (1 - share_P) + wander_RP


def _assumptions(
    fit: ScalingFit, basis: LadderBasis, corpus: str, other_rules: Sequence[str]
) -> tuple[str, ...]:
    """Return the assumptions of a forecast, one sentence each."""
    largest = max(fit.runs, key=lambda run: run.compute)
    rules = "by the same rules as to the target"
    if other_rules:
        rules = f"otherwise than to the target ({'; '.join(other_rules)})"
    return (
        f"the cloud trains on text like the corpus {corpus}, and repeats none of it so often that "
        "the training loss understates the loss on new text; other texts give other numbers",
        f"the end is the law of {len(fit.runs)} runs, whose largest has "
        f"{size_text(round(largest.params))} parameters and {size_text(round(largest.tokens))} "
        f"tokens: {basis.doublings:.1f} doublings of compute below the target, and the law errs by "
        f"{basis.drift_per_doubling:.2%} with each; a run scatters by {fit.scatter:.2%}",
        "the way down is that of the rungs, corrected for the schedule (Tissue et al. 2024, arXiv "
        f"2408.11029); the recipe was carried to every rung {rules}",
    )


def read_run(path: Path) -> BothRuns:
    """Read the forecast in a launch plan's ``forecast.json``, or the run in its ``plan.json``.

    :raises HandoffError: if the file cannot be read or is not of a launch plan.
    """
    try:
        found = json.loads(read_given(path))
        if "points" in found:
            return Forecast.model_validate(found)
        return BothRuns.model_validate(found["run"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        why = explain(error) if isinstance(error, ValidationError) else str(error)
        raise HandoffError(
            f"{path} is not the file of a launch plan of this version ({why[:200]}); name the plan "
            "with --handoff, or make one with: autoresearch handoff"
        ) from error
