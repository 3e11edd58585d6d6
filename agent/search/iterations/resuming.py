"""Find the iterations that were in flight when the campaign last stopped and can be resumed."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass
from heapq import heapify, heappop

from agent.menu.rails import Rails
from agent.search.campaign import Campaign
from agent.search.iterations.pending import PendingFiles, PendingIteration
from agent.search.race import race_prune_rule
from agent.search.trials import TrialRunner
from trainer.spec import AnyConfig, PruneRule


@dataclass(frozen=True, slots=True)
class Resuming:
    """Reads the in-flight files once."""

    campaign: Campaign
    runner: TrialRunner
    rails: Rails
    files: PendingFiles

    def left(self, done: set[int]) -> list[PendingIteration]:
        """Return the iterations to resume, the lowest number first.

        :param done: numbers of iterations that have a row.
        """
        pending = self.files.read()
        for number in sorted(pending.keys() & done):
            self.files.clear(number)  # killed between its row and this
        return [one for one in pending.values() if one.iter not in done and self._holds(one)]

    def prune_rule(self, reference: AnyConfig, candidate: AnyConfig | None) -> PruneRule | None:
        """Return the rule that stops trials of this race early, if any."""
        settings = self.campaign.settings
        if candidate is None or not (settings.prune and self.campaign.prunes):
            return None
        evidence = self.campaign.evidence
        curve, budget = self.runner.curve, settings.budget
        return race_prune_rule(curve, evidence, reference, candidate, budget)

    def _holds(self, pending: PendingIteration) -> bool:
        """Return whether the proposal would pass the rails today, against its original
        reference."""
        configs = self.campaign.evidence.configs
        reference = configs.get(pending.reference_hash)
        if pending.proposal is None or pending.config is None or reference is None:
            return False
        checked = self.rails.check(pending.proposal.raw, reference.config, configs)
        return checked.config == pending.config


class Numbers:
    """Numbers with neither a row nor an in-flight file. An iteration that was in flight and cannot
    be resumed leaves a gap, which is filled first."""

    def __init__(self, taken: Set[int]) -> None:
        self._last = max(taken, default=0)
        self._gaps = [number for number in range(1, self._last) if number not in taken]
        heapify(self._gaps)

    def next(self) -> int:
        """Take the lowest free number."""
        if self._gaps:
            return heappop(self._gaps)
        self._last += 1
        return self._last
