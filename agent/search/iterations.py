"""Iterations in flight, kept on disk.

A proposal that passed the rails is written down before its first trial, so that a resumed campaign
finishes this iteration instead of losing it.
"""

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from pydantic import Field, ValidationError

from agent.menu.rails import Rails
from agent.search.campaign import Campaign
from autoresearch.campaign_files import make_folder, read_file, remove, replace_file
from autoresearch.files import writing_to
from autoresearch.layout import IN_FLIGHT_DIR, in_flight_name, in_flight_names
from autoresearch.values import Frozen, NonNegative, PositiveInt
from trainer.schema import AnyConfig, PruneRule
from trajectory.proposals import Proposal, ProposerRecord, Verdict


class PendingIteration(Frozen):
    """Everything about an iteration that precedes its trials; all of it if the rails refused it."""

    iter: PositiveInt
    reference_hash: str
    proposer: ProposerRecord
    proposal: Proposal | None
    verdict: Verdict
    config: AnyConfig | None
    """Config to race; None if the rails refused the proposal."""
    wall_s: NonNegative
    """Seconds until the trials could start."""
    prune: PruneRule | None = None
    """Rule that stops its trials early, from the reference's curves when the iteration began. It is
    stored so that finished trials are recognized after the reference has gained curves."""
    until: PositiveInt | None = None
    """Number of iterations that the present loop will reach, for viewers."""
    began: float | None = Field(default=None, exclude=True)
    """By this process's clock. None if an earlier session began the iteration: its energy is then
    unknown, since only the later part was metered."""


@dataclass(frozen=True, slots=True)
class PendingFiles:
    """Directory ``in_flight/`` of a campaign, with one file per iteration."""

    directory: Path
    """The campaign's."""

    def write(self, pending: PendingIteration) -> None:
        """Write or replace an iteration's file, without fsync: after a power cut at worst a
        proposal is asked for again."""
        with writing_to(self.directory):
            make_folder(self.directory, IN_FLIGHT_DIR)
            replace_file(self.directory, _name(pending.iter), pending.model_dump_json())

    def read(self) -> dict[int, PendingIteration]:
        """Return the readable iterations by number, the lowest first."""
        by_number = {}
        for name in in_flight_names(self.directory):
            with suppress(OSError, ValidationError):
                file = read_file(self.directory, f"{IN_FLIGHT_DIR}/{name}")
                pending = PendingIteration.model_validate_json(file)
                if name == in_flight_name(pending.iter):
                    by_number[pending.iter] = pending
        return dict(sorted(by_number.items()))

    def left(self, campaign: Campaign, rails: Rails, done: set[int]) -> list[PendingIteration]:
        """Return the iterations to resume, the lowest number first. Their proposals would pass the
        rails today, against their original reference.

        :param done: numbers of iterations that have a row.
        """
        pending, configs = self.read(), campaign.evidence.configs
        for number in sorted(pending.keys() & done):
            self.clear(number)  # killed between its row and this
        left = []
        for one in pending.values():
            reference = configs.get(one.reference_hash)
            if one.iter in done or not (one.proposal and one.config and reference):
                continue
            if rails.check(one.proposal, reference.config, configs).config == one.config:
                left.append(one)
        return left

    def clear(self, iteration: int) -> None:
        """Remove the file of an iteration that is in the journal."""
        with writing_to(self.directory):
            remove(self.directory, _name(iteration))


def _name(iteration: int) -> str:
    return f"{IN_FLIGHT_DIR}/{in_flight_name(iteration)}"
