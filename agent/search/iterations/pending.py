"""Store iterations in flight on disk as soon as their proposals pass the rails.

Proposals cost time of a language model, and races cost training time. A proposal that passed is
written down before its first trial, so that a resumed campaign finishes this iteration instead of
losing it.
"""

from __future__ import annotations

from pathlib import Path

from pydantic import Field, ValidationError

from autoresearch.files import replace_file, writing_to
from autoresearch.layout import (
    IN_FLIGHT_DIR,
    in_flight_files,
    in_flight_name,
)
from autoresearch.values import Frozen, NonNegative, PositiveInt
from trainer.spec import AnyConfig, PruneRule
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


class PendingFiles:
    """Directory ``in_flight/`` of a campaign, with one file per iteration."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def write(self, pending: PendingIteration) -> None:
        """Write or replace an iteration's file, without fsync: after a power cut at worst a
        proposal is asked for again."""
        with writing_to(self._directory):
            (self._directory / IN_FLIGHT_DIR).mkdir(exist_ok=True)
            replace_file(self._path(pending.iter), pending.model_dump_json())

    def read(self) -> dict[int, PendingIteration]:
        """Return the readable iterations by number, the lowest first."""
        found = ((file, _legible(file)) for file in in_flight_files(self._directory))
        by_number = {
            pending.iter: pending
            for file, pending in found
            if pending is not None and file == self._path(pending.iter)
        }
        return dict(sorted(by_number.items()))

    def clear(self, iteration: int) -> None:
        """Remove the file of an iteration that is in the journal."""
        with writing_to(self._directory):
            self._path(iteration).unlink(missing_ok=True)

    def _path(self, iteration: int) -> Path:
        return self._directory / IN_FLIGHT_DIR / in_flight_name(iteration)


def _legible(file: Path) -> PendingIteration | None:
    try:
        return PendingIteration.model_validate_json(file.read_bytes())
    except (OSError, ValidationError):
        return None
