"""Queue proposals into a campaign from other processes; its loop takes each exactly once.

``queue/ID.json`` waits: whoever proposes writes it whole and syncs it. The loop takes it by a
rename to ``queue/taken/ID.json``, which it removes once the iteration's row is in the journal. So a
withdrawal and the loop cannot both have it. After a kill, a taken proposal without a row and
without an iteration in flight is taken again, and one that the journal names is removed: the
journal decides.
"""

import getpass
import os
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError
from pydantic_core import from_json

from autoresearch.errors import CampaignError
from autoresearch.files import read_given, replace_file, sync_directory, writing_to
from autoresearch.layout import QUEUE_DIR, TAKEN_DIR
from autoresearch.values import Frozen, PlainText
from trajectory.proposals import Proposal

QUEUED = "queued"
"""Kind of proposer of an iteration whose proposal was queued."""
MOST_WAITING = 1000
MOST_BYTES = 1 << 18
"""Largest file of a proposal that the loop reads."""
_ID = re.compile(r"[0-9]{8}-[0-9]{6}-[0-9]{6}-[0-9a-f]{8}")


class Queued(Frozen):
    """One queued proposal."""

    id: str
    """Its file's name; ids sort by the time of their proposal."""
    author: Annotated[PlainText, Field(min_length=1, max_length=100)]
    proposal: Proposal
    state: Literal["waiting", "taken"] = Field("waiting", exclude=True)

    @property
    def fields(self) -> dict[str, Any]:
        """Everything to show, for JSON."""
        changes, reason = self.proposal.changes, self.proposal.reason
        return {
            "id": self.id,
            "author": self.author,
            "state": self.state,
            "changes": changes,
            "reason": reason,
        }


def add(directory: Path, proposal: Proposal, author: str | None = None) -> Queued:
    """Queue a proposal; it is on disk when this returns.

    :param author: who proposes; None: the user who runs this process.
    :raises CampaignError: if too many wait, or the author's name is empty or too long.
    :raises MachineryError: if the campaign's directory cannot be written.
    """
    number = f"{datetime.now(UTC):%Y%m%d-%H%M%S-%f}-{os.urandom(4).hex()}"
    if not author:
        try:
            author = getpass.getuser()
        except (KeyError, OSError):  # a container's user may have no name
            author = f"user {os.getuid()}"
    try:
        queued = Queued(id=number, author=author, proposal=proposal)
    except ValidationError as error:
        raise CampaignError("the author's name has over 100 characters; shorten it") from error
    folder = directory / QUEUE_DIR
    if len(_files(folder)) >= MOST_WAITING:
        raise CampaignError(
            f"{MOST_WAITING} proposals wait in {folder} already; let the loop take some, or "
            "withdraw some"
        )
    with writing_to(directory):
        folder.mkdir(exist_ok=True)
        sync_directory(directory)
        replace_file(folder / f"{number}.json", queued.model_dump_json(), durable=True)
    return queued


def queued_in(directory: Path) -> list[Queued]:
    """Return the proposals taken but not yet in the journal, and then those that wait."""
    folder = directory / QUEUE_DIR
    read = [(file, "taken") for file in _files(folder / TAKEN_DIR)]
    read += [(file, "waiting") for file in _files(folder)]
    found = ((_read(file), state) for file, state in read)
    return [one.model_copy(update={"state": state}) for one, state in found if one is not None]


def withdraw(directory: Path, number: str) -> None:
    """Remove a proposal that waits.

    :raises CampaignError: if none of that id waits.
    :raises MachineryError: if the directory cannot be written.
    """
    path = directory / QUEUE_DIR / f"{number}.json"
    with writing_to(directory):
        if _ID.fullmatch(number) and path.is_file():
            try:
                path.unlink()
            except FileNotFoundError:
                pass  # the loop was faster
            else:
                sync_directory(path.parent)
                return
    raise CampaignError(
        f"no proposal {number[:60]!r} waits in {directory}: it may have been taken; see those that "
        "wait with: autoresearch propose --list"
    )


@dataclass(slots=True)
class ProposalQueue:
    """The queue as the loop uses it, while it holds the campaign's lock."""

    directory: Path
    note: Callable[[str], None]
    """Records and shows what happened to a file that holds no proposal."""
    _known: set[str] = field(default_factory=set)
    """Ids that have a row or an iteration in flight."""
    _again: list[Path] = field(default_factory=list)
    """Proposals that a killed session had taken."""

    def recover(self, in_journal: Iterable[str], in_flight: Iterable[str]) -> None:
        """Find what an earlier session had taken; call this once before :meth:`take`."""
        self._known = {*in_journal}
        for file in (*_files(self._taken), *_files(self._taken.parent)):
            if file.stem in self._known:
                self.clear(file.stem)  # killed between its row and this
        self._known |= {*in_flight}
        self._again = [file for file in _files(self._taken) if file.stem not in self._known]

    def take(self) -> Queued | None:
        """Take the proposal that has waited longest; None if none waits.

        :raises MachineryError: if the directory cannot be written.
        """
        with writing_to(self.directory):
            while (file := self._next_file()) is not None:
                if file.stem not in self._known and (queued := _read(file)) is not None:
                    self._known.add(queued.id)
                    return queued
                if file.stem not in self._known:
                    kept = file.rename(file.with_suffix(".unreadable"))
                    self.note(f"{kept} is not a proposal and was skipped; propose it again")
        return None

    def clear(self, number: str) -> None:
        """Remove a proposal whose row is in the journal."""
        with writing_to(self.directory):
            for folder in (self._taken, self._taken.parent):
                (folder / f"{number}.json").unlink(missing_ok=True)

    def _next_file(self) -> Path | None:
        if self._again:
            return self._again.pop(0)
        for file in _files(self._taken.parent):
            self._taken.mkdir(exist_ok=True)
            try:
                return file.rename(self._taken / file.name)
            except FileNotFoundError:
                continue  # withdrawn just now
        return None

    @property
    def _taken(self) -> Path:
        return self.directory / QUEUE_DIR / TAKEN_DIR


def _files(folder: Path) -> list[Path]:
    return sorted(file for file in folder.glob("*.json") if _ID.fullmatch(file.stem))


def _read(file: Path) -> Queued | None:
    try:
        queued = Queued.model_validate(from_json(read_given(file, MOST_BYTES)))
    except (OSError, ValueError):
        return None
    return queued if queued.id == file.stem else None
