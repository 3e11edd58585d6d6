"""What a confirmation found, as values: claims of the search beside what fresh runs say."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Literal, Self

from pydantic import Field

from autoresearch.values import Finite, Frozen, NonNegativeInt, Positive, PositiveInt, Scalar
from trainer.spec import BPB, Measure

SEARCH_TEXT = "the search's text"
"""The campaign's own held-out text, by which the search chose."""
OWN_RULER = "the script's ruler"
"""In that text's place where a command of one's own says the scores: of its text nobody knows."""


class ConfirmText(Frozen):
    """A text that was scored beside the search's own, and that no trial of the search scored."""

    name: str
    sha256: str
    bytes: PositiveInt
    parts: PositiveInt
    """Stretches of whole documents that were scored by themselves."""


class FreshGain(Frozen):
    """A config's difference to the baseline on fresh seeds and one text; negative is better.

    Of objectives, lower is better. The interval is Student's t; see :mod:`trajectory.confirmation`.
    """

    text: str
    """Its name, or :data:`SEARCH_TEXT` or :data:`OWN_RULER`."""
    holds_for: Literal["this text", "text like it"]
    """What the interval speaks of: the text's own spread is in it where it has parts enough to
    show one."""
    delta: Finite
    lo: Finite
    """95 % interval of this one difference, wider where earlier looks came before it."""
    hi: Finite
    all_lo: Finite
    """The same where it is to hold for all configs of the confirmation at once (Bonferroni)."""
    all_hi: Finite
    seeds: PositiveInt
    """Common seeds behind it."""
    dof: Positive
    measure: Measure | None = Field(None, exclude_if=lambda measure: measure is None)
    """What the differences are of; None, and left out of a row: bits per byte."""

    @property
    def is_on_fresh_text(self) -> bool:
        """Whether no trial of the search scored its text."""
        return self.text not in {SEARCH_TEXT, OWN_RULER}

    @property
    def measured_in(self) -> Measure:
        """What the differences are of."""
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
        """The one that is to hold for all configs at once."""
        return self.measured_in.signed_span(self.all_lo, self.all_hi)


class ConfirmedConfig(Frozen):
    """One finalist."""

    config_hash: str
    iter: NonNegativeInt
    rank: PositiveInt
    """In the search's ranking at the time."""
    changes: dict[str, Scalar]
    """Its values that are not the baseline's."""
    claimed: Finite | None
    """Its difference to the baseline as the search believed it."""
    claimed_lo: Finite | None
    claimed_hi: Finite | None
    gains: tuple[FreshGain, ...] = ()
    """On the search's own text, then on each other text. Empty where nothing can be said."""
    trouble: str = ""
    """Why nothing can be said, in a clause."""

    @property
    def headline(self) -> FreshGain | None:
        """What is told of it: on the first text that the search has not scored, where there is
        one; else on fresh seeds alone."""
        return self.gains[min(1, len(self.gains) - 1)] if self.gains else None

    @property
    def stands(self) -> bool:
        """Whether all of its 95 % interval is better than the baseline."""
        gain = self.headline
        return gain is not None and gain.hi < 0

    def among_others(self) -> Self:
        """The same with the intervals that hold for all configs of the confirmation at once: told
        beside others, any of them may be picked for what these runs say."""
        wide = [
            gain.model_copy(update={"lo": gain.all_lo, "hi": gain.all_hi}) for gain in self.gains
        ]
        return self.model_copy(update={"gains": tuple(wide)})


class Confirmed(Frozen):
    """A confirmation that ran to its end."""

    seeds: tuple[NonNegativeInt, ...]
    texts: tuple[ConfirmText, ...]
    """Empty: fresh seeds alone, on the search's own text."""
    looks: NonNegativeInt = 0
    """Earlier ones at confirmations of this campaign, on whatever text: each asks more of the
    intervals of this one."""
    configs: Annotated[tuple[ConfirmedConfig, ...], Field(min_length=1)]
    """The first is the search's own choice, made before any of these runs. Only of it does the
    plain interval hold whatever these runs say; for a choice among several by these runs there is
    the wider one."""

    @property
    def chosen(self) -> ConfirmedConfig:
        """The config whose gain is the headline."""
        return self.configs[0]

    @property
    def basis(self) -> str:
        """What the search's own choice was measured on, see :meth:`basis_of`."""
        return self.basis_of(self.chosen)

    @property
    def headline(self) -> str:
        """One line: what is confirmed of the search's own choice."""
        return self.said_of(self.chosen)

    def basis_of(self, config: ConfirmedConfig) -> str:
        """What the runs were made on: ``on 6 fresh seeds and on text that no trial of the search
        scored``."""
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
            text = f", by {OWN_RULER}"
        else:
            text = ", on the text that the search scored too"
        again = f", look {self.looks + 1} of this campaign" if self.looks else ""
        return f"{seeds}{text}{again}"

    def said_of(self, config: ConfirmedConfig) -> str:
        """One line: what is confirmed of one that was chosen without looking at these runs."""
        gain = config.headline
        if gain is None:
            return f"not confirmed: iteration {config.iter}: {config.trouble}"
        verdict = "confirmed" if config.stands else "not confirmed"
        claimed = ""
        if config.claimed is not None:
            claimed = f" (the search claimed {gain.measured_in.signed(config.claimed)})"
        return (
            f"{verdict}: iteration {config.iter}, {gain} against the baseline{claimed}, "
            f"{self.basis_of(config)}"
        )

    def config_of(self, config_hash: str) -> ConfirmedConfig | None:
        """The finalist with this hash, where it was one."""
        return next((one for one in self.configs if one.config_hash == config_hash), None)


NOTHING_YET = "Nothing has been measured yet"
"""The finding of a campaign without scores."""


def finding(
    measure: Measure,
    fresh: ConfirmedConfig | None,
    delta: float | None,
    lo: float | None,
    hi: float | None,
) -> str:
    """Return what a campaign found, in one clause: the title of its page and its report.

    :param fresh: what fresh runs say of the best config; None before a confirmation.
    :param delta: that config's difference to the baseline as believed, ``lo`` and ``hi`` its 95 %
        interval; None where it is the baseline itself.
    """
    word = "Not confirmed yet"
    if fresh is not None and (gain := fresh.headline) is not None:
        word = "Confirmed" if fresh.stands else "Not confirmed"
        delta, lo, hi = gain.delta, gain.lo, gain.hi
    if delta is None:
        return "Nothing is better than the baseline yet"
    side = "better" if delta <= 0 else "worse"
    amount = f"{measure.size(abs(delta))} {measure.short} {side} than the baseline"
    if lo is None or hi is None:
        return f"{word}: {amount}, by single runs"
    ends = (-hi, -lo) if delta <= 0 else (lo, hi)
    span = " … ".join(measure.size(end).replace("-", "\u2212") for end in ends)
    return f"{word}: {amount} (95 %: {span})"


def latest_of(found: Iterable[Confirmed]) -> dict[str, ConfirmedConfig]:
    """By config_hash, what the latest confirmation that had the config says of it: with its plain
    interval where it was the search's own choice, with the wider one of all otherwise.

    :param found: the newest first.
    """
    by_hash: dict[str, ConfirmedConfig] = {}
    for one in found:
        for config in one.configs:
            told = config if config is one.chosen else config.among_others()
            by_hash.setdefault(config.config_hash, told)
    return by_hash
