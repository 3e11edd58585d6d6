"""Hold a confirmation's result: the search's claims beside the measurements of fresh runs."""

from collections.abc import Iterable
from typing import Annotated, Literal, Self

from pydantic import AliasChoices, BeforeValidator, Field

from autoresearch.values import Finite, Frozen, NonNegativeInt, Positive, PositiveInt, Scalar
from trainer.schema import BPB, Measure

SEARCH_TEXT = "the search's text"
"""Name of the campaign's own held-out text, by which the search chose."""
OWN_SCORE = "the script's own score"
"""Name used instead if a command of the user's own reports the scores; its text is unknown."""
_FORMER_NAMES = {"the script's ruler": OWN_SCORE}
"""Names in earlier rows."""
_IN_WORDS = {"set aside": "the end of the corpus"}
"""Names in rows, as they are shown."""


class ConfirmText(Frozen):
    """A text scored in addition to the search's own, which no trial of the search scored."""

    name: str
    sha256: str
    bytes: PositiveInt
    parts: PositiveInt
    """Number of stretches of whole documents that were scored separately."""


class FreshGain(Frozen):
    """A config's difference from the baseline on fresh seeds and one text; negative is better.

    Differences are of objectives, for which lower is better. The interval is Student's t; see
    :mod:`trajectory.confirmation`.
    """

    text: Annotated[str, BeforeValidator(lambda name: _FORMER_NAMES.get(name, name))]
    """The text's name, or :data:`SEARCH_TEXT` or :data:`OWN_SCORE`."""
    holds_for: Literal["this text", "text like it"]
    """Scope of the interval: it includes the variation between texts if this text has enough parts
    to estimate it."""
    delta: Finite
    lo: Finite
    """95 % interval of this one difference; wider if earlier confirmations preceded it."""
    hi: Finite
    all_lo: Finite
    """Interval that holds for all configs of the confirmation at once (Bonferroni)."""
    all_hi: Finite
    seeds: PositiveInt
    """Seeds on which both configs were measured."""
    dof: Positive
    measure: Measure | None = Field(None, exclude_if=lambda measure: measure is None)
    """Unit of the differences; None, and omitted from a row, for bits per byte."""

    @property
    def text_in_words(self) -> str:
        """The text's name for a person."""
        return _IN_WORDS.get(self.text, self.text)

    @property
    def is_on_fresh_text(self) -> bool:
        """Whether no trial of the search scored its text."""
        return self.text not in {SEARCH_TEXT, OWN_SCORE}

    @property
    def measured_in(self) -> Measure:
        """Unit of the differences."""
        return self.measure or BPB

    def __str__(self) -> str:
        """``-0.5123 (-0.5300 … -0.4946)``"""
        return f"{self.measured_in.signed(self.delta)} ({self.span})"

    @property
    def span(self) -> str:
        """Its 95 % interval."""
        return self.measured_in.signed_span(self.lo, self.hi)

    @property
    def wide_span(self) -> str:
        """Its interval that holds for all configs at once."""
        return self.measured_in.signed_span(self.all_lo, self.all_hi)


class ConfirmedConfig(Frozen):
    """One finalist and its measured gains."""

    config_hash: str
    iter: NonNegativeInt
    rank: PositiveInt
    """Its rank in the search when the confirmation ran."""
    changes: dict[str, Scalar]
    """Its values that differ from the baseline's."""
    claimed: Finite | None
    """Its difference from the baseline as the search estimated it."""
    claimed_lo: Finite | None
    claimed_hi: Finite | None
    gains: tuple[FreshGain, ...] = ()
    """Gains on the search's own text, then on each other text. Empty if there is no estimate."""
    trouble: str = ""
    """Why there is no estimate, as a clause."""

    @property
    def headline(self) -> FreshGain | None:
        """The reported gain: on the first text that the search has not scored if there is one,
        otherwise on fresh seeds alone."""
        return self.gains[min(1, len(self.gains) - 1)] if self.gains else None

    @property
    def stands(self) -> bool:
        """Whether its whole 95 % interval is better than the baseline."""
        gain = self.headline
        return gain is not None and gain.hi < 0

    @property
    def verdict(self) -> Literal["confirmed", "not confirmed"]:
        """Whether it :attr:`stands`, in words."""
        return "confirmed" if self.stands else "not confirmed"

    def among_others(self) -> Self:
        """Return a copy with the intervals that hold for all configs of the confirmation at once.

        Use it where several finalists are shown together, because a reader may pick the best by
        these runs.
        """
        wide = [
            gain.model_copy(update={"lo": gain.all_lo, "hi": gain.all_hi}) for gain in self.gains
        ]
        return self.model_copy(update={"gains": tuple(wide)})


