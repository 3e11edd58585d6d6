"""One lane on another machine: a Ray actor there, and what is exchanged with it."""

from __future__ import annotations

import contextlib
import os
import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from autoresearch.campaign_files import open_file
from autoresearch.errors import AutoresearchError, CorpusError
from autoresearch.layout import CURVE_FILE, LOG_FILE
from trainer.corpus.store import META
from trainer.executors.base import LaneLost
from trainer.executors.lanes import Lane
from trainer.executors.ray.connection import Remote, machines
from trainer.executors.ray.facts import Seat
from trainer.executors.ray.messages import LaneOrder, Watched
from trainer.isolation.outcome import aborted
from trainer.isolation.trial_files import TrialFiles
from trainer.schema import CurvePoint, Measured, Place, TrialFailed, TrialSpec

OPENING_S = 90.0
"""Time limit from requesting an actor to its answer; Ray starts a Python there and imports this."""
LEASE_S = 20.0
"""Time after which a node ends a trial that its driver has not asked about, so that a driver that
is killed or disconnected leaves none running."""
_SILENCE_S = 20.0
"""Time without an answer after which a lane is lost."""
_HASHING_S = 600.0
_WATCH_S = 2.0
"""How long one request waits for a trial's end, and so the longest delay of a curve's points. 64
lanes make 32 requests a second."""
_BACK_S = 3600.0
"""How long a lane waits for its node to return; its trials go to other lanes meanwhile."""
_KNOCK_S = 5.0
"""Interval between two checks whether the node is back."""


class RayLane(Lane):
    """One trial at a time on another machine.

    Only answers to the lane's own requests are written to the trial's directory here. So late
    answers of a lost lane are ignored.
    """

    place: Place

    def __init__(self, seat: Seat, order: LaneOrder, kind: str) -> None:
        """Open the lane.

        :param kind: the kind of its device.
        :raises LaneLost: if its node is gone or does not answer.
        :raises AutoresearchError: if no lane can be opened there.
        """
        self.place = Place(lane=seat.name, node=seat.node, device=kind)
        self.home = Path()
        """The lane's directory on its node; tests attack what is in it."""
        self._seat = seat
        self._order = replace(order, share=seat.share, shares=seat.shares)
        self._known: set[str] = set()
        """Hashes of the corpora and texts that the node has."""
        self._remote: Remote | None = None
        self._open()

    def _open(self) -> Remote:
        order = replace(self._order, token=secrets.token_hex(8))
        remote = self._connect()
        try:
            self._described, self.home = remote.ask("open", order, within_s=OPENING_S)
        except AutoresearchError:
            remote.end()
            raise
        self._known.clear()
        self._remote = remote
        return remote

    def _connect(self) -> Remote:
        """Start the lane's process on its node.

        :raises LaneLost: if the node is gone.
        """
        seat = self._seat
        # The same name at the same address, perhaps after another start of Ray there.
        there = seat.machine.name, seat.machine.address
        alive = [one for one in machines() if (one.name, one.address) == there]
        if not alive:
            raise LaneLost(
                f"node {seat.node} is gone; start Ray there again, or continue without it"
            )
        return Remote(alive[0].id, name=seat.name, cpus=seat.cpus, gpus=seat.gpus)

    def describe(self) -> str:
        """See :meth:`Lane.describe`."""
        return f"{self._described}, by Ray"

    def reopen(self, closing: threading.Event) -> bool:
        """See :meth:`Lane.reopen`. The node may be away for minutes, without power or network."""
        give_up_at = time.monotonic() + _BACK_S
        while not closing.is_set() and time.monotonic() < give_up_at:
            with contextlib.suppress(AutoresearchError):
                self._open()
                return True
            closing.wait(_KNOCK_S)
        return False

    def close(self) -> None:
        """See :meth:`Lane.close`."""
        remote, self._remote = self._remote, None
        if remote is not None:
            with contextlib.suppress(LaneLost):
                remote.ask("close", within_s=_SILENCE_S)
            remote.end()

    def run(
        self,
        spec: TrialSpec,
        trial_dir: Path,
        on_point: Callable[[CurvePoint], None],
        cancelled: Callable[[], bool],
    ) -> Measured | TrialFailed:
        """See :meth:`Lane.run`."""
        assert self._remote is not None, "the lane is open"
        if cancelled():
            raise aborted(spec.trial_id)
        files = TrialFiles(spec, trial_dir)
        try:
            self._start(self._remote, spec, trial_dir)
            return self._watched(self._remote, files, on_point, cancelled)
        except LaneLost:
            self._remote.end()
            self._remote = None
            raise
        finally:
            files.close()

    def _start(self, remote: Remote, spec: TrialSpec, trial_dir: Path) -> None:
        """Start the trial on its node, with the texts that the node does not have.

        :raises AutoresearchError: if the node refuses it.
        """
        texts: dict[str, bytes] = {}
        for text in spec.texts:
            if text.sha256 in self._known:
                continue
            path = Path(text.path)
            try:
                texts[text.sha256] = path.read_bytes()
            except OSError as error:
                raise CorpusError(
                    f"cannot read {path}: {error.strerror}; prepare it again"
                ) from error
        has_corpus = (Path(spec.corpus_dir) / META).is_file()
        # A node may have to hash a corpus of tens of gigabytes.
        patience_s = _SILENCE_S if spec.corpus_sha256 in self._known else _HASHING_S
        remote.ask("start", trial_dir.name, spec, texts, has_corpus, within_s=patience_s)
        self._known.update({spec.corpus_sha256, *texts})

    def _watched(
        self,
        remote: Remote,
        files: TrialFiles,
        on_point: Callable[[CurvePoint], None],
        cancelled: Callable[[], bool],
    ) -> Measured | TrialFailed:
        """Wait for the trial's end; keep its curve, log and result here."""

        def pass_on() -> None:
            if cancelled():
                remote.ask("cancel", within_s=_SILENCE_S)

        seen_bytes = 0
        end = None
        while end is None:
            watched: Watched = remote.ask(
                "watch", seen_bytes, _WATCH_S, within_s=_SILENCE_S, meanwhile=pass_on
            )
            end = watched.end
            if watched.curve:
                seen_bytes += len(watched.curve)
                _write(files.path, CURVE_FILE, watched.curve, os.O_APPEND)
                while points := files.curve.read():
                    for point in points:
                        on_point(point)
        _write(files.path, LOG_FILE, watched.log, os.O_TRUNC)
        if isinstance(end, AutoresearchError):
            raise end
        files.write_result(end)
        return end


def _write(trial_dir: Path, name: str, data: bytes, how: int) -> None:
    descriptor = open_file(trial_dir, name, os.O_WRONLY | os.O_CREAT | how)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
