"""Count interim analyses: checks of a campaign's confirmations before one concludes.

A person who tries several texts, several choices of the search, or more and more seeds gets a
further chance at the wanted result each time. So each conclusion counts as an interim analysis. A
confirmation that was watched and abandoned counts too, since its results were seen.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from trajectory.confirmed import Confirmed
from trajectory.rows import ConfirmRow


@dataclass(frozen=True, slots=True)
class Question:
    """The question of a confirmation."""

    choice: str
    """The config_hash of the search's own choice."""
    seeds: tuple[int, ...]
    texts: frozenset[str]
    """Texts, by SHA-256."""

    def is_answered_by(self, other: Question) -> bool:
        """Return whether the other question is the same, perhaps with more texts."""
        alike = (self.choice, self.seeds) == (other.choice, other.seeds)
        return alike and self.texts <= other.texts


def earlier_analyses(
    question: Question, conclusions: Iterable[Confirmed], runs: Iterable[ConfirmRow], baseline: str
) -> int:
    """Return the number of interim analyses before this one. If the question was answered before,
    it is the number before that answer.

    Without a conclusion, a confirmation of the same choice on one of the same texts, planned with
    more seeds, could have ended after each seed seen from the second on, because an interval needs
    two. Any other counts once, since it was seen and abandoned. One with the same number of seeds
    is the present one, resumed.

    :param conclusions: the campaign's conclusions, the oldest first.
    :param runs: the campaign's fresh runs.
    :param baseline: the baseline's config_hash.
    """
    concluded: list[Question] = []
    for found in conclusions:
        texts = frozenset(text.sha256 for text in found.texts)
        answered = Question(found.chosen.config_hash, found.seeds, texts)
        if question.is_answered_by(answered):
            return found.earlier_analyses
        if not any(answered.is_answered_by(one) for one in concluded):
            concluded.append(answered)
    known = {(one.choice, len(one.seeds), one.texts) for one in concluded}
    count = len(concluded)
    for (choice, texts, planned), seeds in _begun(runs, baseline).items():
        seen = len(seeds - {question.seeds[0]})
        # A script's runs, and those on the search's own text, name no text at all.
        alike = texts == question.texts or not texts.isdisjoint(question.texts)
        same = choice == question.choice and alike
        if (choice, planned, texts) in known or (same and planned == len(question.seeds)):
            continue
        count += seen if same and planned > len(question.seeds) else min(seen, 1)
    return count


def _begun(
    runs: Iterable[ConfirmRow], baseline: str
) -> dict[tuple[str, frozenset[str], int], set[int]]:
    """Return the seeds seen of each choice, by its texts and the number of planned seeds."""
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
