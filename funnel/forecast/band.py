"""Compute the band in which the cloud run's loss must lie on its first day.

The proxy's law (:mod:`funnel.forecast.loss_law`) is in nats per token of the proxy's tokenizer. The
forecast is in bits per byte, ``nats / (ln 2 × bytes per token)``, so a run with another tokenizer
can be compared. At equal tokens the target's loss differs from the proxy's for three reasons. The
edges of the band assume that each has either no effect or its full effect:

- Size. Kaplan et al. 2020 (arXiv 2001.08361, section 1.2): ``L ~ N^-0.076``, N without embeddings,
  for sufficiently long training. Early in training a larger model gains less. Under the
  maximal-update rule a wider model is not worse at any step (Yang et al. 2022, arXiv 2203.03466,
  section 8). So the low edge has the whole factor, the high edge none, and the middle its square
  root. The exponent is an assumption: it was measured on other data.
- Batch. With k times the tokens per step, the same tokens are fewer steps. The target is then no
  better than the proxy at equal tokens and no worse than the proxy at equal steps (McCandlish et
  al. 2018, arXiv 1812.06162). The edges are these two.
- Warm-up. The target's warm-up is longer than the proxy's by the ratio of their schedules. The high
  edge measures progress by the sum of learning rates (Tissue et al. 2024, arXiv 2408.11029: the
  loss falls as a power of it). Step s of a warm-up over W steps counts as ``s² / 2W`` steps at the
  full rate, and a later step s as ``s - W/2``. The low edge counts every step in full.

The forecast also assumes that the cloud trains on text like the campaign's corpus, and that the
learning rate was carried correctly. The comparison tests these assumptions.
"""

import csv
import io
import math
from pathlib import Path
from typing import Annotated

import numpy as np
from pydantic import Field, ValidationError

from autoresearch.errors import HandoffError
from autoresearch.files import read_given
from autoresearch.values import Frozen, Positive, PositiveInt, explain
from funnel.forecast.both_runs import NO_LADDER, SIZE_EXPONENT, BothRuns, PlannedRuns, assumptions
from funnel.forecast.ladder.basis import LadderBasis
from funnel.forecast.loss_law import LawBand, LossLaw
from funnel.forecast.power_law import Array
from funnel.target.shape import size_text

POINTS = 97
MILESTONES = 9
"""Number of milestones; ``POINTS - 1`` is a multiple of ``MILESTONES - 1``."""
LEAST_SPAN = 4.0
"""Least ratio of the tokens at the end of the forecast to those at its beginning."""


class ForecastPoint(Frozen):
    """The band at one number of tokens."""

    tokens: PositiveInt
    step: PositiveInt
    """Step of the target's run."""
    low_bpb: Positive
    middle_bpb: Positive
    high_bpb: Positive


class Forecast(BothRuns):
    """Expected loss of the cloud run, from ``points[0].tokens`` to ``points[-1].tokens``."""

    schema_version: PositiveInt = 1
    fall: LossLaw | None
    """The proxy's law; None if the forecast is from a ladder."""
    size_factor: Positive | None
    """Factor of the low edge, ``(target_params / proxy_params)^-0.076``, at most 1.

    None if the forecast is from a ladder.
    """
    points: Annotated[tuple[ForecastPoint, ...], Field(min_length=2)]
    assumptions: tuple[str, ...]
    ladder: LadderBasis | None = None
    """Basis of a forecast from a ladder; None if the forecast is from the proxy's law."""

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

    @property
    def milestones(self) -> tuple[ForecastPoint, ...]:
        """A few evenly spaced points, the first and the last included."""
        return self.points[:: (len(self.points) - 1) // (MILESTONES - 1)]

    def at(self, tokens_N: Array) -> tuple[Array, Array, Array]:
        """Return low, middle and high bits per byte, interpolated in log tokens."""
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
        """Return the natural logarithm of the middle bits per byte, interpolated in log tokens."""
        places = np.log([point.tokens for point in self.points])
        middle = np.log([point.middle_bpb for point in self.points])
        return np.interp(np.log(tokens_N), places, middle)

    def to_csv(self) -> str:
        """Return the band as CSV, one line per point."""
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
    """Read the forecast in a launch plan's ``forecast.json``.

    :raises HandoffError: if the file cannot be read or is not a forecast.
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
    """Return the forecast of the target's run from the proxy's law.

    :param no_ladder: why the forecast is not from a ladder, in words.
    :raises HandoffError: if the run ends before a forecast could begin, or the bytes per token are
        unknown.
    """
    nats_to_bpb = both.nats_to_bpb
    first, last = _span(band.fall, both)
    tokens_N = np.geomspace(first, last, POINTS).round()
    size_factor = min(1.0, (both.target_params / both.proxy_params) ** -SIZE_EXPONENT)
    steps_N = tokens_N / both.tokens_per_step
    most = max(both.tokens_per_step, both.proxy_tokens_per_step)
    least = min(both.tokens_per_step, both.proxy_tokens_per_step)
    # Edges and middle in nats per token of the proxy's tokenizer.
    fast = band.quantiles(steps_N * most)
    # Steps at the full learning rate that have the same sum of learning rates.
    warmup, full_N = both.warmup_steps, steps_N
    if warmup:
        full_N = np.where(steps_N < warmup, steps_N**2 / (2 * warmup), steps_N - warmup / 2)
    slow = band.quantiles(full_N * least)
    low_N = fast[0] * size_factor
    middle_N = np.sqrt(fast[1] * size_factor * slow[1])
    # The loss of a sound run does not rise, so an earlier bound also holds later.
    high_N = np.minimum.accumulate(slow[2])
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
    """Return the tokens at the beginning and the end of the forecast.

    The forecast begins once the slowest measure of progress has reached the law's first tokens.
    """
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
