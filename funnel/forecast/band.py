"""Forecast the target's loss curve from a ladder, as ``forecast.json`` of a launch plan holds it.

The curve is the final loss, by the law of the rungs' ends (:mod:`funnel.forecast.scaling_law`),
times the way down to it, by the schedule's correction (:mod:`funnel.forecast.schedule`). Both are
drawn again and again, the law by its replicates and the way down by fits to resampled rungs. The
band contains 95 % of the draws at each point.
"""

import json
import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, TypeVar

import numpy as np
from pydantic import Field, ValidationError

from autoresearch.errors import HandoffError
from autoresearch.files import read_given
from autoresearch.values import Frozen, NonNegative, Positive, PositiveInt, explain
from funnel.forecast.scaling_law import Array, FinishedRun, ScalingLaw, fit_scaling_law
from funnel.forecast.schedule import Curves, RungRun, ScheduleShape, over_end
from funnel.target.shape import size_text

_T = TypeVar("_T")

POINTS = 81
"""Number of points; ``POINTS - 1`` is a multiple of eight, for the milestones."""
RESAMPLES = 40
FORM = 0.006
"""Relative error of the way down at the first point. The correction's form was off by 0.2 to 0.6 %
for a published run of four times the compute (Luo et al. 2025, arXiv 2503.12811)."""
WANDER = 0.003
"""Relative sd by which sound runs wander about their own trend."""
SHOWN_EXCESS = 0.05
"""Excess of the loss that a usable forecast shows."""
ALARM = 1.6
"""Half widths of the band, from its middle, at which a loss departs: about three sds."""
USABLE_HALF_WIDTH = SHOWN_EXCESS / (ALARM + 0.9)
"""Half width with which 95 % of the runs that are SHOWN_EXCESS too high depart."""


class Text(Frozen):
    """Definition of a token in one of the two runs."""

    tokenizer: str
    vocab_size: PositiveInt
    bytes_per_token: Positive | None
    """Mean UTF-8 bytes per token; None if unknown."""


class BothRuns(Frozen, extra="ignore"):
    """The ladder's runs and the target's, as a launch plan records them."""

    target: str
    corpus: str
    """Corpus that the ladder was trained on."""
    proxy_text: Text
    target_text: Text
    target_params: PositiveInt
    """The target's parameters, without embeddings."""
    tokens_per_step: PositiveInt
    """The target's tokens per step."""
    seq_len: PositiveInt
    """The target's sequence length; it converts a log's samples into tokens."""
    first_day_tokens: PositiveInt
    """Tokens in 24 hours at the planned utilization, even if the run is shorter."""
    schedule: ScheduleShape
    """The target's schedule."""

    @property
    def bytes_per_token(self) -> float | None:
        """Mean bytes per token of the cloud's tokenizer; None if unknown.

        It is the stated value, else the proxy's if both vocabularies have the same size.
        """
        if self.target_text.bytes_per_token is not None:
            return self.target_text.bytes_per_token
        if self.target_text.vocab_size == self.proxy_text.vocab_size:
            return self.proxy_text.bytes_per_token
        return None


class ForecastPoint(Frozen):
    """The band at one number of tokens."""

    tokens: PositiveInt
    step: PositiveInt
    """Step of the target's run."""
    low_bpb: Positive
    middle_bpb: Positive
    high_bpb: Positive

    @property
    def half_width(self) -> float:
        """Half width of the band, relative to its middle."""
        return (self.high_bpb - self.low_bpb) / (2 * self.middle_bpb)


class LadderBasis(Frozen):
    """The ladder that a forecast rests on."""

    law: ScalingLaw
    """Law of the final loss, in bits per byte."""
    runs: PositiveInt
    scatter: NonNegative
    drift_per_doubling: NonNegative
    doublings: NonNegative
    """Doublings of compute from the largest rung to the target."""
    missed: float | None = None
    """Relative error of the ladder's own prediction of its largest rung, if that lay outside its
    interval; None if it lay inside, or if there was no prediction."""


