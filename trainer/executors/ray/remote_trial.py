"""Run one trial on another machine, from its start there to its files here."""

from __future__ import annotations

import contextlib
import hashlib
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from pydantic import ValidationError

from autoresearch.errors import CorpusError, MachineryError
from autoresearch.layout import CURVE_FILE, LOG_FILE
from autoresearch.values import explain
from trainer.corpus.store import META
from trainer.executors.base import LaneLost
from trainer.executors.local import LocalJob
from trainer.executors.ray.connection import Remote
from trainer.executors.ray.needs import portable_program, with_uniform_paths
from trainer.executors.ray.values import PIECE_BYTES, Opened, Progress, TrialOrder, apart, said
from trainer.isolation.outcome import aborted, contradiction
from trainer.isolation.trial_files import MAX_CURVE_BYTES, TrialFiles
from trainer.spec import Measured, Place, TrialFailed, TrialSpec, parse_result

SILENCE_S = 20.0
"""Time without an answer after which a lane is lost."""
_HASHING_S = 600.0
_WATCH_S = 2.0
"""How long one request waits for a trial's end, and so the longest delay of a curve's points. 64
lanes make 32 requests a second."""


@dataclass(frozen=True, slots=True)
class OpenLane:
    """An actor that is ready for trials."""

    remote: Remote
    described: str
    """A description of how trials are confined and started there."""
    place: Place
    home: Path = Path()
    """The lane's directory on its node; tests attack what is in it."""
    known: set[str] = field(default_factory=set)
    """Hashes of the corpora and texts that the node has."""


class RemoteTrial:
    """One trial on an open lane."""

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
        self._has_cancelled = False
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
        while True:
            answer = self._lane.remote.ask(
                "watch",
                self._seen_bytes,
                _WATCH_S,
                within_s=SILENCE_S,
                meanwhile=self._cancel_if_asked,
            )
            head, behind = apart(answer)
            progress = said(Progress, head, "the lane")
            if progress.lengths is not None:
                curve, log, result = progress.lengths
                rest = behind[curve + log :][:result]
                return progress, (behind[:curve], behind[curve : curve + log], rest)
            self._take_curve(behind)
            if progress.ended:
                return progress, None

    def _cancel_if_asked(self) -> None:
        if self._cancelled() and not self._has_cancelled:
            self._has_cancelled = True
            self._ask("cancel")

    def _take(self, curve: bytes, log: bytes, result: bytes) -> bytes:
        """Keep curve and log; return the result."""
        self._take_curve(curve)
        with self._log() as file:
            file.write(log)
        return result

    def _fetch(self) -> bytes:
        """Fetch curve and log in pieces, since they exceed one answer; return the result."""
        while self._seen_bytes < MAX_CURVE_BYTES:
            if not (gained := self._ask("more", "curve", self._seen_bytes)):
                break
            self._take_curve(gained)
        with self._log() as file:
            while file.tell() <= self._spec.limits.log_bytes:
                file.write(piece := self._ask("more", "log", file.tell()))
                if len(piece) < PIECE_BYTES:
                    break
        return self._ask("hand_over")

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
