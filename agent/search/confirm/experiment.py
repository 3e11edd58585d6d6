"""Run a confirmation: the best configs and the baseline on fresh seeds and fresh text."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Self

from agent.search.campaign import Campaign
from agent.search.confirm.interim import Question, earlier_analyses
from agent.search.confirm.texts import FreshTexts
from agent.search.experiment import Experiment, PlannedRun, fresh_seeds
from autoresearch.errors import CampaignError
from autoresearch.words import counted, timestamp
from trainer.spec import TrialFailed, TrialOk, difference
from trajectory import ranking
from trajectory.confirmation import FEWEST_SEEDS, FreshRuns, gains
from trajectory.confirmed import Confirmed, ConfirmedConfig, ConfirmText, FreshGain
from trajectory.ranking import Ranked
from trajectory.rows import ConfirmedRow, ConfirmRow, TrialRecord


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
        scored = {text.sha256 for text in result.texts} if isinstance(result, TrialOk) else set()
        return scored >= {text.sha256 for text in self.texts.scored}

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
        :func:`~agent.search.confirm.interim.earlier_analyses`."""
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
            if isinstance(row.trial.result, TrialOk)
            and any(text.sha256 in texts for text in row.trial.result.texts)
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
