"""The band that the first day of the cloud run's loss must fall in.

The proxy's law (:mod:`funnel.forecast.loss_law`) is in nats a token of the proxy's tokenizer; the
forecast is in bits per byte, ``nats / (ln 2 × bytes per token)``, so that a run with another
tokenizer can be compared. Three things part the target's loss from the proxy's at the same tokens,
and each widens the band by what it may do, from nothing to all of it:

- Size. Kaplan et al. 2020 (arXiv 2001.08361, section 1.2): ``L ~ N^-0.076``, N without embeddings,
  for training that lasts long enough. Early on a larger model gains less; under the maximal-update
  rule a wider one is not worse at any step (Yang et al. 2022, arXiv 2203.03466, section 8). So the
  low edge has the whole factor, the high edge none, the middle its square root. This exponent is an
  assumption: it is theirs, on their data.
- Batch. With k times the tokens a step, as many tokens are fewer steps: no better than the proxy at
  equal tokens, no worse than at equal steps (McCandlish et al. 2018, arXiv 1812.06162). The edges
  are those two.
- Warm-up. The target's lasts as many times longer as its schedule does. The high edge counts
  progress by the sum of learning rates (Tissue et al. 2024, arXiv 2408.11029: the loss falls as a
  power of it): step s of a warm-up over W steps has made ``s² / 2W`` steps of progress at the full
  rate, and after it ``s - W/2``. The low edge counts every step as a whole one.

What it takes for granted besides: the cloud trains on text like the campaign's corpus, and the
learning rate was carried rightly. That is what the comparison tests.
"""

from __future__ import annotations

import csv
import io
import math
from pathlib import Path
from typing import Annotated

import numpy as np
from pydantic import Field, ValidationError

from autoresearch.errors import HandoffError
from autoresearch.given_file import read_given
from autoresearch.values import Frozen, Positive, PositiveInt, explain
from funnel.forecast.assumptions import NO_LADDER, SIZE_EXPONENT, assumptions
from funnel.forecast.both_runs import BothRuns, PlannedRuns
from funnel.forecast.ladder.basis import LadderBasis
from funnel.forecast.loss_law import LawBand, LossLaw
from funnel.forecast.power_law import Array
from funnel.target.sizes import size_text

POINTS = 97
MILESTONES = 9
"""``POINTS - 1`` is a multiple of ``MILESTONES - 1``."""
LEAST_SPAN = 4.0
"""The forecast reaches to at least so many times where it begins."""


class ForecastPoint(Frozen):
    """The band at one place."""

    tokens: PositiveInt
    step: PositiveInt
    """The step of the target's run."""
    low_bpb: Positive
    middle_bpb: Positive
    high_bpb: Positive


