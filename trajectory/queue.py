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

from autoresearch.campaign_files import (
    has_file,
    make_folder,
    names,
    read_file,
    remove,
    rename,
    replace_file,
    sync_folder,
)
from autoresearch.errors import CampaignError
from autoresearch.files import writing_to
from autoresearch.layout import QUEUE_DIR, TAKEN_DIR
from autoresearch.values import Frozen, PlainText
from trajectory.proposals import Proposal

QUEUED = "queued"
"""Kind of proposer of an iteration whose proposal was queued."""
MOST_WAITING = 1000
MOST_BYTES = 1 << 18
"""Largest file of a proposal that the loop reads."""
_TAKEN = f"{QUEUE_DIR}/{TAKEN_DIR}"
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


def user_name() -> str:
    """Return the name of the user who runs this process."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's user may have no name
        return f"user {os.getuid()}"


def add(directory: Path, proposal: Proposal, author: str | None = None) -> Queued:
    """Queue a proposal; it is on disk when this returns.

    :param author: who proposes; None: the user who runs this process.
    :raises CampaignError: if too many wait, or the author's name is empty or too long.
    :raises MachineryError: if the campaign's directory cannot be written.
    """
    author = author or user_name()
    number = f"{datetime.now(UTC):%Y%m%d-%H%M%S-%f}-{os.urandom(4).hex()}"
    try:
        queued = Queued(id=number, author=author, proposal=proposal)
    except ValidationError as error:
        raise CampaignError("the author's name has over 100 characters; shorten it") from error
    if len(_ids(directory, QUEUE_DIR)) >= MOST_WAITING:
        raise CampaignError(
            f"{MOST_WAITING} proposals wait in {directory / QUEUE_DIR} already; let the loop take "
            "some, or withdraw some"
        )
    with writing_to(directory):
        make_folder(directory, QUEUE_DIR)
        sync_folder(directory)
        replace_file(directory, _file(QUEUE_DIR, number), queued.model_dump_json(), durable=True)
    return queued


def queued_in(directory: Path) -> list[Queued]:
    """Return the proposals taken but not yet in the journal, and then those that wait."""
    read = [(_TAKEN, number, "taken") for number in _ids(directory, _TAKEN)]
    read += [(QUEUE_DIR, number, "waiting") for number in _ids(directory, QUEUE_DIR)]
    found = ((_read(directory, folder, number), state) for folder, number, state in read)
    return [one.model_copy(update={"state": state}) for one, state in found if one is not None]


def withdraw(directory: Path, number: str) -> None:
    """Remove a proposal that waits.

    :raises CampaignError: if none of that id waits.
    :raises MachineryError: if the directory cannot be written.
    """
    with writing_to(directory):
        if _ID.fullmatch(number) and has_file(directory, _file(QUEUE_DIR, number)):
            removed = remove(directory, _file(QUEUE_DIR, number))
            sync_folder(directory, QUEUE_DIR)
            if removed:  # else the loop was faster
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
    _again: list[str] = field(default_factory=list)
    """Ids of the proposals that a killed session had taken."""

    def recover(self, in_journal: Iterable[str], in_flight: Iterable[str]) -> None:
        """Find what an earlier session had taken; call this once before :meth:`take`."""
        self._known = {*in_journal}
        for number in (*_ids(self.directory, _TAKEN), *_ids(self.directory, QUEUE_DIR)):
            if number in self._known:
                self.clear(number)  # killed between its row and this
        self._known |= {*in_flight}
        taken = _ids(self.directory, _TAKEN)
        self._again = [number for number in taken if number not in self._known]

    def take(self) -> Queued | None:
        """Take the proposal that has waited longest; None if none waits.

        :raises MachineryError: if the directory cannot be written.
        """
        with writing_to(self.directory):
            while (number := self._next()) is not None:
                if number in self._known:
                    continue
                if (queued := _read(self.directory, _TAKEN, number)) is not None:
                    self._known.add(queued.id)
                    return queued
                kept = f"{_TAKEN}/{number}.unreadable"
                rename(self.directory, _file(_TAKEN, number), kept)
                where = self.directory / kept
                self.note(f"{where} is not a proposal and was skipped; propose it again")
        return None

    def clear(self, number: str) -> None:
        """Remove a proposal whose row is in the journal."""
        with writing_to(self.directory):
            for folder in (_TAKEN, QUEUE_DIR):
                remove(self.directory, _file(folder, number))

    def _next(self) -> str | None:
        """Take a file and return its id."""
        if self._again:
            return self._again.pop(0)
        for number in _ids(self.directory, QUEUE_DIR):
            make_folder(self.directory, _TAKEN)
            try:
                rename(self.directory, _file(QUEUE_DIR, number), _file(_TAKEN, number))
            except FileNotFoundError:
                continue  # withdrawn just now
            return number
        return None


def _ids(directory: Path, folder: str) -> list[str]:
    files = (name.partition(".") for name in names(directory, folder))
    return [number for number, _, kind in files if kind == "json" and _ID.fullmatch(number)]


def _file(folder: str, number: str) -> str:
    return f"{folder}/{number}.json"


def _read(directory: Path, folder: str, number: str) -> Queued | None:
    try:
        data = read_file(directory, _file(folder, number), MOST_BYTES)
        queued = Queued.model_validate(from_json(data))
    except (OSError, ValueError):
        return None
    return queued if queued.id == number else None
