"""The loop: propose, check, race, decide, write down.

:class:`Loop` reads as the sentence in the design. Everything it needs is handed to it, already
chosen; it decides nothing about how a proposer thinks, a trial runs or a row is stored.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from agent.menu.rails import Rails
from agent.proposers.base import Memory, Proposer
from agent.search.baseline import measure_baseline
from agent.search.campaign import Campaign
from agent.search.goal import Goal, Work
from agent.search.pending import PendingFile, PendingIteration
from agent.search.race import Outcome, Race, known_noise, not_raced
from agent.search.scribe import Scribe, timestamp
from agent.search.stopping import StopRequest
from agent.search.trials import TrialRunner
from agent.search.watcher import Watcher
from trainer.spec import AnyConfig
from trainer.telemetry import Meter
from trajectory.rows import ITERATION_SCHEMA, EventRow, IterationRow
from trajectory.rules import Rules


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
    _in_flight: PendingFile = field(init=False)
    _goal: Goal = field(init=False, default_factory=Goal)
    _work: Work = field(init=False, default_factory=Work)
    """Over all sittings."""

    def __post_init__(self) -> None:
        self.scribe = Scribe(self.campaign, self.stop, self.watcher.note)
        self._in_flight = PendingFile(self.campaign.directory)

    def run(self, goal: Goal) -> str:
        """Go on until the campaign has reached its goal; what of it ended the work, in words.

        :raises Interrupted: when a person stopped it; everything finished is on disk.
        """
        self._goal = goal
        self._work = Work(self.campaign.evidence.iterations)
        if not goal.is_iterations_alone:
            self._work = Work.of(self.campaign.journal.rows())
        self.scribe.report_unfinished(self.runner.leftovers)
        for row in measure_baseline(self.campaign, self.runner, self.scribe):
            self._work.add(row)
            self.watcher.baseline_measured(row)
        while (reached := goal.reached(self._work)) is None:
            self.stop.check()
            self.scribe.wait_while_paused()
            self.iterate()
        return reached

    def iterate(self) -> IterationRow:
        """One turn: proposal, verdict, trials, decision, one row."""
        memory = self._memory()
        turn = self._resumed(memory) or self._proposed(memory)
        began = time.monotonic()
        outcome = self._raced(turn, memory.reference)
        return self._ended(turn, outcome, race_s=time.monotonic() - began)

    def _resumed(self, memory: Memory) -> PendingIteration | None:
        """What was in flight when the campaign last stopped, where it would pass the rails today,
        against the same reference."""
        turn = self._in_flight.read(memory.iter)
        if turn is None or turn.proposal is None or turn.config is None:
            return None
        if turn.reference_hash != memory.reference.config_hash:
            return None
        checked = self.rails.check(turn.proposal.raw, memory.reference, memory.evidence.configs)
        return turn if checked.config == turn.config else None

    def _proposed(self, memory: Memory) -> PendingIteration:
        """A new proposal and the rails' verdict on it; on disk if it is to be raced."""
        began = time.monotonic()
        self.watcher.proposing(memory.iter)
        offer = self.proposer.propose(memory)
        if offer.record.fallback is not None:
            self.scribe.record(
                EventRow(at=timestamp(), event="fallback", why=offer.record.fallback)
            )
            self.watcher.note(f"iteration {memory.iter}: {offer.record.fallback}")
        checked = self.rails.check(offer.raw, memory.reference, memory.evidence.configs)
        turn = PendingIteration(
            iter=memory.iter,
            reference_hash=memory.reference.config_hash,
            proposer=offer.record,
            proposal=checked.proposal,
            verdict=checked.verdict,
            config=checked.config,
            wall_s=time.monotonic() - began,
            until=memory.until,
            began=began,
        )
        if turn.config is not None:
            self._in_flight.write(turn)
        return turn

    def _raced(self, turn: PendingIteration, reference: AnyConfig) -> Outcome:
        """Its trials and what was decided from them; no trial where the rails refused it."""
        if turn.config is None:
            return not_raced(turn.reference_hash, self.rules)
        settings, evidence = self.campaign.settings, self.campaign.evidence
        outcome = Race(
            runner=self.runner,
            evidence=evidence,
            noise=known_noise(evidence),
            rules=self.rules,
            reference=reference,
            candidate=turn.config,
            first_seed=self.campaign.baseline_seeds[0],
            prune=settings.budget if settings.prune and self.campaign.prunes else None,
            on_assessment=self.watcher.assessed,
            measure=self.campaign.menu.measure,
        ).run()
        # Finished trials that nothing has asked for again belong to no row and never will. Long
        # runs are another matter: the next stress test asks for them.
        self.scribe.interrupted(
            self.runner.leftovers.give_up(self.campaign.is_short_run),
            "finished before the campaign last stopped, but their iteration was lost",
        )
        return outcome

    def _ended(self, turn: PendingIteration, outcome: Outcome, *, race_s: float) -> IterationRow:
        """Its row, written down and told.

        :param race_s: in this sitting; trials taken up from an earlier one come on top.
        """
        taken_up = [t.wall_s for t in outcome.trials if t.trial_id in self.runner.taken_up]
        row = IterationRow(
            iter=turn.iter,
            at=timestamp(),
            proposer=turn.proposer,
            proposal=turn.proposal,
            verdict=turn.verdict,
            config=turn.config,
            config_hash=turn.config.config_hash if turn.config else None,
            trials=outcome.trials,
            decision=outcome.decision,
            wall_s=turn.wall_s + race_s + sum(taken_up),
            energy_wh=None if turn.began is None else self.meter.energy_wh(turn.began),
        )
        self.scribe.announce_format(ITERATION_SCHEMA)
        self.scribe.record(row)
        self._in_flight.clear()
        self._work.add(row)
        self.watcher.iteration_ended(row)
        return row

    def _memory(self) -> Memory:
        campaign = self.campaign
        return Memory(
            menu=campaign.menu,
            reference=campaign.reference,
            evidence=campaign.evidence,
            iter=campaign.evidence.iterations + 1,
            seed=campaign.settings.seed,
            max_changes=campaign.settings.max_changes,
            until=self._goal.iterations,
            corpus=campaign.row.corpus,
            rules=self.rules,
        )
