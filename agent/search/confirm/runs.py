"""The confirmation: every run that the journal lacks, then what they say.

Every run is a trial like the loop's: sandboxed, metered, one row when it ends. What is in the
journal is not run again; what a kill cut short is run again from its start.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from agent.search.campaign import Campaign
from agent.search.confirm.looks import Question, earlier_looks
from agent.search.confirm.plan import ConfirmPlan, ConfirmSpec, Entrant
from agent.search.planned_runs import DoneRun, PlannedRuns, between_runs
from agent.search.scribe import Scribe, timestamp
from agent.search.stopping import StopRequest
from agent.search.trials import TrialRunner, TrialWatcher
from autoresearch.errors import CampaignError
from trainer.spec import AnyConfig, TrialFailed, TrialOk, TrialSpec, difference
from trainer.telemetry import Meter
from trajectory.confirmation import FEWEST_SEEDS, FreshRuns, gains
from trajectory.confirmed import Confirmed, ConfirmedConfig, ConfirmText, FreshGain
from trajectory.rows import OUTSIDE_SCHEMA, ConfirmedRow, ConfirmRow


class ConfirmWatcher(TrialWatcher, Protocol):
    """Whoever shows a confirmation to a person."""

    def note(self, text: str) -> None: ...
    def run_begins(self, entrant: Entrant, seed: int, number: int, runs: int) -> None: ...
    def run_ended(self, row: ConfirmRow) -> None: ...


@dataclass(slots=True)
class Confirmation:
    """One confirmation of a campaign. Make one and call :meth:`run` once."""

    campaign: Campaign
    plan: ConfirmPlan
    spec: ConfirmSpec
    runner: TrialRunner
    """Whose template is ``spec``."""
    watcher: ConfirmWatcher
    stop: StopRequest
    meter: Meter
    retry_failed: bool = False
    """Run again what ended without a score."""
    scribe: Scribe = field(init=False)
    _rows: dict[tuple[str, int], ConfirmRow] = field(init=False)
    """The newest row that serves this plan, by config and seed."""

    def __post_init__(self) -> None:
        self.scribe = Scribe(self.campaign, self.stop, self.watcher.note)
        self._rows = {}
        for row in self.campaign.history.newest(ConfirmRow):
            if self._serves(row):
                self._rows.setdefault((row.config_hash, row.trial.seed), row)
        self._refuse_fewer_seeds()

    def run(self) -> ConfirmedRow:
        """Every run of the plan that the journal lacks, then the conclusion.

        :raises Interrupted: when a person stopped it; everything finished is on disk.
        """
        self.scribe.report_unfinished(self.runner.orphaned)
        missing = self.missing()
        entrants = {(one.ranked.config_hash, seed): one for one, seed in missing}
        PlannedRuns(self.runner, self.meter, self.scribe).go(
            self._specs(missing),
            "confirm",
            lambda done: self._write(entrants[done.trial.config_hash, done.trial.seed], done),
        )
        return self._conclude()

    def missing(self) -> list[tuple[Entrant, int]]:
        """The runs of the plan that are in no row."""
        return [(e, seed) for e, seed in self.plan.runs() if not self._done(e, seed)]

    def looks(self) -> int:
        """Earlier ones at confirmations of this campaign; see
        :func:`~agent.search.confirm.looks.earlier_looks`."""
        history = self.campaign.history
        texts = frozenset(text.sha256 for text in self.spec.texts.scored)
        return earlier_looks(
            Question(self._chosen_hash, self.plan.seeds, texts),
            [row.found for row in reversed(history.newest(ConfirmedRow))],
            history.newest(ConfirmRow),
            self.plan.baseline.ranked.config_hash,
        )

    def _refuse_fewer_seeds(self) -> None:
        """A choice among what is known already would be told as if it were all."""
        known = {
            seed for (name, seed), row in self._rows.items() if name == self._chosen_hash
        } - set(self.plan.seeds)
        if known:
            raise CampaignError(
                f"the search's choice has runs on {len(known | set(self.plan.seeds))} fresh seeds "
                f"and these texts already, and {len(self.plan.seeds)} were asked for, a choice "
                f"among them; ask for --seeds {len(known | set(self.plan.seeds))} or more"
            )

    @property
    def _chosen_hash(self) -> str:
        return self.plan.finalists[0].ranked.config_hash

    def looked_before(self) -> int:
        """How many other configs were scored on any of these texts: each look fits a text a
        little."""
        texts = {text.sha256 for text in self.spec.texts.scored}
        mine = {e.ranked.config_hash for e in (self.plan.baseline, *self.plan.finalists)}
        seen = {
            row.config_hash
            for row in self.campaign.history.newest(ConfirmRow)
            if isinstance(row.trial.result, TrialOk)
            and any(text.sha256 in texts for text in row.trial.result.texts)
        }
        return len(seen - mine)

    def expected_s(self) -> float:
        """How long the missing runs should take, by the latest short run of each config."""
        one_by_one = sum(self._short_s(entrant) for entrant, _ in self.missing())
        return one_by_one / self.runner.places

    def _short_s(self, entrant: Entrant) -> float:
        known = self.campaign.history.measurements(entrant.ranked.config_hash)
        return known[0].wall_s if known else 0.0

    def _done(self, entrant: Entrant, seed: int) -> bool:
        row = self._rows.get((entrant.ranked.config_hash, seed))
        if row is None:
            return False
        return not isinstance(row.trial.result, TrialFailed) or not self.retry_failed

    def _serves(self, row: ConfirmRow) -> bool:
        """Whether it was trained on what this plan's runs are, and scored on their texts."""
        if row.train_tokens != self.spec.texts.train_tokens:
            return False
        result = row.trial.result
        if isinstance(result, TrialFailed):
            # What more there was to score may be what it failed of.
            return set(row.texts) <= {text.sha256 for text in self.spec.texts.scored}
        scored = {text.sha256 for text in result.texts} if isinstance(result, TrialOk) else set()
        return scored >= {text.sha256 for text in self.spec.texts.scored}

    def _specs(self, missing: Sequence[tuple[Entrant, int]]) -> Iterator[TrialSpec]:
        for number, (entrant, seed) in enumerate(missing, start=1):
            between_runs(self.scribe)
            self.watcher.run_begins(entrant, seed, number, len(missing))
            yield self.runner.spec(entrant.ranked.config, seed)

    def _write(self, entrant: Entrant, done: DoneRun) -> None:
        ranked, seed = entrant.ranked, done.trial.seed
        self.scribe.announce_format(OUTSIDE_SCHEMA)
        row = ConfirmRow(
            at=timestamp(),
            rank=entrant.rank,
            train_tokens=self.spec.texts.train_tokens,
            texts=tuple(text.sha256 for text in self.spec.texts.scored),
            seeds=len(self.plan.seeds),
            config=ranked.config,
            config_hash=ranked.config_hash,
            trial=done.trial,
            energy_wh=done.energy_wh,
        )
        self.scribe.record(row)
        self._rows[ranked.config_hash, seed] = row
        self._account_for_superseded(ranked.config, seed)
        self.watcher.run_ended(row)

    def _account_for_superseded(self, config: AnyConfig, seed: int) -> None:
        """A run of this config and seed that had finished under other settings, or for other texts,
        will not be asked for any more."""

        def same(spec: TrialSpec) -> bool:
            mine = (config, seed, self.campaign.settings.budget)
            return (spec.config, spec.seed, spec.budget) == mine

        self.scribe.interrupted(
            self.runner.orphaned.give_up(same),
            "finished before the campaign last stopped, under other settings, and was run again",
        )

    def _conclude(self) -> ConfirmedRow:
        baseline = self._fresh_runs(self.plan.baseline)
        looks = self.looks()
        found = Confirmed(
            seeds=self.plan.seeds,
            texts=tuple(
                ConfirmText(
                    name=text.name, sha256=text.sha256, bytes=text.bytes, parts=len(text.parts)
                )
                for text in self.spec.texts.scored
            ),
            looks=looks,
            configs=tuple(
                self._config(entrant, baseline, looks) for entrant in self.plan.finalists
            ),
        )
        latest = next(iter(self.campaign.history.newest(ConfirmedRow, 1)), None)
        if latest is not None and latest.found == found:
            return latest
        row = ConfirmedRow(at=timestamp(), found=found)
        self.scribe.announce_format(OUTSIDE_SCHEMA)
        self.scribe.record(row)
        return row

    def _fresh_runs(self, entrant: Entrant) -> FreshRuns:
        name = entrant.ranked.config_hash
        return FreshRuns({seed: self._rows[name, seed].trial.result for seed in self.plan.seeds})

    def _config(self, entrant: Entrant, baseline: FreshRuns, looks: int) -> ConfirmedConfig:
        """A finalist that fails on any seed is not confirmed: a recipe that cannot be relied on to
        train is no recipe, and its other seeds alone would flatter it."""
        ranked, runs = entrant.ranked, self._fresh_runs(entrant)
        changes = difference(ranked.config, self.campaign.menu.baseline)
        trouble = ""
        measured: tuple[FreshGain, ...] = ()
        if runs.failed is not None:
            seed, failure = runs.failed
            trouble = f"it failed on seed {seed} ({failure.status}: {failure.message})"
        else:
            count = len(self.plan.finalists)
            texts = self.spec.texts.scored
            measured = gains(
                runs,
                baseline,
                texts,
                finalists=count,
                looks=looks,
                measure=self.campaign.row.measure,
            )
            if not measured:
                trouble = f"the baseline was measured on fewer than {FEWEST_SEEDS} of these seeds"
        return ConfirmedConfig(
            config_hash=ranked.config_hash,
            iter=ranked.iter,
            rank=entrant.rank,
            changes=changes,
            claimed=ranked.delta_vs_baseline,
            claimed_lo=ranked.delta_lo,
            claimed_hi=ranked.delta_hi,
            gains=measured,
            trouble=trouble,
        )