class Forecast(BothRuns):
    """Expected loss of the cloud run, from ``points[0].tokens`` to ``points[-1].tokens``."""

    schema_version: PositiveInt = 2
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
    def milestones(self) -> tuple[ForecastPoint, ...]:
        """A few evenly spaced points, the first and the last included."""
        return self.points[:: (len(self.points) - 1) // 8]

    @property
    def worth(self) -> str:
        """What a comparison with this forecast can show, in a sentence without a full stop."""
        if (point := self.telling_point) is not None:
            hour = 24 * point.tokens / self.first_day_tokens
            return (
                f"from step {point.step:,} (hour {hour:,.3g}) on the band shows a loss that is "
                f"{SHOWN_EXCESS:.0%} too high"
            )
        if self.ladder.missed is not None:
            return (
                "the forecast is worthless: the ladder's prediction of its own largest rung was "
                f"{self.ladder.missed:+.1%} off and outside its interval"
            )
        return (
            f"the forecast is worthless: its band is ± {self.points[-1].half_width:.1%} at the end, "
            f"{self.ladder.doublings:.1f} doublings of compute beyond the largest rung, and "
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
    :raises HandoffError: if the ladder gives no law, or the bytes per token are unknown.
    """
    if both.proxy_text.bytes_per_token is None:
        raise HandoffError(
            f"the corpus {both.corpus} does not say how many bytes a token has, and a forecast in "
            "bits per byte needs it; prepare the corpus again with: autoresearch data prepare"
        )
    nats = math.log(2) * both.proxy_text.bytes_per_token
    rng, schedule = np.random.default_rng(seed), both.schedule
    curves, everyone = Curves(runs), range(len(runs))
    finished = [
        FinishedRun(params=run.params, tokens=run.tokens, loss=math.exp(level) / nats)
        for run, level in zip(runs, curves.end_levels(curves.fit(everyone)), strict=True)
    ]
    fit = fit_scaling_law(finished, seed=seed)
    size, total = float(both.target_params), float(schedule.steps * both.tokens_per_step)
    half = POINTS // 2 + 1
    first = schedule.first_share
    share_P = np.union1d(np.geomspace(first, 1, half), np.linspace(first, 1, half))
    features, scale = schedule.features(share_P), total / curves.largest
    ways = [
        over_end(curves.fit(rng.integers(len(runs), size=len(runs)).tolist()), scale, *features)
        for _ in range(RESAMPLES)
    ]
    log_end_R = np.log(fit.draws(size, total))
    way_RP = np.array(ways)[rng.integers(RESAMPLES, size=len(log_end_R))]
    form_R = FORM * math.sqrt(max(float(fit.doublings(size, total)) / 2, 1.0))
    form_R = form_R * rng.standard_normal(len(log_end_R))
    wander_RP = WANDER * rng.standard_normal(way_RP.shape)
    log_RP = log_end_R[:, None] + way_RP + form_R[:, None] * (1 - share_P) + wander_RP
    edges = np.exp(np.percentile(log_RP, [2.5, 50.0, 97.5], axis=0))
    points = tuple(
        ForecastPoint(
            tokens=max(1, round(share * total)),
            step=max(1, round(share * schedule.steps)),
            low_bpb=low,
            middle_bpb=middle,
            high_bpb=high,
        )
        for share, low, middle, high in zip(share_P, *edges, strict=True)
    )
    basis = LadderBasis(
        law=fit.law,
        runs=fit.runs,
        scatter=fit.scatter,
        drift_per_doubling=fit.drift_per_doubling,
        doublings=float(fit.doublings(size, total)),
        missed=missed,
    )
    assumptions = tuple(_assumptions(basis, both, runs, other_rules))
    return Forecast(**dict(both), points=points, assumptions=assumptions, ladder=basis)


def _assumptions(
    basis: LadderBasis, both: BothRuns, runs: Sequence[RungRun], other_rules: Sequence[str]
) -> Iterator[str]:
    """Yield the assumptions of a forecast, one sentence each."""
    largest = max(runs, key=lambda run: run.params * run.tokens)
    yield (
        f"the cloud trains on text like the corpus {both.corpus}, and repeats none of it so often "
        "that the training loss understates the loss on new text; other texts give other numbers"
    )
    yield (
        f"the end is the law of {basis.runs} runs, whose largest has "
        f"{size_text(round(largest.params))} parameters and {size_text(round(largest.tokens))} "
        f"tokens: {basis.doublings:.1f} doublings of compute below the target, and the law errs by "
        f"{basis.drift_per_doubling:.2%} with each; a run scatters by {basis.scatter:.2%}"
    )
    rules = "by the same rules as to the target"
    if other_rules:
        rules = f"otherwise than to the target ({'; '.join(other_rules)})"
    yield (
        "the way down is that of the rungs, corrected for the schedule (Tissue et al. 2024, arXiv "
        f"2408.11029); the recipe was carried to every rung {rules}"
    )


def read_forecast(path: Path) -> Forecast:
    """Read the forecast in a launch plan's ``forecast.json``.

    :raises HandoffError: if the file cannot be read or is not a ladder's forecast.
    """
    return _read(path, Forecast.model_validate)


def read_run(path: Path) -> BothRuns:
    """Read the run in a launch plan's ``plan.json``.

    :raises HandoffError: if the file cannot be read or is not a launch plan.
    """
    return _read(path, lambda plan: BothRuns.model_validate(plan["run"]))


def _read(path: Path, model: Callable[[Any], _T]) -> _T:
    try:
        return model(json.loads(read_given(path)))
    except OSError as error:
        raise HandoffError(
            f"{path} cannot be read ({error.strerror}); name the launch plan with --handoff, or "
            "make one with: autoresearch handoff"
        ) from error
    except (ValueError, KeyError, TypeError) as error:
        why = explain(error) if isinstance(error, ValidationError) else f"{error!r}"
        raise HandoffError(
            f"{path} is not of a launch plan of this version ({why[:200]}); make it again with: "
            "autoresearch handoff"
        ) from error
