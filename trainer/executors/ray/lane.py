"""Use one lane on another machine as an executor of one place here."""

from __future__ import annotations

import contextlib
import hashlib
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent import futures
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import IO, Protocol

from pydantic import ValidationError

from autoresearch.errors import AutoresearchError, CorpusError, MachineryError
from autoresearch.layout import CURVE_FILE, LOG_FILE
from autoresearch.values import explain
from trainer.corpus.store import META
from trainer.executors.base import Executor, Finished, LaneLost
from trainer.executors.local import LocalJob
from trainer.executors.ray.needs import portable_program, with_uniform_paths
from trainer.executors.ray.values import PIECE_BYTES, Opened, Progress, TrialOrder, apart, said
from trainer.isolation.contradiction import contradiction
from trainer.isolation.outcome import aborted
from trainer.isolation.trial_files import MAX_CURVE_BYTES, TrialFiles
from trainer.spec import Measured, Place, TrialFailed, TrialSpec, parse_result

LEASE_S = 20.0
"""Time after which a node ends a trial that its driver has not asked about, so that a driver that
is killed or disconnected leaves none running."""
SILENCE_S = 20.0
"""Time without an answer after which a lane is lost."""
_HASHING_S = 600.0
_BACK_S = 3600.0
"""How long a lane waits for its node to return; its trials go to other lanes meanwhile."""
_KNOCK_S = 5.0
"""Interval between two checks whether the node is back."""
_WATCH_S = 0.5
"""How long one request waits for a trial's end, and so the longest delay of a curve's points. 64
lanes make 130 requests a second."""


class Asked(Protocol):
    """A lane on its node: :class:`trainer.executors.ray.connection.Remote` is one."""

    def ask(self, method: str, *arguments: object, within_s: float) -> bytes: ...
    def end(self) -> None: ...


@dataclass(frozen=True, slots=True)
class OpenLane:
    """An actor that is ready for trials."""

    remote: Asked
    described: str
    """A description of how trials are confined and started there."""
    home: Path
    """The lane's directory on the node; each trial runs in its own directory below it."""
    place: Place
    known: set[str] = field(default_factory=set)
    """Hashes of the corpora and texts that the node has."""


class RayLane(Executor):
    """One trial at a time on another machine; further trials wait for their turn.

    One thread supervises the trial. Only this thread writes the trial's directory here, and only
    the answers to its own requests. So late answers of a lost lane are ignored. After a loss the
    next trial reopens the lane, if its node is back.
    """

    def __init__(self, first: OpenLane, reopen: Callable[[], OpenLane]) -> None:
        """
        :param reopen: opens the lane again; raises LaneLost if its node is gone.
        """
        self._lane: OpenLane | None = first
        self._reopen = reopen
        self.place = first.place
        self._described = first.described
        self._closing = threading.Event()
        self._lock = threading.Lock()
        self._thread = futures.ThreadPoolExecutor(1, thread_name_prefix=first.place.lane)

    @property
    def home(self) -> Path | None:
        """Return the lane's directory on its node; None if the lane is lost."""
        return None if self._lane is None else self._lane.home

    def describe(self) -> str:
        """See :meth:`Executor.describe`."""
        return f"ray {self.place.lane}: {self._described}"

    def submit(self, spec: TrialSpec, trial_dir: Path) -> LocalJob:
        """See :meth:`Executor.submit`."""
        job = LocalJob(spec.trial_id)
        run = partial(self._run, job, spec, trial_dir.resolve(), time.monotonic())
        with self._lock:
            if self._closing.is_set():
                raise MachineryError("this executor is closed; create another to run more trials")
            job.future = self._thread.submit(run)
        return job

    def reopen(self) -> bool:
        """Wait, after a loss, until the lane is open again; return whether it is.

        Its node may be away for minutes, without power or network. The wait happens here, so that
        no trial waits for the node.
        """
        give_up_at = time.monotonic() + _BACK_S
        while not self._closing.is_set() and time.monotonic() < give_up_at:
            with contextlib.suppress(AutoresearchError, RuntimeError):  # closed meanwhile
                return self._thread.submit(self._opened).result() is not None
            self._closing.wait(_KNOCK_S)
        return False

    def close(self) -> None:
        """See :meth:`Executor.close`."""
        with self._lock:
            self._closing.set()
        self._thread.shutdown(cancel_futures=True)
        lane, self._lane = self._lane, None
        if lane is not None:
            with contextlib.suppress(LaneLost):
                lane.remote.ask("close", within_s=SILENCE_S)
            lane.remote.end()

    # --- in the lane's own thread ---------------------------------------------------------------

    def _run(self, job: LocalJob, spec: TrialSpec, trial_dir: Path, asked_at: float) -> Finished:
        cancelled = partial(self._is_cancelled, job)
        if cancelled():
            raise aborted(spec.trial_id)
        files = TrialFiles(spec, trial_dir)
        try:
            lane = self._opened()
            try:
                result = _Trial(lane, spec, files, job, cancelled).run()
            except LaneLost:
                self._lane = None
                lane.remote.end()
                raise
        finally:
            files.close()
        return Finished(result, time.monotonic() - asked_at, self.place)

    def _is_cancelled(self, job: LocalJob) -> bool:
        return job.cancelled.is_set() or self._closing.is_set()

    def _opened(self) -> OpenLane:
        if self._lane is None:
            self._lane = self._reopen()
        return self._lane


