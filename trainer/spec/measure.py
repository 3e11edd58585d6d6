"""What a score counts, and which way is better."""

from __future__ import annotations

from math import isfinite
from typing import Annotated, Literal, TypeAlias

from pydantic import Field

from autoresearch.values import Frozen, PlainText

Direction: TypeAlias = Literal["minimise", "maximise"]

BITS_PER_BYTE = "bits per byte"
NATS_PER_TOKEN = "nats per token"
_LEAST_NATS, _MOST_NATS = 0.01, 20
"""Losses of language models: equal chances in a vocabulary of a million are 13.8."""
_SHORT = {
    BITS_PER_BYTE: "bpb",
    "bits per token": "bits/token",
    NATS_PER_TOKEN: "nats/token",
}


class Measure(Frozen):
    """The unit of a campaign's scores and their direction.

    Whatever decides works on *objectives*, of which the lower is the better: the score itself, or
    its negative where the score is to grow. Whoever shows one asks here for the score again.
    """

    unit: Annotated[PlainText, Field(min_length=1, max_length=40)] = BITS_PER_BYTE
    direction: Direction = "minimise"
    digits: Annotated[int, Field(ge=0, le=12, strict=True)] = 4
    """Decimals that are shown."""

    @property
    def short(self) -> str:
        """The unit where there is little room."""
        return _SHORT.get(self.unit, self.unit)

    @property
    def name(self) -> str:
        """What a column of scores is headed with."""
        return "val_bpb" if self.unit == BITS_PER_BYTE else self.unit

    @property
    def objective_name(self) -> str:
        """What a column or an axis of objectives is headed with, where nothing turns them back."""
        return self.name if self.direction == "minimise" else f"minus {self.name}"

    @property
    def objective_unit(self) -> str:
        """:attr:`objective_name` where there is little room."""
        return self.short if self.direction == "minimise" else f"minus {self.short}"

    @property
    def parts(self) -> int:
        """Of a unit: what differences are counted in where a text is to be short. Thousandths of
        what is shown to three decimals or four."""
        return int(10 ** (self.digits if self.digits < 4 else self.digits - 1))

    @property
    def better(self) -> str:
        """``lower is better``"""
        return "lower is better" if self.direction == "minimise" else "higher is better"

    def admits(self, score: float) -> bool:
        """Return whether a score can be one in this unit: finite, and a loss of usual size."""
        if self.unit == NATS_PER_TOKEN and self.direction == "minimise":
            return _LEAST_NATS <= score <= _MOST_NATS
        return isfinite(score)

    def objective(self, score: float) -> float:
        """What is minimised."""
        return score if self.direction == "minimise" else -score

    def score(self, objective: float) -> float:
        """As the trainer said it; of a difference of objectives, that of the scores."""
        return self.objective(objective)

    def ends(self, lo: float, hi: float) -> tuple[float, float]:
        """An interval of objectives as one of scores, its lower end first."""
        return (lo, hi) if self.direction == "minimise" else (-hi, -lo)

    def fields(
        self, objective: float, lo: float | None, hi: float | None
    ) -> dict[str, float | None]:
        """An estimate as scores, for programs; without ends where there is no interval."""
        low, high = (None, None) if lo is None or hi is None else self.ends(lo, hi)
        return {"score": self.score(objective), "score_lo": low, "score_hi": high}

    def text(self, objective: float) -> str:
        """``2.6695``"""
        return f"{self.score(objective):.{self.digits}f}"

    def signed(self, delta: float) -> str:
        """A difference: ``-0.0121``."""
        return f"{self.score(delta):+.{self.digits}f}"

    def counted(self, delta: float, stderr: float | None = None) -> str:
        """A difference in :attr:`parts`, with its standard error: ``-31±14``."""
        text = f"{self.parts * self.score(delta):+.0f}"
        return text if stderr is None else f"{text}±{self.parts * stderr:.0f}"

    def size(self, amount: float) -> str:
        """Of an error or a spread, which has no direction."""
        return f"{amount:.{self.digits}f}"

    def span(self, lo: float, hi: float) -> str:
        """``2.6549 … 2.6841``"""
        low, high = self.ends(lo, hi)
        return f"{low:.{self.digits}f} … {high:.{self.digits}f}"

    def signed_span(self, lo: float, hi: float) -> str:
        """Of a difference: ``-0.0350 … +0.0108``."""
        low, high = self.ends(lo, hi)
        return f"{low:+.{self.digits}f} … {high:+.{self.digits}f}"


BPB = Measure()
"""What the built-in trainer measures."""
