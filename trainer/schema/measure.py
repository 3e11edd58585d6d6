"""Define what a score counts, which direction is better, and which text it is measured on."""

from math import inf, isfinite
from typing import Annotated, Literal, Self, TypeAlias

from pydantic import Field, model_validator

from autoresearch.values import Finite, Frozen, NonNegativeInt, PlainText, PositiveInt

Direction: TypeAlias = Literal["minimise", "maximise"]

BITS_PER_BYTE = "bits per byte"
NATS_PER_TOKEN = "nats per token"
_LEAST_NATS, _MOST_NATS = 0.01, 20
"""Plausible losses of language models: uniform chances in a vocabulary of a million are 13.8."""
_SHORT = {
    BITS_PER_BYTE: "bpb",
    "bits per token": "bits/token",
    NATS_PER_TOKEN: "nats/token",
}


class Measure(Frozen):
    """Unit and direction of a campaign's scores.

    Decisions use *objectives*, for which lower is better: the score itself, or its negative if
    higher scores are better. Displays convert an objective back into a score here.
    """

    unit: Annotated[PlainText, Field(min_length=1, max_length=40)] = BITS_PER_BYTE
    direction: Direction = "minimise"
    digits: Annotated[int, Field(ge=0, le=12, strict=True)] = 4
    """Decimals to show."""
    low: Finite | None = Field(None, exclude_if=lambda end: end is None)
    """Lowest possible score, if the menu says so."""
    high: Finite | None = Field(None, exclude_if=lambda end: end is None)

    @model_validator(mode="after")
    def _check_limits(self) -> Self:
        low, high = sorted(self.limits)
        if low == high or (low, high) != self.limits:
            raise ValueError(f"low {self.low} is not below high {self.high}; exchange them")
        return self

    @property
    def limits(self) -> tuple[float, float]:
        """Lowest and highest possible objective."""
        low = -inf if self.low is None else self.low
        high = inf if self.high is None else self.high
        return self.ends(low, high)

    @property
    def short(self) -> str:
        """Short form of the unit."""
        return _SHORT.get(self.unit, self.unit)

    @property
    def name(self) -> str:
        """Heading of a column of scores."""
        return "val_bpb" if self.unit == BITS_PER_BYTE else self.unit

    @property
    def parts(self) -> int:
        """Parts per unit in which short texts count differences: thousandths if scores are shown to
        three or four decimals."""
        return int(10 ** (self.digits if self.digits < 4 else self.digits - 1))

    @property
    def better(self) -> str:
        """``lower is better`` or ``higher is better``."""
        return "lower is better" if self.direction == "minimise" else "higher is better"

    def admits(self, score: float) -> bool:
        """Return whether a score is possible in this unit: finite, within the menu's limits, and a
        loss of usual size."""
        low, high = self.limits
        if not low <= self.objective(score) <= high:
            return False
        if self.unit == NATS_PER_TOKEN and self.direction == "minimise":
            return _LEAST_NATS <= score <= _MOST_NATS
        return isfinite(score)

    def objective(self, score: float) -> float:
        """Return the objective, which is minimized, of a score."""
        return score if self.direction == "minimise" else -score

    def score(self, objective: float) -> float:
        """Return the score of an objective, or the difference of scores of a difference of
        objectives."""
        return self.objective(objective)

    def ends(self, lo: float, hi: float) -> tuple[float, float]:
        """Return an interval of objectives as one of scores, its lower end first."""
        return (lo, hi) if self.direction == "minimise" else (-hi, -lo)

    def fields(
        self, objective: float, lo: float | None, hi: float | None
    ) -> dict[str, float | None]:
        """Return an estimate as scores, for JSON; without ends if there is no interval."""
        low, high = (None, None) if lo is None or hi is None else self.ends(lo, hi)
        return {"score": self.score(objective), "score_lo": low, "score_hi": high}

    def text(self, objective: float) -> str:
        """Return a score like ``2.6695``."""
        return f"{self.score(objective):.{self.digits}f}"

    def signed(self, delta: float) -> str:
        """Return a difference like ``-0.0121``."""
        return f"{self.score(delta):+.{self.digits}f}"

    def counted(self, delta: float, stderr: float | None = None) -> str:
        """Return a difference in :attr:`parts` with its standard error, like ``-31±14``."""
        text = f"{self.parts * self.score(delta):+.0f}"
        return text if stderr is None else f"{text}±{self.parts * stderr:.0f}"

    def size(self, amount: float) -> str:
        """Return an error or a spread, which has no direction."""
        return f"{amount:.{self.digits}f}"

    def span(self, lo: float, hi: float) -> str:
        """Return an interval like ``2.6549 … 2.6841``."""
        low, high = self.ends(lo, hi)
        return f"{low:.{self.digits}f} … {high:.{self.digits}f}"

    def signed_span(self, lo: float, hi: float) -> str:
        """Return an interval of a difference like ``-0.0350 … +0.0108``."""
        low, high = self.ends(lo, hi)
        return f"{low:+.{self.digits}f} … {high:+.{self.digits}f}"


BPB = Measure()
"""Measure of the built-in trainer."""


MOST_PARTS = 16
"""Most separately scored parts of a text: enough for a spread, few enough for a row."""

Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class TextPart(Frozen):
    """A run of whole documents, the first separator included."""

    tokens: PositiveInt
    bytes: PositiveInt
    """UTF-8 bytes of its documents."""


class ScoredText(Frozen):
    """A file of tokens to score after training, in the corpus' own vocabulary and dtype."""

    name: str
    path: str
    """Absolute path."""
    sha256: Sha256
    """Hash of the file; a trial refuses any other."""
    parts: Annotated[tuple[TextPart, ...], Field(min_length=1, max_length=MOST_PARTS)]
    """Parts that make up the whole file, in order."""

    @property
    def bytes(self) -> int:
        """UTF-8 bytes of the text: the divisor of its bits per byte."""
        return sum(part.bytes for part in self.parts)

    @property
    def tokens(self) -> int:
        """Tokens in the file, separators included."""
        return sum(part.tokens for part in self.parts)


class CorpusInfo(Frozen):
    """Facts about a prepared corpus: its ``meta.json``, and the journal's record of the
    evaluation."""

    name: str
    sha256: str
    """Hash of the train tokens, held-out tokens and tokenizer: corpora with equal hashes are
    equal."""
    heldout_sha256: str
    """Hash of the held-out token file alone: part of the evaluation protocol, checked by every
    trial."""
    tokenizer: str
    """``bytes``, ``bpe:1024`` or ``file:NAME``."""
    vocab_size: PositiveInt
    separator_id: NonNegativeInt
    """Token before each document; it represents no byte of text."""
    dtype: Literal["uint8", "uint16", "uint32"]
    documents: PositiveInt
    duplicates: NonNegativeInt
    train_documents: PositiveInt
    train_tokens: PositiveInt
    train_bytes: PositiveInt
    heldout_documents: PositiveInt
    heldout_tokens: PositiveInt
    heldout_bytes: PositiveInt
    """Exact UTF-8 bytes of the held-out text: the divisor of val_bpb."""
