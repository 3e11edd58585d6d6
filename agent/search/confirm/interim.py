"""Interim analyses: how often a campaign's confirmations were looked at before one concludes.

Whoever tries one text after another, one choice of the search after another, or more and more seeds
has a chance with each to find what they want. So each conclusion counts as an interim analysis
(a look), and so does a confirmation that was watched and left, since its results were seen.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Self

from trajectory.confirmed import Confirmed
from trajectory.rows import ConfirmRow


@dataclass(frozen=True, slots=True)
class Question:
    """The question of a confirmation."""

    choice: str
    """The search's own: a config_hash."""
    seeds: tuple[int, ...]
    texts: frozenset[str]
    """By SHA-256."""

    @classmethod
    def of(cls, found: Confirmed) -> Self:
        """Return what a conclusion answers."""
        texts = frozenset(text.sha256 for text in found.texts)
        return cls(found.chosen.config_hash, found.seeds, texts)

    def is_answered_by(self, other: Question) -> bool:
        """Whether the other asks this, perhaps of more texts."""
        alike = (self.choice, self.seeds) == (other.choice, other.seeds)
        return alike and self.texts <= other.texts


def earlier_analyses(
    question: Question, conclusions: Iterable[Confirmed], runs: Iterable[ConfirmRow], baseline: str
) -> int:
    """Return the looks before this one; of a question answered before, the looks before that.

    :param conclusions: the campaign's conclusions, the oldest first.
    :param runs: its fresh runs.
    :param baseline: its config_hash.
    """
    concluded: list[Question] = []
    for found in conclusions:
        answered = Question.of(found)
        if question.is_answered_by(answered):
            return found.looks
        if not any(answered.is_answered_by(one) for one in concluded):
            concluded.append(answered)
    return len(concluded) + sum(_left(question, concluded, runs, baseline))


def _left(
    question: Question, concluded: Sequence[Question], runs: Iterable[ConfirmRow], baseline: str
) -> Iterable[int]:
    """Yield the looks at each confirmation that came to no conclusion.

    One of the same choice on one of the same texts that was to have more seeds could have been
    ended after each seed that was seen, from the second on: an interval needs two. Any other was
    seen, and given up. One of as many seeds is this one, resumed.
    """
    known = {(one.choice, len(one.seeds), one.texts) for one in concluded}
    for (choice, texts, count), seeds in _begun(runs, baseline).items():
        seen = len(seeds - {question.seeds[0]})
        same = choice == question.choice and bool(texts & question.texts)
        if (choice, count, texts) in known or (same and count == len(question.seeds)):
            continue
        yield seen if same and count > len(question.seeds) else min(seen, 1)


def _begun(
    runs: Iterable[ConfirmRow], baseline: str
) -> dict[tuple[str, frozenset[str], int], set[int]]:
    """Return the seeds that were seen of each choice on its texts where so many were planned."""
    begun: dict[tuple[str, frozenset[str], int], set[int]] = defaultdict(set)
    best: dict[tuple[frozenset[str], int], int] = {}
    rows = [row for row in runs if row.config_hash != baseline]
    for row in rows:
        planned = frozenset(row.texts), row.seeds
        best[planned] = min(best.get(planned, row.rank), row.rank)
    for row in rows:
        texts, count = frozenset(row.texts), row.seeds
        if row.rank == best[texts, count]:  # the others have the wider interval
            begun[row.config_hash, texts, count].add(row.trial.seed)
    return begun
