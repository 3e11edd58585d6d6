"""Run a confirmation: the best configs and the baseline on fresh seeds and fresh text."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from agent.search.confirmation_plan import Candidate, ConfirmPlan, FreshTexts
from agent.search.experiment import Experiment, PlannedRun
from autoresearch.errors import CampaignError
from autoresearch.words import counted, timestamp
from trainer.schema import TrialFailed, difference
from trajectory.confirmation import FEWEST_SEEDS, FreshRuns, gains
from trajectory.confirmed import Confirmed, ConfirmedConfig, ConfirmText, FreshGain
from trajectory.rows import ConfirmedRow, ConfirmRow, TrialRecord


@dataclass(kw_only=True)
class Confirmation(Experiment[Candidate, ConfirmRow, Confirmed]):
    """A confirmation. A run's tag is its config's place in the ranking."""

    role = "confirm"
    row_type = ConfirmRow

    plan: ConfirmPlan
    texts: FreshTexts

    def __post_init__(self) -> None:
        super().__post_init__()
        known = {seed for name, seed, _ in self.rows if name == self._chosen_hash}
        known -= set(self.plan.seeds)
        if known:  # choosing among known results would bias the report
            count = len(known | set(self.plan.seeds))
            raise CampaignError(
                f"the search's choice has runs on {count} fresh seeds and these texts already, and "
                f"{len(self.plan.seeds)} were asked for, a choice among them; ask for --seeds "
                f"{count} or more"
            )

    # --- the plan --------------------------------------------------------------------------------

    def runs(self) -> Iterator[PlannedRun[Candidate]]:
        """Yield all configs on one seed before the next seed."""
        texts = self.texts
        for seed in self.plan.seeds:
            for one in (self.plan.baseline, *self.plan.finalists):
                short = self.campaign.trial_spec(one.ranked.config, seed)
                more: dict[str, object] = {"train_tokens": texts.train_tokens}
                if texts.scored:  # scoring them extends the time limit
                    scored = sum(text.tokens for text in texts.scored)
                    longer = 1 + scored / self.campaign.corpus.info.heldout_tokens
                    wall_s = short.limits.wall_s * longer
                    limits = short.limits.model_copy(update={"wall_s": wall_s})
                    more |= {"texts": texts.scored, "limits": limits}
                yield PlannedRun(short.model_copy(update=more), str(one), one)

    def expected_s(self, run: PlannedRun[Candidate]) -> float:
        known = self.campaign.results.measurements(run.tag.ranked.config_hash)
        return known[0].wall_s if known else 0.0

    # --- its rows --------------------------------------------------------------------------------

    def serves(self, row: ConfirmRow) -> bool:
        """Return whether a row was trained on this plan's training tokens and scored its texts."""
        if row.train_tokens != self.texts.train_tokens:
            return False
        result = row.trial.result
        if isinstance(result, TrialFailed):
            # Scoring further texts may be the reason that the run failed.
            return set(row.texts) <= {text.sha256 for text in self.texts.scored}
        return {text.sha256 for text in result.texts} >= {text.sha256 for text in self.texts.scored}

    def row(
        self, run: PlannedRun[Candidate], trial: TrialRecord, energy_wh: float | None
    ) -> ConfirmRow:
        return ConfirmRow(
            at=timestamp(),
            rank=run.tag.rank,
            train_tokens=self.texts.train_tokens,
            texts=tuple(text.sha256 for text in self.texts.scored),
            seeds=len(self.plan.seeds),
            config=run.spec.config,
            config_hash=trial.config_hash,
            trial=trial,
            energy_wh=energy_wh,
        )

    # --- the conclusion --------------------------------------------------------------------------

    def analyses(self) -> int:
        """Return the earlier interim analyses; see
        :func:`~agent.search.confirmation.earlier_analyses`."""
        results = self.campaign.results
        texts = frozenset(text.sha256 for text in self.texts.scored)
        return earlier_analyses(
            Question(self._chosen_hash, self.plan.seeds, texts),
            [row.found for row in reversed(results.newest(ConfirmedRow))],
            results.newest(ConfirmRow),
            self.plan.baseline.ranked.config_hash,
        )

    def looked_before(self) -> int:
        """Return how many other configs were scored on any of these texts. Each one fits a text a
        little."""
        texts = {text.sha256 for text in self.texts.scored}
        mine = {c.ranked.config_hash for c in (self.plan.baseline, *self.plan.finalists)}
        seen = {
            row.config_hash
            for row in self.campaign.results.newest(ConfirmRow)
            if any(text.sha256 in texts for text in row.trial.result.texts)
        }
        return len(seen - mine)

    def conclude(self) -> Confirmed:
        earlier = self.analyses()
        texts = (
            ConfirmText(name=text.name, sha256=text.sha256, bytes=text.bytes, parts=len(text.parts))
            for text in self.texts.scored
        )
        found = Confirmed(
            seeds=self.plan.seeds,
            texts=tuple(texts),
            earlier_analyses=earlier,
            configs=tuple(self._config(one, earlier) for one in self.plan.finalists),
        )
        return self.record_found(ConfirmedRow(at=timestamp(), found=found)).found

    def announcement(self) -> Iterator[str]:
        seeds = self.plan.seeds
        yield (
            f"confirm   {len(self.plan.finalists)} of the best and the baseline, on {len(seeds)} "
            f"seeds that chose nothing ({seeds[0]} … {seeds[-1]})"
        )
        for line in self.texts.lines:
            yield f"          {line}"
        if earlier := self.analyses():
            times = counted(earlier, "earlier interim analysis", "earlier interim analyses")
            yield f"          {times} of its confirmations: the intervals are wider for it"
        if looked := self.looked_before():
            yield (
                f"          {counted(looked, 'other config')} of this campaign used this text "
                "before, and each use fits the choice to it a little; add another text with "
                "--heldout FILE"
            )
        yield self.progress("the search")

    @property
    def _chosen_hash(self) -> str:
        return self.plan.finalists[0].ranked.config_hash

    def _fresh_runs(self, one: Candidate) -> FreshRuns:
        name = one.ranked.config_hash
        return FreshRuns(
            {seed: self.rows[name, seed, None].trial.result for seed in self.plan.seeds}
        )

    def _config(self, one: Candidate, earlier: int) -> ConfirmedConfig:
        """Return the result of a finalist.

        A config that fails on any seed is not confirmed: a recipe must train reliably, and its
        other seeds would overstate it.
        """
        ranked, runs = one.ranked, self._fresh_runs(one)
        trouble = ""
        measured: tuple[FreshGain, ...] = ()
        if runs.failed is not None:
            seed, failure = runs.failed
            trouble = f"it failed on seed {seed} ({failure.status}: {failure.message})"
        else:
            measured = gains(
                runs,
                self._fresh_runs(self.plan.baseline),
                self.texts.scored,
                finalists=len(self.plan.finalists),
                earlier_analyses=earlier,
                measure=self.campaign.row.measure,
            )
            if not measured:
                trouble = f"the baseline was measured on fewer than {FEWEST_SEEDS} of these seeds"
        return ConfirmedConfig(
            config_hash=ranked.config_hash,
            iter=ranked.iter,
            rank=one.rank,
            changes=difference(ranked.config, self.campaign.menu.baseline),
            claimed=ranked.delta_vs_baseline,
            claimed_lo=ranked.delta_lo,
            claimed_hi=ranked.delta_hi,
            gains=measured,
            trouble=trouble,
        )


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

    An interim analysis is a check of the campaign's confirmations before one concludes. A person
    who tries several texts, several choices of the search, or more and more seeds gets a further
    chance at the wanted result each time. So each conclusion counts as an interim analysis. A
    confirmation that was watched and abandoned counts too, since its results were seen.

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
