"""Which configs are confirmed, on which seeds and texts.

The seeds are ones that no short run of the campaign used, and other ones than a stress test's. They
are the same for every config and every confirmation of a campaign, so that differences are paired
and what was run is found again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass
from typing import Self

from agent.search.campaign import Campaign
from agent.search.seed_blocks import seeds_of
from autoresearch.errors import CampaignError
from autoresearch.layout import TEXTS_DIR
from autoresearch.words import counted
from trainer.corpus.second_text import FreshText, given_text, set_aside
from trainer.spec import AnyConfig, ScoredText, TrialSpec
from trajectory import ranking
from trajectory.evidence import SAME_RUNS
from trajectory.ranking import Ranked


@dataclass(frozen=True, slots=True)
class Entrant:
    """A config in its place in the ranking of the time."""

    ranked: Ranked
    rank: int


@dataclass(frozen=True, slots=True)
class ConfirmPlan:
    """The configs and seeds of a confirmation."""

    seeds: tuple[int, ...]
    finalists: tuple[Entrant, ...]
    """By rank; the first is the search's own choice."""
    baseline: Entrant

    @classmethod
    def of(cls, campaign: Campaign, *, top: int, seeds: int) -> Self:
        """The ``top`` best configs but the baseline, and the incumbent where it is another.

        :raises CampaignError: where there is nothing to confirm, or too few seeds are left.
        """
        evidence = campaign.evidence
        places = ranking.top(evidence, len(evidence.configs))
        entrants = [Entrant(entry, place) for place, entry in enumerate(places, start=1)]
        baseline = [e for e in entrants if e.ranked.config_hash == evidence.baseline_hash]
        others = [e for e in entrants if e.ranked.config_hash != evidence.baseline_hash]
        if not baseline or not others:
            raise CampaignError(
                "nothing but the baseline was measured in this campaign yet, so there is nothing "
                "to confirm; run autoresearch loop first"
            )
        late = [e for e in others[top:] if e.ranked.config_hash == evidence.incumbent_hash]
        return cls(tuple(_fresh_seeds(campaign, seeds)), (*others[:top], *late), baseline[0])

    def runs(self) -> Iterator[tuple[Entrant, int]]:
        """Every (config, seed), all configs on one seed before the next seed."""
        return ((e, seed) for seed in self.seeds for e in (self.baseline, *self.finalists))


def _fresh_seeds(campaign: Campaign, count: int) -> list[int]:
    used: Set[int] = {
        seed
        for entry in campaign.evidence.configs.values()
        for seed in (*entry.scores, *entry.failed_seeds)
    }
    block = seeds_of(campaign.settings.seed, "confirmation")
    fresh = [seed for seed in block if seed not in used][:count]
    if len(fresh) < count:
        raise CampaignError(
            f"this campaign has {len(fresh)} seeds left for a confirmation and {count} were asked "
            "for; ask for fewer with --seeds"
        )
    return fresh


@dataclass(frozen=True, slots=True)
class FreshTexts:
    """What the runs are scored on besides the search's own text, and what they train on."""

    scored: tuple[ScoredText, ...]
    train_tokens: int | None
    lines: tuple[str, ...]
    """What a person should know of each."""

    @classmethod
    def of(cls, campaign: Campaign, given: Sequence[str]) -> Self:
        """The corpus' own second text, where it is large enough for one, and those that were given.

        :param given: sources, as :mod:`trainer.corpus.sources` has them.
        :raises CorpusError: where one cannot be used.
        """
        if campaign.command is not None:
            return cls._of_command(campaign, given)
        own = set_aside(campaign.corpus)
        others = [given_text(source, campaign.corpus) for source in given]
        if own is not None:
            first = _said_of_own(own, held_back=campaign.settings.hold_back)
        else:
            first = TOO_SMALL if others else f"{TOO_SMALL}{SEEDS_ALONE}"
        directory = campaign.directory / TEXTS_DIR
        texts = [text.written(directory) for text in (own, *others) if text is not None]
        return cls(
            scored=tuple({text.sha256: text for text in texts}.values()),
            train_tokens=own.train_tokens if own else None,
            lines=(first, *map(_said_of_other, others)),
        )

    @classmethod
    def _of_command(cls, campaign: Campaign, given: Sequence[str]) -> Self:
        """None: the command scores its own text.

        :raises CampaignError: where another was asked for, or where no run could be a fresh one.
        """
        if campaign.evidence.tally.runs_are_the_same:
            raise CampaignError(
                f"{SAME_RUNS}, so that a fresh run would be the old one again and nothing can be "
                "confirmed by it; begin a campaign whose script is seeded by its {seed}"
            )
        if given:
            raise CampaignError(
                f"the command of {campaign.directory} scores its own text, and {given[0]} cannot "
                "be given to it; leave --heldout out"
            )
        return cls(scored=(), train_tokens=None, lines=(f"{ITS_OWN_TEXT}{SEEDS_ALONE_THERE}",))


ITS_OWN_TEXT = "the command scores its own text"
SEEDS_ALONE_THERE = ", so what is confirmed is about fresh seeds alone"
TOO_SMALL = "a tenth of the corpus has too few whole documents at its end to set any text aside"
SEEDS_ALONE = (
    ", so what is confirmed is about fresh seeds alone, on the text that the search scored too; "
    "name another with --heldout FILE"
)


def _said_of_own(text: FreshText, *, held_back: bool) -> str:
    size = sum(part.bytes for part in text.parts)
    also = ", as all of this campaign did" if held_back else ""
    return (
        f"{text.name}: the last {counted(text.documents, 'document')} of the train split, "
        f"{size:,} bytes; these runs train without them{also}"
    )


def _said_of_other(text: FreshText) -> str:
    size = sum(part.bytes for part in text.parts)
    left_out = f", {text.left_out} more are in the corpus and left out" if text.left_out else ""
    return f"{text.name}: {counted(text.documents, 'document')}, {size:,} bytes{left_out}"


@dataclass(frozen=True, slots=True)
class ConfirmSpec:
    """Turns (config, seed) into the spec of a run: the loop's own, and more to score."""

    campaign: Campaign
    texts: FreshTexts

    def __call__(self, config: AnyConfig, seed: int) -> TrialSpec:
        """The spec, its trial_id empty. Its time limit grows by what there is to score."""
        short = self.campaign.trial_spec(config, seed)
        if not self.texts.scored:
            return short.model_copy(update={"train_tokens": self.texts.train_tokens})
        more = sum(text.tokens for text in self.texts.scored)
        longer = 1 + more / self.campaign.corpus.info.heldout_tokens
        return short.model_copy(
            update={
                "train_tokens": self.texts.train_tokens,
                "texts": self.texts.scored,
                "limits": short.limits.model_copy(update={"wall_s": short.limits.wall_s * longer}),
            }
        )
