"""Define types for another tool's trajectory, which claim no more than its file says.

Such a file has no seeds, no count of bytes scored and rarely a whole config. So its runs are not
trials of this project and never enter a journal. They are stored in ``imported.jsonl``, one JSON
object per line: first the provenance, then each run under the source's names.
"""

import hashlib
import json
import math
import re
from typing import Annotated, Any, Literal, Self, TypeAlias

from pydantic import BeforeValidator, ConfigDict, Field, TypeAdapter, model_validator

from autoresearch.errors import FormatError
from autoresearch.values import Finite, Frozen, NonNegativeInt, PositiveInt
from autoresearch.words import counted
from trajectory.proposals import Text, parse_safe

FOREIGN_SCHEMA = 1

FormatName: TypeAlias = Literal[
    "journal",
    "imported",
    "single-knob",
    "results-tsv",
    "pi-jsonl",
    "optuna",
    "mlflow",
    "wandb-csv",
    "tensorboard",
]
Measure: TypeAlias = Annotated[Text, Field(min_length=1, max_length=60)]
"""Name of a score for which lower is better."""


_MORE = (
    r"acc\d*|accuracy|precision|recall|f\d|auc\w*|auroc|auprc|top\d+|r2|rewards?|returns?|bleu|rouge"
    r"|meteor|m?ap\d*|ndcg\d*|mrr|m?iou|dice|psnr|ssim|success|wins?|elo|likelihood|elbo|throughput"
    r"|mfu|kappa|mcc|sharpe|specificity|sensitivity|spearman|pearson|correlation"
)
_LESS = (
    r"\w*loss(?:es)?|\w*errors?|err|regret|nll|r?msl?e|mae|mape|perplexity|ppl|bp[bct]|bits|[wc]er|fid"
    r"|kl|divergence|distance|gap|diff|std|var|variance|time|latency|seconds|cost|brier|entropy"
)
_NEGATED = r"neg|negative|negated|minus"
_WORDS = re.compile(r"[A-Z]?[a-z]+\d*|[A-Z]+(?![a-z])\d*|\d+")


def more_is_better(metric: str) -> bool | None:
    """Return whether the name of a metric says that higher is better; None if it says neither."""
    words = [word.lower() for word in _WORDS.findall(metric)]

    def says(pattern: str) -> bool:
        return any(re.fullmatch(pattern, word) for word in words)

    if not (says(_LESS) or says(_MORE)):
        return None
    return says(_LESS) == says(_NEGATED)


def refuse_more_is_better(where: object, metric: str) -> None:
    """
    :raises FormatError: if the name of a metric says that higher is better.
    """
    if more_is_better(metric):
        raise FormatError(
            f"the metric {metric!r:.60} of {where} is better when higher; import takes scores of "
            "which the lower is the better, so choose such a one with --metric"
        )


MAX_SCORE = 1e100
"""Largest accepted score. No measure comes near it, and squared differences beyond it overflow."""
_FLOAT_BITS = 1023


def _plain(value: Any) -> Any:
    if isinstance(value, dict | list):
        raise ValueError("is not a plain value")  # noqa: TRY004 (pydantic reports it)
    if isinstance(value, int) and value.bit_length() > _FLOAT_BITS:
        raise ValueError("is a whole number beyond any float")
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"is {value}, which is not a JSON number")
    return value


Score: TypeAlias = Annotated[float, Field(gt=0, le=MAX_SCORE, allow_inf_nan=False, strict=True)]
"""A JSON number, neither a string nor a boolean."""


Plain: TypeAlias = Annotated[bool | int | Finite | Text | None, BeforeValidator(_plain)]
"""A scalar JSON value."""


class Skipped(Frozen):
    """A line of the source that was not imported."""

    line: PositiveInt
    why: Text


class Provenance(Frozen):
    """Origin of an imported campaign: the first line of its ``imported.jsonl``."""

    model_config = ConfigDict(extra="ignore")  # earlier versions stored more
    kind: Literal["imported"] = "imported"
    schema_: Annotated[int, Field(alias="schema")] = FOREIGN_SCHEMA
    format: FormatName
    source: Text
    """Path of the file, as the user gave it."""
    source_sha256: str
    imported_at: str
    """ISO 8601, UTC."""
    measure: Measure
    """Name of the runs' score; lower is better."""
    skipped: tuple[Skipped, ...] = ()

    @property
    def left_out(self) -> str:
        """How many lines were not imported, and why the first was not; empty if there are none."""
        if not self.skipped:
            return ""
        first = self.skipped[0]
        return f"{counted(len(self.skipped), 'line')}, first line {first.line}: {first.why}"


class ForeignRun(Frozen):
    """One run of another tool."""

    model_config = ConfigDict(extra="ignore")  # earlier versions stored more
    kind: Literal["run"] = "run"
    line: PositiveInt
    """Line number in the source."""
    iter: NonNegativeInt
    """Iteration in the source's count, otherwise the position among its runs; 0 is a baseline
    measured before."""
    name: Text | None = None
    """Identifier that replaces a missing config, such as a commit."""
    values: dict[str, Plain] | None = None
    """The config, as far as the source contains it."""
    changes: dict[str, Plain] | None = None
    """Changes relative to the baseline."""
    is_baseline: bool = False
    reason: Text = ""
    score: Score | None = None
    """Score in the campaign's measure; None for a run that failed."""
    action: Literal["keep", "discard", "none"] = "none"

    @model_validator(mode="after")
    def _scored_config(self) -> Self:
        if self.score is not None and self.config_key is None:
            raise ValueError("a measured run names no config")
        return self

    @property
    def config_key(self) -> str | None:
        """Key that is equal for runs of one config; None if the source names none."""
        if self.values is not None:
            text = json.dumps(self.values, sort_keys=True, separators=(",", ":"))
            return hashlib.sha256(text.encode()).hexdigest()
        # Runs of one commit may differ in config; only their descriptions distinguish them.
        if self.name is None or self.reason in {"", self.name}:
            return self.name
        return f"{self.name} {self.reason}"


ForeignLine: TypeAlias = Provenance | ForeignRun
_LINE: TypeAdapter[ForeignLine] = TypeAdapter(Annotated[ForeignLine, Field(discriminator="kind")])


def parse_foreign(line: str | bytes) -> ForeignLine:
    """Parse one line of an ``imported.jsonl``.

    :raises pydantic.ValidationError: if the line is not valid.
    """
    return parse_safe(_LINE, line)
