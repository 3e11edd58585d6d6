"""The iteration in flight, on disk from the moment its proposal passed the rails.

A night's proposals cost LLM time and its races cost training time. Writing the passed proposal down
before the first trial lets a resumed campaign finish that very iteration instead of losing it.
"""

from __future__ import annotations

from pathlib import Path

from pydantic import Field, ValidationError

from autoresearch.files import replace_file, writing_to
from autoresearch.layout import IN_FLIGHT_FILE
from autoresearch.values import Frozen, NonNegative, PositiveInt
from trainer.spec import AnyConfig
from trajectory.proposals import Proposal, ProposerRecord, Verdict


class PendingIteration(Frozen):
    """All of an iteration that precedes its trials; all of it where the rails allow none."""

    iter: PositiveInt
    reference_hash: str
    proposer: ProposerRecord
    proposal: Proposal | None
    verdict: Verdict
    config: AnyConfig | None
    """What is to be raced; None where the rails refused the proposal."""
    wall_s: NonNegative
    """Spent until the trials could start."""
    until: PositiveInt | None = None
    """Iterations the loop at work is to reach: for whoever looks on and wonders how long."""
    began: float | None = Field(default=None, exclude=True)
    """By this process's clock. None where an earlier sitting began it: the energy of such an
    iteration is unknown, as only its later part was metered."""


class PendingFile:
    """``in_flight.json`` in the campaign's directory."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / IN_FLIGHT_FILE

    def write(self, pending: PendingIteration) -> None:
        """Replace the file. Not durably: after a power cut the worst is a proposal asked for
        again."""
        with writing_to(self._path.parent):
            replace_file(self._path, pending.model_dump_json())

    def read(self, iteration: int) -> PendingIteration | None:
        """What was in flight, if it is this iteration and legible."""
        try:
            pending = PendingIteration.model_validate_json(self._path.read_bytes())
        except (OSError, ValidationError):
            return None
        return pending if pending.iter == iteration else None

    def clear(self) -> None:
        """The iteration is in the journal."""
        with writing_to(self._path.parent):
            self._path.unlink(missing_ok=True)
