"""Define the forecast of the target's run, as ``forecast.json`` of a launch plan holds it."""

import csv
import io
import math
from pathlib import Path
from typing import Annotated

import numpy as np
from pydantic import Field, ValidationError

from autoresearch.errors import HandoffError
from autoresearch.files import read_given
from autoresearch.values import Finite, Frozen, NonNegative, Positive, PositiveInt, explain
from funnel.forecast.robust_fit import Array
from funnel.forecast.scaling_law import Exponents, ScalingLaw
from funnel.forecast.watch import SoundRuns

MILESTONES = 9
EARLY, LATE = 0.05, 0.5
"""Shares of the steps at which a faulty run stops learning."""


class Text(Frozen):
    """Definition of a token in one of the two runs."""

    tokenizer: str
    vocab_size: PositiveInt
    bytes_per_token: Positive | None
    """Mean UTF-8 bytes per token; None if unknown."""


class BothRuns(Frozen, extra="ignore"):
    """The ladder's runs and the target's, as a forecast records them."""

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

    @property
    def nats_to_bpb(self) -> float:
        """Factor from the ladder's nats per token to bits per byte.

        :raises HandoffError: if the bytes per token are unknown.
        """
        if self.proxy_text.bytes_per_token is None:
            raise HandoffError(
                f"the corpus {self.corpus} does not say how many bytes a token has, and a forecast "
                "in bits per byte needs it; prepare the corpus again with: autoresearch data "
                "prepare"
            )
        return 1 / (math.log(2) * self.proxy_text.bytes_per_token)


class Catch(Frozen):
    """A fault, and when a comparison would catch it."""

    name: str
    words: str
    from_tokens: PositiveInt
    """Tokens from which the fault is present."""
    by_tokens: PositiveInt | None
    """Tokens by which it is caught; None if it is not caught."""
    is_needed: bool


class LadderBasis(Frozen, extra="ignore"):
    """The law of the rungs' final losses, the model of sound runs, and the faults to be caught."""

    law: ScalingLaw
    """Law of the final loss, in bits per byte."""
    exponents: Exponents
    runs: PositiveInt
    scatter: NonNegative
    drift_per_doubling: NonNegative
    doublings: NonNegative
    """Doublings of compute from the largest rung to the target."""
    end_low_bpb: Positive
    end_middle_bpb: Positive
    end_high_bpb: Positive
    """95 % interval of the finished target's training loss: low edge, middle and high edge."""
    total_tokens: PositiveInt
    wrong_size: Finite
    """Change of the log loss when the parameters are halved."""
    sound: SoundRuns
    caught: tuple[Catch, ...]
    """Faults that a comparison of every step's loss would catch."""

    @property
    def is_usable(self) -> bool:
        """Whether a comparison would catch the needed faults; if not, the forecast is worthless."""
        return all(catch.by_tokens is not None for catch in self.caught if catch.is_needed)

    @property
    def end_half_width(self) -> float:
        """Half width of the band at the end of the run, relative to its middle."""
        return (self.end_high_bpb - self.end_low_bpb) / (2 * self.end_middle_bpb)


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
    points: Annotated[tuple[ForecastPoint, ...], Field(min_length=2)]
    assumptions: tuple[str, ...]
    ladder: LadderBasis

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

    @property
    def telling_point(self) -> ForecastPoint | None:
        """The point from which a comparison can confirm the run; None if it never can.

        It is the point at which the last of the faults that must be caught early is caught.
        """
        if not self.ladder.is_usable:
            return None
        caught = max(
            catch.by_tokens or 0
            for catch in self.ladder.caught
            if catch.is_needed and catch.from_tokens <= EARLY * self.ladder.total_tokens
        )
        return next((point for point in self.points if point.tokens >= caught), self.points[-1])

    def at(self, tokens_N: Array) -> tuple[Array, Array, Array]:
        """Return low, middle and high bits per byte, interpolated in log tokens."""
        places = np.log([point.tokens for point in self.points])
        x_N = np.log(tokens_N)
        return (
            np.interp(x_N, places, [point.low_bpb for point in self.points]),
            np.interp(x_N, places, [point.middle_bpb for point in self.points]),
            np.interp(x_N, places, [point.high_bpb for point in self.points]),
        )

    def to_csv(self) -> str:
        """Return the band as CSV, one line per point."""
        lines = io.StringIO()
        writer = csv.writer(lines, lineterminator="\n")
        writer.writerow(ForecastPoint.model_fields)
        for point in self.points:
            edges = (point.low_bpb, point.middle_bpb, point.high_bpb)
            writer.writerow([point.tokens, point.step, *(f"{bpb:.6g}" for bpb in edges)])
        return lines.getvalue()


def log_middle(points: tuple[ForecastPoint, ...], tokens_N: Array) -> Array:
    """Return the natural logarithm of the middle bits per byte, interpolated in log tokens."""
    places = np.log([point.tokens for point in points])
    middle = np.log([point.middle_bpb for point in points])
    return np.interp(np.log(tokens_N), places, middle)


def read_forecast(path: Path) -> Forecast:
    """Read the forecast in a launch plan's ``forecast.json``.

    :raises HandoffError: if the file cannot be read or is not a ladder's forecast.
    """
    try:
        return Forecast.model_validate_json(read_given(path))
    except OSError as error:
        raise HandoffError(
            f"the forecast {path} cannot be read ({error.strerror}); name the launch plan with "
            "--handoff, or make one with: autoresearch ladder, then autoresearch handoff"
        ) from error
    except ValidationError as error:
        raise HandoffError(
            f"{path} is not a forecast from a ladder ({explain(error)[:200]}); make it again with: "
            "autoresearch ladder, then autoresearch handoff"
        ) from error