class Forecast(BothRuns):
    """Expected loss of the cloud run, from ``points[0].tokens`` to ``points[-1].tokens``."""

    schema_version: PositiveInt = 1
    fall: LossLaw | None
    """The proxy's law; None where the forecast is a ladder's."""
    size_factor: Positive | None
    """``(target_params / proxy_params)^-0.076``, at most 1: of the proxy's low edge."""
    points: Annotated[tuple[ForecastPoint, ...], Field(min_length=2)]
    assumptions: tuple[str, ...]
    ladder: LadderBasis | None = None
    """None where there was no ladder, and the proxy's law stands in for one."""

    @property
    def bytes_per_token(self) -> float | None:
        """The cloud tokenizer's, as far as it is known: as was said, or the proxy's where the
        vocabularies are of one size."""
        if self.target_text.bytes_per_token is not None:
            return self.target_text.bytes_per_token
        if self.target_text.vocab_size == self.proxy_text.vocab_size:
            return self.proxy_text.bytes_per_token
        return None

    @property
    def milestones(self) -> tuple[ForecastPoint, ...]:
        """A few of the points, from the first to the last."""
        return self.points[:: (len(self.points) - 1) // (MILESTONES - 1)]

    def at(self, tokens_N: Array) -> tuple[Array, Array, Array]:
        """Low, middle and high bits per byte, interpolated in log tokens."""
        places = np.log([point.tokens for point in self.points])
        edges = (
            [point.low_bpb for point in self.points],
            [point.middle_bpb for point in self.points],
            [point.high_bpb for point in self.points],
        )
        x_N = np.log(tokens_N)
        low_N, middle_N, high_N = (np.interp(x_N, places, edge) for edge in edges)
        return low_N, middle_N, high_N

    def log_middle(self, tokens_N: Array) -> Array:
        """Return the logarithm of the middle, in bits per byte."""
        places = np.log([point.tokens for point in self.points])
        middle = np.log([point.middle_bpb for point in self.points])
        return np.interp(np.log(tokens_N), places, middle)

    def to_csv(self) -> str:
        """The band, a line a point."""
        lines = io.StringIO()
        writer = csv.writer(lines, lineterminator="\n")
        writer.writerow(ForecastPoint.model_fields)
        for point in self.points:
            writer.writerow(
                [
                    point.tokens,
                    point.step,
                    *(f"{bpb:.6g}" for bpb in (point.low_bpb, point.middle_bpb, point.high_bpb)),
                ]
            )
        return lines.getvalue()


def read_forecast(path: Path) -> Forecast:
    """The forecast in a launch plan's ``forecast.json``.

    :raises HandoffError: where there is none.
    """
    try:
        return Forecast.model_validate_json(read_given(path))
    except OSError as error:
        raise HandoffError(
            f"the forecast {path} cannot be read ({error.strerror}); name the launch plan with "
            "--handoff, or make one with: autoresearch handoff"
        ) from error
    except ValidationError as error:
        raise HandoffError(
            f"{path} is not a forecast ({explain(error)[:200]}); make it again with: autoresearch "
            "handoff"
        ) from error


def make_forecast(band: LawBand, both: PlannedRuns, no_ladder: str = NO_LADDER) -> Forecast:
    """The proxy's law carried to the target.

    :param no_ladder: why it is not a ladder's, in words.
    :raises HandoffError: where the whole run is over before a forecast could begin.
    """
    if both.proxy_text.bytes_per_token is None:
        raise HandoffError(
            f"the corpus {both.corpus} does not say how many bytes a token has, and a forecast in "
            "bits per byte needs it; prepare the corpus again with: autoresearch data prepare"
        )
    first, last = _span(band.fall, both)
    tokens_N = np.geomspace(first, last, POINTS).round()
    size_factor = min(1.0, (both.target_params / both.proxy_params) ** -SIZE_EXPONENT)
    low_N, middle_N, high_N = _edges(band, both, tokens_N, size_factor)
    nats_to_bpb = 1 / (math.log(2) * both.proxy_text.bytes_per_token)
    return Forecast(
        **both.model_dump(include=set(BothRuns.model_fields)),
        fall=band.fall,
        size_factor=size_factor,
        points=tuple(
            ForecastPoint(
                tokens=int(tokens),
                step=max(1, round(tokens / both.tokens_per_step)),
                low_bpb=low * nats_to_bpb,
                middle_bpb=middle * nats_to_bpb,
                high_bpb=high * nats_to_bpb,
            )
            for tokens, low, middle, high in zip(tokens_N, low_N, middle_N, high_N, strict=True)
        ),
        assumptions=tuple(assumptions(band.fall, both, size_factor, first, last, no_ladder)),
    )


def _span(fall: LossLaw, both: PlannedRuns) -> tuple[int, int]:
    """Tokens from which and to which the forecast says something: from where the slowest reckoning
    of progress has reached the law."""
    progress = fall.from_tokens / min(both.tokens_per_step, both.proxy_tokens_per_step)
    warmup = both.warmup_steps
    step = math.sqrt(2 * warmup * progress) if 2 * progress < warmup else progress + warmup / 2
    first = math.ceil(step + 1) * both.tokens_per_step
    last = min(max(both.first_day_tokens, round(LEAST_SPAN * first)), both.total_tokens)
    if last <= first:
        raise HandoffError(
            f"the run of {size_text(both.total_tokens)} tokens ends before a forecast could begin "
            f"(after {size_text(first)}: the first plunge of the loss); give the target a larger "
            "token_budget"
        )
    return first, last


def _edges(
    band: LawBand, both: PlannedRuns, tokens_N: Array, size_factor: float
) -> tuple[Array, Array, Array]:
    """Nats a token of the proxy's tokenizer."""
    steps_N = tokens_N / both.tokens_per_step
    most = max(both.tokens_per_step, both.proxy_tokens_per_step)
    least = min(both.tokens_per_step, both.proxy_tokens_per_step)
    fast = band.quantiles(steps_N * most)
    slow = band.quantiles(_progress(steps_N, both.warmup_steps) * least)
    middle_N = np.sqrt(fast[1] * size_factor * slow[1])
    # A run that goes well does not rise: what bounds it earlier bounds it later.
    return fast[0] * size_factor, middle_N, np.minimum.accumulate(slow[2])


def _progress(steps_N: Array, warmup: int) -> Array:
    """Steps at the full learning rate that have the same sum of learning rates."""
    if warmup == 0:
        return steps_N
    progress_N: Array = np.where(steps_N < warmup, steps_N**2 / (2 * warmup), steps_N - warmup / 2)
    return progress_N
