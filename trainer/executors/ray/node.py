"""A lane on its node: the class that a Ray actor runs.

It hosts this product's own executor there, so that a trial has the same rights as on the campaign's
machine. It does not use Ray itself, and writes no file of a campaign. If its driver has not asked
about a trial for the length of the lease, it ends the trial and its own process.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import IO

from autoresearch.errors import AutoresearchError
from autoresearch.files import open_regular
from autoresearch.layout import CURVE_FILE, LOG_FILE
from trainer.executors.base import Job
from trainer.executors.lanes import Lanes, shares, usable_cores
from trainer.executors.local import LocalLane
from trainer.executors.ray.facts import find_facts, node_directory
from trainer.executors.ray.messages import PIECE_BYTES, LaneOrder, Needs, NodeFacts, Watched
from trainer.executors.ray.parcels import Received, script_of
from trainer.isolation.trial_files import MAX_CURVE_BYTES
from trainer.machine.environment import as_it_is
from trainer.schema import TrialSpec

_LEASE_POLL_S = 0.5
_OPEN_HOME = ".open"
"""A file in a lane's home directory that is locked as long as the lane lives."""


class NodeLane:
    """One lane, for one driver."""

    def __init__(self) -> None:
        self._executor: Lanes | None = None
        self._received: Received | None = None
        self._home = Path()
        self._lock: IO[str] | None = None
        self._job: Job | None = None
        self._trial_dir = Path()
        self._heard_at = time.monotonic()
        self._closed = threading.Event()

    # --- what the driver asks -------------------------------------------------------------------

    def facts(self, needs: Needs | None) -> NodeFacts:
        """Return the facts about this machine."""
        return find_facts(node_directory(), needs)

    def open(self, order: LaneOrder) -> tuple[str, Path]:
        """Start the executor; return how it runs trials, and the lane's directory.

        :raises AutoresearchError: if no lane can be opened here.
        """
        self._home = node_directory() / "lanes" / order.token
        self._lock = _make_home(self._home)
        self._received = Received(Path.cwd(), self._home, order)
        environ = as_it_is()
        environ.pop("OMP_NUM_THREADS", None)  # Ray sets it from the actor's CPU request
        cores = () if order.shares is None else shares(usable_cores(), order.shares)[order.share]
        lane = LocalLane(
            allow_unsandboxed=order.allow_unsandboxed,
            environ=environ,
            entry=order.entry,
            cores=cores,
        )
        self._executor = Lanes([lane], most_losses=0)  # the driver's lane is lost with it
        lease = threading.Thread(
            target=self._watch_lease, args=(order.lease_s,), name="lease", daemon=True
        )
        lease.start()
        return self._executor.describe(), self._home

    def start(self, name: str, spec: TrialSpec, texts: Mapping[str, bytes], corpus: bool) -> None:
        """Start a trial in a directory of that name; see :meth:`Received.localised`.

        :raises AutoresearchError: if its files are not here.
        """
        assert self._executor is not None
        assert self._received is not None
        spec = self._received.localised(spec, texts, has_corpus=corpus)
        self._heard_at = time.monotonic()
        self._trial_dir = self._home / name
        self._job = self._executor.submit(spec, self._trial_dir)

    def watch(self, seen_bytes: int, patience_s: float) -> Watched:
        """Wait for the trial's end, for at most ``patience_s``.

        Return what its curve gained after its first ``seen_bytes``, and the end if nothing of the
        curve is left. The node then deletes the trial.
        """
        assert self._job is not None
        self._heard_at = time.monotonic()
        ended = self._job.wait(patience_s)
        self._heard_at = time.monotonic()
        most_bytes = min(PIECE_BYTES, MAX_CURVE_BYTES - seen_bytes)
        curve = _read(self._trial_dir / CURVE_FILE, seen_bytes, most_bytes)
        if not ended or len(curve) == PIECE_BYTES:
            return Watched(curve)
        log = _read(self._trial_dir / LOG_FILE, 0, PIECE_BYTES)
        job, self._job = self._job, None
        shutil.rmtree(self._trial_dir, ignore_errors=True)
        try:
            return Watched(curve, job.result(0).result, log)
        except AutoresearchError as error:
            return Watched(curve, error, log)

    def cancel(self) -> None:
        """Cancel the trial."""
        if self._job is not None:
            self._job.cancel()

    def close(self) -> None:
        """End the running trial, and leave no process and no file of the lane."""
        self._closed.set()
        if self._executor is not None:
            self._executor.close()
        if self._lock is not None:
            _remove(self._home)
            self._lock.close()

    def _watch_lease(self, lease_s: float) -> None:
        """End the trial and this process once the lease expires. Runs in its own thread."""
        while not self._closed.wait(_LEASE_POLL_S):
            if self._job is not None and time.monotonic() - self._heard_at > lease_s:
                self.close()
                os._exit(1)


def _read(path: Path, offset: int, most_bytes: int) -> bytes:
    """Return a piece of a trial's file; empty if it is not a regular file."""
    try:
        descriptor = open_regular(path, through_links=False)
    except OSError:
        return b""
    try:
        return os.pread(descriptor, most_bytes, offset)
    finally:
        os.close(descriptor)


def _make_home(home: Path) -> IO[str]:
    """Create a lane's directory, and return its lock, held while the lane lives.

    Remove the directories of dead lanes.
    """
    home.mkdir(parents=True)
    lock = (home / _OPEN_HOME).open("w")
    fcntl.flock(lock, fcntl.LOCK_EX)
    for other in home.parent.iterdir():
        if other != home:
            # If that fails, it lives, belongs to another user, or is being created.
            with contextlib.suppress(OSError), (other / _OPEN_HOME).open("r+") as others_lock:
                fcntl.flock(others_lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                _remove(other)
    return lock


def _remove(home: Path) -> None:
    shutil.rmtree(script_of(home), ignore_errors=True)
    shutil.rmtree(home, ignore_errors=True)