class Confirmed(Frozen):
    """A completed confirmation."""

    seeds: tuple[NonNegativeInt, ...]
    texts: tuple[ConfirmText, ...]
    """Additional texts. Empty: fresh seeds alone, on the search's own text."""
    earlier_analyses: NonNegativeInt = Field(
        0, validation_alias=AliasChoices("earlier_analyses", "looks")
    )
    """Number of earlier confirmations of this campaign, on any text. Each one makes the intervals
    of this one wider."""
    configs: Annotated[tuple[ConfirmedConfig, ...], Field(min_length=1)]
    """The finalists; the first is the search's own choice, made before any of these runs. The plain
    interval is valid for that one alone. A choice among several by these runs needs the wider
    one."""

    @property
    def chosen(self) -> ConfirmedConfig:
        """The config whose gain is the headline."""
        return self.configs[0]

    @property
    def basis(self) -> str:
        """Description of the runs behind the search's own choice; see :meth:`basis_of`."""
        return self.basis_of(self.chosen)

    @property
    def headline(self) -> str:
        """One line with the result for the search's own choice."""
        return self.said_of(self.chosen)

    def basis_of(self, config: ConfirmedConfig) -> str:
        """Return what the runs were measured on, such as ``on 6 fresh seeds and on text that no
        trial of the search scored``."""
        gain, asked = config.headline, len(self.seeds)
        measured = asked if gain is None else gain.seeds
        seeds = f"on {measured} fresh seeds"
        if measured < asked:
            seeds = f"{seeds} (the baseline failed on {asked - measured} of {asked})"
        if self.texts:
            text = " and on text that no trial of the search scored"
        elif gain is None:
            text = ""
        elif gain.measure is not None:
            text = f", by {OWN_SCORE}"
        else:
            text = ", on the text that the search scored too"
        again = ""
        if self.earlier_analyses:
            again = f", interim analysis {self.earlier_analyses + 1} of this campaign"
        return f"{seeds}{text}{again}"

    def said_of(self, config: ConfirmedConfig) -> str:
        """Return one line with the result for a config that was chosen without these runs."""
        gain = config.headline
        if gain is None:
            return f"not confirmed: iteration {config.iter}: {config.trouble}"
        claimed, measure = "", gain.measured_in
        if config.claimed is not None:
            claimed = f" (the search claimed {measure.signed(config.claimed)})"
        return (
            f"{config.verdict}: iteration {config.iter}, {measure.signed(gain.delta)} "
            f"{measure.short} (95 % {gain.span}) against the baseline{claimed}, "
            f"{self.basis_of(config)}"
        )

    def config_of(self, config_hash: str) -> ConfirmedConfig | None:
        """Return the finalist with this hash, or None."""
        return next((one for one in self.configs if one.config_hash == config_hash), None)


def latest_of(found: Iterable[Confirmed]) -> dict[str, ConfirmedConfig]:
    """Return each config's result in its latest confirmation, by config_hash.

    The search's own choice keeps its plain interval; every other config has the wider one.

    :param found: confirmations, newest first.
    """
    by_hash: dict[str, ConfirmedConfig] = {}
    for one in found:
        for config in one.configs:
            shown = config if config is one.chosen else config.among_others()
            by_hash.setdefault(config.config_hash, shown)
    return by_hash
