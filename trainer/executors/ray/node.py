"""A lane on its node: the class that a Ray actor runs.

It hosts this product's own executor there, so that a trial has the same rights as on the campaign's
machine. It receives JSON and answers with JSON and bytes. It does not use Ray itself, and writes no
file of a campaign. If its driver has not asked about a trial for the length of the lease, it ends
the trial and its own process.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import threading
import time
from pathlib import Path
from typing import IO

from autoresearch.errors import AutoresearchError
from autoresearch.files import open_regular
from autoresearch.layout import CURVE_FILE, LOG_FILE, RESULT_FILE
from trainer.executors.base import Job, LaneLost, TrialAborted
from trainer.executors.local import LocalExecutor
from trainer.executors.placement import shares, usable_cores
from trainer.executors.ray.facts import find_facts, node_directory
from trainer.executors.ray.parcels import Received, script_of
from trainer.executors.ray.values import (
    PIECE_BYTES,
    LaneOrder,
    Opened,
    Progress,
    TrialOrder,
    with_bytes,
)
from trainer.isolation.outcome import TrialError
from trainer.machine.environment import as_it_is

_LEASE_POLL_S = 0.5
_OPEN_HOME = ".open"
"""A file in a lane's home directory that is locked as long as the lane lives."""


class NodeLane:
    """One lane, for one driver."""

    def __init__(self, order: str) -> None:
        self._order = LaneOrder.model_validate_json(order)
        self._executor: LocalExecutor | None = None
        self._received: Received | None = None
        self._home = Path()
        self._lock: IO[str] | None = None
        self._job: Job | None = None
        self._trial_dir = Path()
        self._heard_at = time.monotonic()
        self._closed = threading.Event()

    # --- what the driver asks -------------------------------------------------------------------

    def facts(self) -> bytes:
        """Return the facts about this machine, as a NodeFacts."""
        directory = node_directory(self._order.data_dir)
        return find_facts(directory, self._order.needs).model_dump_json().encode()

    def open(self) -> bytes:
        """Create the home directory and start the executor; return an Opened."""
        try:
            directory = node_directory(self._order.data_dir)
            self._home = directory / "lanes" / self._order.token
            self._lock = _make_home(self._home)
            self._received = Received(Path.cwd(), self._home, directory / "compiled")
            if self._order.script_sha256 is not None:
                self._received.unpack_script(self._order.script_sha256)
            environ = as_it_is()
            environ.pop("OMP_NUM_THREADS", None)  # Ray sets it from the actor's CPU request
            self._executor = LocalExecutor(
                allow_unsandboxed=self._order.allow_unsandboxed,
                fork_server=self._order.fork_server,
                environ=environ,
                entry=self._order.entry,
                cores=self._cores(),
            )
        except AutoresearchError as error:
            return Opened(refusal=TrialError.of(error)).model_dump_json().encode()
        except OSError as error:
            refusal = TrialError(kind="MachineryError", message=f"no lane can be opened: {error}")
            return Opened(refusal=refusal).model_dump_json().encode()
        threading.Thread(target=self._watch_lease, name="lease", daemon=True).start()
        opened = Opened(home=str(self._home), described=self._executor.describe())
        return opened.model_dump_json().encode()

    def start(self, name: str, order: str) -> bytes:
        """Start the trial of a TrialOrder in a directory of that name; return a Progress."""
        assert self._executor is not None
        assert self._received is not None
        try:
            spec = self._received.localised(TrialOrder.model_validate_json(order))
        except AutoresearchError as error:
            return _failed(error).model_dump_json().encode()
        self._heard_at = time.monotonic()
        self._trial_dir = self._home / Path(name).name
        self._job = self._executor.submit(spec, self._trial_dir)
        return Progress().model_dump_json().encode()

    def watch(self, seen_bytes: int, patience_s: float) -> bytes:
        """Wait for the trial's end, for at most ``patience_s``.

        Return a Progress, and the curve after its first ``seen_bytes``. If the trial has ended and
        its log and result fit into the answer, they follow the curve, and the node deletes them.
        """
        assert self._job is not None
        self._heard_at = time.monotonic()
        ended = self._job.wait(patience_s)
        gained = self._piece(CURVE_FILE, seen_bytes)
        self._heard_at = time.monotonic()
        if not ended:
            return with_bytes(Progress(), gained)
        progress = self._progress(self._job)
        parts = gained, self._piece(LOG_FILE, 0), self._piece(RESULT_FILE, 0)
        if sum(map(len, parts)) >= PIECE_BYTES:
            return with_bytes(progress, gained)
        self._forget()
        lengths = tuple(map(len, parts))
        return with_bytes(progress.model_copy(update={"lengths": lengths}), b"".join(parts))

    def cancel(self) -> bytes:
        """Cancel the trial; return a Progress."""
        if self._job is not None:
            self._job.cancel()
        return Progress().model_dump_json().encode()

    def more(self, file: str, seen_bytes: int) -> bytes:
        """Return a piece of an ended trial's curve or log, from ``seen_bytes`` on."""
        self._heard_at = time.monotonic()
        return self._piece({"curve": CURVE_FILE, "log": LOG_FILE}[file], seen_bytes)

    def hand_over(self) -> bytes:
        """Return the trial's result, at most one piece, and delete its directory."""
        result = self._piece(RESULT_FILE, 0)
        self._forget()
        return result

    def text(self, sha256: str, data: bytes) -> bytes:
        """Keep a further text that trials score; return an Opened, with a refusal if it failed."""
        assert self._received is not None
        try:
            self._received.keep_text(sha256, data)
        except AutoresearchError as error:
            return Opened(refusal=TrialError.of(error)).model_dump_json().encode()
        return Opened().model_dump_json().encode()

    def close(self) -> bytes:
        """End the running trial, and leave no process and no file of the lane."""
        self._closed.set()
        if self._executor is not None:
            self._executor.close()
        if self._lock is not None:
            _remove(self._home)
            self._lock.close()
        return b""

    # --- what is done about it ------------------------------------------------------------------

    def _progress(self, job: Job) -> Progress:
        try:
            job.result(0)
        except TrialAborted:
            return Progress(ended=True, aborted=True)
        except AutoresearchError as error:
            return _failed(error)
        return Progress(ended=True)

    def _forget(self) -> None:
        self._job = None
        shutil.rmtree(self._trial_dir, ignore_errors=True)

    def _piece(self, name: str, offset: int) -> bytes:
        """Return a piece of a trial's file from ``offset``; empty if it is not a regular file."""
        try:
            descriptor = open_regular(self._trial_dir / name, through_links=False)
        except OSError:
            return b""
        try:
            return os.pread(descriptor, PIECE_BYTES, offset)
        finally:
            os.close(descriptor)

    def _cores(self) -> tuple[int, ...]:
        """Return the lane's share of the node's cores; empty if it has all."""
        if self._order.shares is None:
            return ()
        return shares(usable_cores(), self._order.shares)[self._order.share]

    def _watch_lease(self) -> None:
        """End the trial and this process once the lease expires. Runs in its own thread."""
        while not self._closed.wait(_LEASE_POLL_S):
            if self._job is None:
                continue
            if time.monotonic() - self._heard_at > self._order.lease_s:
                self.close()
                os._exit(1)


def _failed(error: AutoresearchError) -> Progress:
    is_lost = isinstance(error, LaneLost)
    return Progress(ended=True, lost=is_lost, error=TrialError.of(error))


def _make_home(home: Path) -> IO[str]:
    """Create a lane's directory, and return its lock, held while the lane lives.

    Remove the directories of dead lanes.
    """
    home.mkdir(parents=True)
    lock = (home / _OPEN_HOME).open("w")
    fcntl.flock(lock, fcntl.LOCK_EX)
    for other in home.parent.iterdir():
        if other != home:
            _remove_if_dead(other)
    return lock


def _remove_if_dead(home: Path) -> None:
    # If that fails, it lives, belongs to another user, or is being created.
    with contextlib.suppress(OSError), (home / _OPEN_HOME).open("r+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        _remove(home)


def _remove(home: Path) -> None:
    shutil.rmtree(script_of(home), ignore_errors=True)
    shutil.rmtree(home, ignore_errors=True)
