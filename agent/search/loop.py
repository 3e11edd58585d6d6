"""The loop: propose, check, race, decide, write down.

:class:`Loop` reads as the sentence in the design. Everything it needs is handed to it, already
chosen; it decides nothing about how a proposer thinks, a trial runs or a row is stored.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Protocol

from agent.judge import Assessment, Rules
from agent.menu.rails import Checked, Rails
from agent.proposers.base import Memory, Proposer
from agent.search.campaign import Campaign
from agent.search.goal import Goal, Work
from agent.search.pending import PendingFile, PendingIteration
from agent.search.pruning import prune_rule
from agent.search.race import Outcome, Race
from agent.search.scribe import Scribe, timestamp
from agent.search.stopping import StopRequest
from agent.search.trials import TrialRunner, TrialWatcher
from autoresearch.errors import CampaignError
from trainer.spec import Config, CurvePoint, PruneRule, TrialFailed
from trainer.telemetry import Meter
from trajectory.ranking import Noise
from trajectory.rows import (
    ITERATION_SCHEMA,
    BaselineRow,
    Decision,
    EventRow,
    IterationRow,
    ProposerRecord,
)


class Watcher(TrialWatcher, Protocol):
    """Whoever shows the loop to a person."""

    def note(self, text: str) -> None: ...
    def baseline_measured(self, row: BaselineRow) -> None: ...
    def proposing(self, iteration: int) -> None: ...
    def assessed(self, assessment: Assessment) -> None: ...
    def iteration_ended(self, row: IterationRow) -> None: ...


@dataclass(slots=True)
class Loop:
    """One campaign at work."""

    campaign: Campaign
    proposer: Proposer
    rails: Rails
    rules: Rules
    runner: TrialRunner
    watcher: Watcher
    stop: StopRequest
    meter: Meter
    scribe: Scribe = field(init=False)
    _until: int | None = field(init=False, default=None)
    """Iterations to reach, where that was asked for."""
    _work: Work = field(init=False, default_factory=Work)
    """Over all sittings."""

    def __post_init__(self) -> None:
        self.scribe = Scribe(self.campaign, self.stop, self.watcher.note)

    def run(self, goal: Goal) -> str:
        """Go on until the campaign has reached its goal; what of it ended the work, in words.

        :raises Interrupted: when a person stopped it; everything finished is on disk.
        """
        self._until = goal.iterations
        self._work = Work(self.campaign.evidence.iterations)
        if goal.trials is not None or goal.hours is not None:
            self._work = Work.of(self.campaign.journal.rows())
        self.scribe.report_unfinished(self.runner.leftovers)
        self.measure_baseline()
        while (reached := goal.reached(self._work)) is None:
            self.stop.check()
            self.scribe.wait_while_paused()
            self.iterate()
        return reached

    def measure_baseline(self) -> None:
        """Train the menu's defaults on every baseline seed that has no row yet."""
        baseline = self.campaign.menu.baseline
        known = self.campaign.evidence.configs.get(baseline.config_hash)
        measured = set(known.scores) if known else set()
        for seed in self.campaign.baseline_seeds:
            if seed in measured:
                continue
            trial = self.runner.run(baseline, seed, "baseline")
            if isinstance(trial.result, TrialFailed):
                self.scribe.record(
                    EventRow(
                        at=timestamp(),
                        event="note",
                        why=f"baseline seed {seed}: {trial.result.status}: {trial.result.message}",
                        trial_ids=(trial.trial_id,),
                    )
                )
                raise CampaignError(
                    f"the baseline cannot be trained: seed {seed} ended as {trial.result.status} "
                    f"({trial.result.message}); mend the menu's defaults or the machine first"
                )
            row = BaselineRow(
                at=timestamp(), config=baseline, config_hash=baseline.config_hash, trial=trial
            )
            self.scribe.record(row)
            self._work.add(row)
            self.watcher.baseline_measured(row)

    def iterate(self) -> IterationRow:
        """One turn: proposal, verdict, trials, decision, one row."""
        began = time.monotonic()
        memory = self._memory()
        files = PendingFile(self.campaign.directory)
        pending = files.read(memory.iter)
        resumed = pending is not None and self._still_stands(pending, memory)
        if pending is None or not resumed:
            self.watcher.proposing(memory.iter)
            offer = self.proposer.propose(memory)
            if offer.record.fallback is not None:
                self.scribe.record(
                    EventRow(at=timestamp(), event="fallback", why=offer.record.fallback)
                )
                self.watcher.note(f"iteration {memory.iter}: {offer.record.fallback}")
            checked = self.rails.check(offer.raw, memory.reference, self.campaign.evidence.configs)
            if checked.config is None or checked.proposal is None:
                row = _refused(
                    memory,
                    offer.record,
                    checked,
                    wall_s=time.monotonic() - began,
                    energy_wh=self.meter.energy_wh(began),
                    rules=self.rules,
                )
                return self._end(row)
            pending = PendingIteration(
                iter=memory.iter,
                reference_hash=memory.reference.config_hash,
                proposer=offer.record,
                proposal=checked.proposal,
                verdict=checked.verdict,
                config=checked.config,
                wall_s=time.monotonic() - began,
                until=self._until,
            )
            files.write(pending)
        race_began = time.monotonic()
        outcome = self._race(memory.reference, pending.config)
        race_s = time.monotonic() - race_began + self._taken_up_s(outcome)
        self._account_for_leftovers()
        # Of an iteration that a stop cut in two only the later part was metered.
        energy_wh = None if resumed else self.meter.energy_wh(began)
        row = self._end(_raced(pending, outcome, race_s, energy_wh))
        files.clear()
        return row

    def _race(self, reference: Config, candidate: Config) -> Outcome:
        noise = Noise.of(self.campaign.evidence.tally)
        if noise is None:
            raise CampaignError(
                "the noise is unknown because no config was trained on two seeds; "
                "start the campaign with --baseline-seeds 2 or more"
            )
        return Race(
            runner=self.runner,
            evidence=self.campaign.evidence,
            noise=noise,
            rules=self.rules,
            reference=reference,
            candidate=candidate,
            first_seed=self.campaign.baseline_seeds[0],
            prune=self._prune_rule(reference, candidate),
            on_assessment=self.watcher.assessed,
        ).run()

    def _prune_rule(self, reference: Config, candidate: Config) -> PruneRule | None:
        if not self.campaign.settings.prune:
            return None
        trial_ids = self.campaign.evidence.configs[reference.config_hash].trial_ids
        curves: list[list[CurvePoint]] = [self.runner.curve(trial) for trial in trial_ids.values()]
        return prune_rule(curves, reference, candidate, self.campaign.settings.budget)

    def _memory(self) -> Memory:
        evidence = self.campaign.evidence
        return Memory(
            menu=self.campaign.menu,
            reference=self.campaign.reference,
            evidence=evidence,
            iter=evidence.iterations + 1,
            seed=self.campaign.settings.seed,
            max_changes=self.campaign.settings.max_changes,
            until=self._until,
            corpus=self.campaign.row.corpus,
            rules=self.rules,
        )

    def _end(self, row: IterationRow) -> IterationRow:
        self.scribe.announce_format(ITERATION_SCHEMA)
        self.scribe.record(row)
        self._work.add(row)
        self.watcher.iteration_ended(row)
        return row

    def _still_stands(self, pending: PendingIteration, memory: Memory) -> bool:
        """Whether what was in flight would pass the rails today, against the same reference."""
        if pending.reference_hash != memory.reference.config_hash:
            return False
        checked = self.rails.check(pending.proposal.raw, memory.reference, memory.evidence.configs)
        return checked.config == pending.config

    def _taken_up_s(self, outcome: Outcome) -> float:
        """What trials of this iteration took before the campaign last stopped."""
        taken_up = self.runner.taken_up
        return sum(trial.wall_s for trial in outcome.trials if trial.trial_id in taken_up)

    def _account_for_leftovers(self) -> None:
        """Finished trials that nothing has asked for again belong to no row and never will. Long
        runs are another matter: the next stress test asks for them."""
        self.scribe.interrupted(
            self.runner.leftovers.give_up(self.campaign.is_short_run),
            "finished before the campaign last stopped, but their iteration was lost",
        )


def _refused(
    memory: Memory,
    record: ProposerRecord,
    checked: Checked,
    *,
    wall_s: float,
    energy_wh: float | None,
    rules: Rules,
) -> IterationRow:
    return IterationRow(
        iter=memory.iter,
        at=timestamp(),
        proposer=record,
        proposal=checked.proposal,
        verdict=checked.verdict,
        config=None,
        config_hash=None,
        decision=Decision(
            action="none",
            reference_hash=memory.reference.config_hash,
            rules=rules,
            explanation="nothing was trained: the rails refused the proposal",
        ),
        wall_s=wall_s,
        energy_wh=energy_wh,
    )


def _raced(
    pending: PendingIteration, outcome: Outcome, race_s: float, energy_wh: float | None
) -> IterationRow:
    return IterationRow(
        iter=pending.iter,
        at=timestamp(),
        proposer=pending.proposer,
        proposal=pending.proposal,
        verdict=pending.verdict,
        config=pending.config,
        config_hash=pending.config.config_hash,
        trials=outcome.trials,
        decision=outcome.decision,
        wall_s=pending.wall_s + race_s,
        energy_wh=energy_wh,
    )