class _Trial:
    """One trial, from its start on the node to its files here."""

    def __init__(
        self,
        lane: OpenLane,
        spec: TrialSpec,
        files: TrialFiles,
        job: LocalJob,
        cancelled: Callable[[], bool],
    ) -> None:
        self._lane = lane
        self._spec = spec
        self._files = files
        self._job = job
        self._cancelled = cancelled
        self._seen_bytes = 0
        """Bytes of the curve that have arrived."""

    def run(self) -> Measured | TrialFailed:
        """Run the trial to its end and return its result.

        :raises LaneLost: if the lane is lost meanwhile.
        :raises AutoresearchError: see :meth:`Job.result`.
        """
        self._start()
        progress, left = self._until_end()
        data = self._fetch() if left is None else self._take(*left)
        if progress.aborted:
            raise aborted(self._spec.trial_id)
        _raise_error(progress)
        return self._keep_result(data)

    def _start(self) -> None:
        """Send the trial's texts, and start it.

        :raises AutoresearchError: if the node refuses it.
        """
        spec, known = self._spec, self._lane.known
        for text in spec.texts:
            if text.sha256 not in known:
                data = _contents(Path(text.path))
                opened = said(Opened, self._ask("text", text.sha256, data), "the lane")
                if opened.refusal is not None:
                    raise opened.refusal.as_exception()
        # A node may have to hash a corpus of tens of gigabytes.
        patience_s = SILENCE_S if spec.corpus_sha256 in known else _HASHING_S
        order = _order(spec).model_dump_json()
        started = self._lane.remote.ask("start", self._files.path.name, order, within_s=patience_s)
        _raise_error(said(Progress, started, "the lane"))
        known |= {spec.corpus_sha256, *(text.sha256 for text in spec.texts)}

    def _until_end(self) -> tuple[Progress, tuple[bytes, bytes, bytes] | None]:
        """Return how the trial ended; also the rest of its curve, its log and result, if sent."""
        asked = False
        while True:
            if self._cancelled() and not asked:
                self._ask("cancel")
                asked = True
            head, behind = apart(self._ask("watch", self._seen_bytes, _WATCH_S))
            progress = said(Progress, head, "the lane")
            if progress.lengths is not None:
                return progress, _parts(behind, progress.lengths)
            self._take_curve(behind)
            if progress.ended:
                return progress, None

    def _take(self, curve: bytes, log: bytes, result: bytes) -> bytes:
        """Keep curve and log; return the result."""
        self._take_curve(curve)
        with self._log() as file:
            file.write(log)
        return result

    def _fetch(self) -> bytes:
        """Fetch curve and log in pieces, since they exceed one answer; return the result."""
        while self._seen_bytes < MAX_CURVE_BYTES:
            if not (gained := self._more("curve", self._seen_bytes)):
                break
            self._take_curve(gained)
        with self._log() as file:
            while file.tell() <= self._spec.limits.log_bytes:
                file.write(piece := self._more("log", file.tell()))
                if len(piece) < PIECE_BYTES:
                    break
        return self._ask("hand_over")

    def _more(self, file: str, seen_bytes: int) -> bytes:
        return self._ask("more", file, seen_bytes)

    @contextlib.contextmanager
    def _log(self) -> Iterator[IO[bytes]]:
        """Open the log for writing from its beginning; then shorten it to its limit."""
        with (self._files.path / LOG_FILE).open("r+b") as log:
            yield log
        self._files.log.compact()

    def _take_curve(self, gained: bytes) -> None:
        """Append to the curve as the trial wrote it, and read its points as untrusted input."""
        if not gained or self._seen_bytes >= MAX_CURVE_BYTES:
            return
        self._seen_bytes += len(gained)
        with (self._files.path / CURVE_FILE).open("ab") as curve:
            curve.write(gained)
        while points := self._files.curve.read():
            self._job.arrived.extend(points)

    def _keep_result(self, data: bytes) -> Measured | TrialFailed:
        try:
            result = parse_result(data)
            wrong = contradiction(self._spec, result)
        except ValidationError as error:
            wrong = explain(error)
        if wrong:
            raise MachineryError(
                f"the node's answer is not a result of trial {self._spec.trial_id} ({wrong});"
                " install the same version of autoresearch on every machine"
            )
        self._files.write_result(result)
        return result

    def _ask(self, method: str, *arguments: object) -> bytes:
        return self._lane.remote.ask(method, *arguments, within_s=SILENCE_S)


def _order(spec: TrialSpec) -> TrialOrder:
    changes: dict[str, object] = {}
    if spec.code_cache is not None:
        key = hashlib.sha256(f"{socket.gethostname()}\0{spec.code_cache}".encode()).hexdigest()
        changes["compile_cache"] = key[:16]
    if spec.command is None:
        there = (Path(spec.corpus_dir) / META).is_file()  # if not, the trial itself reports that
        return TrialOrder(spec=spec.model_copy(update=changes), has_corpus=there)
    changes["command"] = with_uniform_paths(spec.command)
    program = portable_program(spec.command)
    return TrialOrder(spec=spec.model_copy(update=changes), program=program)


def _contents(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise CorpusError(f"cannot read {path}: {error.strerror}; prepare it again") from error


def _raise_error(progress: Progress) -> None:
    """
    :raises AutoresearchError: if the node reported an error of the trial.
    """
    if progress.error is not None:
        if progress.lost:
            raise LaneLost(progress.error.message)
        raise progress.error.as_exception()


def _parts(data: bytes, lengths: tuple[int, int, int]) -> tuple[bytes, bytes, bytes]:
    """Split an answer into curve, log and result."""
    curve, log, result = lengths
    return data[:curve], data[curve : curve + log], data[curve + log :][:result]
