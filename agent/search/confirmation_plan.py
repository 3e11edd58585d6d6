"""Plan a confirmation: its configs, its seeds, and the texts scored besides the search's own."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from agent.search.campaign import Campaign
from agent.search.experiment import fresh_seeds
from autoresearch.errors import CampaignError
from autoresearch.layout import TEXTS_DIR
from autoresearch.words import counted
from trainer.corpus.second_text import given_text, holdout_split
from trainer.schema import ScoredText
from trajectory import ranking
from trajectory.evidence import SAME_RUNS
from trajectory.ranking import Ranked


@dataclass(frozen=True, slots=True)
class Candidate:
    """A config and its rank when the confirmation was planned."""

    ranked: Ranked
    rank: int

    def __str__(self) -> str:
        """Return a name such as ``rank 2, iteration 7``."""
        name = f"iteration {self.ranked.iter}" if self.ranked.iter else "the baseline"
        return f"rank {self.rank}, {name}"


@dataclass(frozen=True, slots=True)
class ConfirmPlan:
    """The configs and seeds of a confirmation."""

    seeds: tuple[int, ...]
    finalists: tuple[Candidate, ...]
    """Configs to confirm, by rank; the first is the search's own choice."""
    baseline: Candidate

    @classmethod
    def of(cls, campaign: Campaign, *, top: int, seeds: int) -> Self:
        """Plan the ``top`` best configs without the baseline, and the incumbent if it is not among
        them.

        :raises CampaignError: if there is nothing to confirm, or too few seeds are left.
        """
        evidence = campaign.evidence
        places = ranking.top(evidence, len(evidence.configs))
        candidates = [Candidate(entry, place) for place, entry in enumerate(places, start=1)]
        baseline = [c for c in candidates if c.ranked.config_hash == evidence.baseline_hash]
        others = [c for c in candidates if c.ranked.config_hash != evidence.baseline_hash]
        if not baseline or not others:
            raise CampaignError(
                "nothing but the baseline was measured in this campaign yet, so there is nothing "
                "to confirm; run autoresearch loop first"
            )
        late = [c for c in others[top:] if c.ranked.config_hash == evidence.incumbent_hash]
        return cls(fresh_seeds(campaign, "confirm", seeds), (*others[:top], *late), baseline[0])


@dataclass(frozen=True, slots=True)
class FreshTexts:
    """The texts that runs are scored on besides the search's own, and the tokens that they train
    on."""

    scored: tuple[ScoredText, ...]
    train_tokens: int | None
    lines: tuple[str, ...]
    """Lines for the user, one per text."""

    @classmethod
    def of(cls, campaign: Campaign, given: Sequence[str]) -> Self:
        """Return the corpus's own holdout split, if it is large enough for one, and the given
        texts.

        :param given: sources, in the form of :mod:`trainer.corpus.sources`.
        :raises CorpusError: if one cannot be used.
        :raises CampaignError: if a text is given to a command, which scores its own, or if all runs
            of a command's config are the same.
        """
        if not campaign.trainer.reads_corpus:
            if campaign.evidence.runs_are_the_same:
                raise CampaignError(
                    f"{SAME_RUNS}, so a fresh run would repeat the old one and confirm nothing; "
                    "begin a campaign whose script is seeded by its {seed}"
                )
            if given:
                raise CampaignError(
                    f"the command of {campaign.directory} scores its own text, and {given[0]} "
                    "cannot be given to it; leave --heldout out"
                )
            line = (
                "the command scores its own text, so what is confirmed is about fresh seeds alone"
            )
            return cls(scored=(), train_tokens=None, lines=(line,))
        own = holdout_split(campaign.corpus)
        others = [given_text(source, campaign.corpus) for source in given]
        if own is not None:
            size = sum(part.bytes for part in own.parts)
            also = ", as all of this campaign did" if campaign.settings.reserve_holdout else ""
            first = (
                f"{own.name}: the last {counted(own.documents, 'document')} of the train split, "
                f"{size:,} bytes; these runs train without them{also}"
            )
        else:
            first = TOO_SMALL if others else f"{TOO_SMALL}{SEEDS_ALONE}"
        lines = [first]
        for text in others:
            size = sum(part.bytes for part in text.parts)
            more = f", {text.left_out} more are in the corpus and left out" if text.left_out else ""
            lines.append(
                f"{text.name}: {counted(text.documents, 'document')}, {size:,} bytes{more}"
            )
        directory = campaign.directory / TEXTS_DIR
        texts = [text.written(directory) for text in (own, *others) if text is not None]
        return cls(
            scored=tuple({text.sha256: text for text in texts}.values()),
            train_tokens=own.train_tokens if own else None,
            lines=tuple(lines),
        )


TOO_SMALL = "a tenth of the corpus has too few whole documents at its end to set any text aside"
SEEDS_ALONE = (
    ", so what is confirmed is about fresh seeds alone, on the text that the search scored too; "
    "choose another with --heldout FILE"
)
