"""The iterations in flight, each on disk from the moment its proposal passed the rails.

A night's proposals cost LLM time and its races cost training time. Writing a passed proposal down
before its first trial lets a resumed campaign finish that very iteration instead of losing it.
"""

from __future__ import annotations

from pathlib import Path

from pydantic import Field, ValidationError

from autoresearch.files import replace_file, writing_to
from autoresearch.layout import (
    FORMER_IN_FLIGHT_FILE,
    IN_FLIGHT_DIR,
    in_flight_files,
    in_flight_name,
)
from autoresearch.values import Frozen, NonNegative, PositiveInt
from trainer.spec import AnyConfig, PruneRule
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
    prune: PruneRule | None = None
    """When its trials are stopped early: from the curves that the reference had when it began, so
    that finished trials are known again though it has more of them by now."""
    device_kind: str | None = None
    """What its race is run on, where there are several kinds."""
    until: PositiveInt | None = None
    """Iterations the loop at work is to reach: for whoever looks on and wonders how long."""
    began: float | None = Field(default=None, exclude=True)
    """By this process's clock. None where an earlier sitting began it: the energy of such an
    iteration is unknown, as only its later part was metered."""


class PendingFiles:
    """``in_flight/`` in the campaign's directory: a file for each."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def write(self, pending: PendingIteration) -> None:
        """Replace its file. Not durably: after a power cut the worst is a proposal asked for
        again."""
        with writing_to(self._directory):
            (self._directory / IN_FLIGHT_DIR).mkdir(exist_ok=True)
            replace_file(self._path(pending.iter), pending.model_dump_json())

    def take_up_former(self) -> None:
        """Put where the others are what a version left that knew of one in flight. Where there is
        one of its number, the later counts: that version may have gone on after this one.

        :raises MachineryError: where the directory cannot be written.
        """
        former = self._directory / FORMER_IN_FLIGHT_FILE
        pending = _legible(former)
        with writing_to(self._directory):
            if pending is not None:
                (self._directory / IN_FLIGHT_DIR).mkdir(exist_ok=True)
                ours = self._path(pending.iter)
                if not ours.exists() or former.stat().st_mtime_ns > ours.stat().st_mtime_ns:
                    former.replace(ours)
            former.unlink(missing_ok=True)

    def read(self) -> dict[int, PendingIteration]:
        """Those that are legible, by number, the lowest first."""
        found = ((file, _legible(file)) for file in in_flight_files(self._directory))
        by_number = {
            pending.iter: pending
            for file, pending in found
            if pending is not None and file == self._path(pending.iter)
        }
        return dict(sorted(by_number.items()))

    def clear(self, iteration: int) -> None:
        """It is in the journal."""
        with writing_to(self._directory):
            self._path(iteration).unlink(missing_ok=True)

    def _path(self, iteration: int) -> Path:
        return self._directory / IN_FLIGHT_DIR / in_flight_name(iteration)


def _legible(file: Path) -> PendingIteration | None:
    try:
        return PendingIteration.model_validate_json(file.read_bytes())
    except (OSError, ValidationError):
        return None
