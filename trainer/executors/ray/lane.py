"""Use one lane on another machine as an executor of one place here."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from autoresearch.errors import AutoresearchError, CorpusError
from autoresearch.layout import CURVE_FILE, LOG_FILE
from trainer.corpus.store import META
from trainer.executors.base import Finished, LaneLost
from trainer.executors.local import LocalJob, OneByOne
from trainer.executors.ray.connection import Remote
from trainer.executors.ray.values import Watched
from trainer.isolation.outcome import aborted
from trainer.isolation.trial_files import TrialFiles
from trainer.spec import Measured, Place, TrialFailed, TrialSpec

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


class RayLane(OneByOne):
    """One trial at a time on another machine.

    Only the lane's thread writes the trial's directory here, and only the answers to its own
    requests. So late answers of a lost lane are ignored. After a loss the next trial reopens the
    lane, if its node is back.
    """

    def __init__(self, first: OpenLane, reopen: Callable[[], OpenLane]) -> None:
        """
        :param reopen: opens the lane again; raises LaneLost if its node is gone.
        """
        super().__init__(first.place.lane)
        self._lane: OpenLane | None = first
        self._reopen = reopen
        self.place = first.place
        self._described = first.described

    def describe(self) -> str:
        """See :meth:`Executor.describe`."""
        return f"{self._described}, by Ray"

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
        super().close()
        lane, self._lane = self._lane, None
        if lane is not None:
            with contextlib.suppress(LaneLost):
                lane.remote.ask("close", within_s=_SILENCE_S)
            lane.remote.end()

    # --- in the lane's own thread ---------------------------------------------------------------

    def _attempt(self, job: LocalJob, spec: TrialSpec, trial_dir: Path, asked_at: float) -> None:
        try:
            result = self._result(job, spec, trial_dir)
        except BaseException as error:  # noqa: BLE001 (the job's result() raises it)
            job.future.set_exception(error)
        else:
            took_s = time.monotonic() - asked_at
            job.future.set_result(Finished(result, took_s, self.place))

    def _result(self, job: LocalJob, spec: TrialSpec, trial_dir: Path) -> Measured | TrialFailed:
        """Run the trial.

        :raises AutoresearchError: see :meth:`Job.result`.
        """
        if self._is_cancelled(job):
            raise aborted(spec.trial_id)
        files = TrialFiles(spec, trial_dir)
        try:
            lane = self._opened()
            try:
                self._start(lane, spec, trial_dir)
                return self._watched(lane, job, files)
            except LaneLost:
                self._lane = None
                lane.remote.end()
                raise
        finally:
            files.close()

    def _start(self, lane: OpenLane, spec: TrialSpec, trial_dir: Path) -> None:
        """Start the trial on its node, with the texts that the node does not have.

        :raises AutoresearchError: if the node refuses it.
        """
        texts = {
            text.sha256: _contents(Path(text.path))
            for text in spec.texts
            if text.sha256 not in lane.known
        }
        has_corpus = (Path(spec.corpus_dir) / META).is_file()
        # A node may have to hash a corpus of tens of gigabytes.
        patience_s = _SILENCE_S if spec.corpus_sha256 in lane.known else _HASHING_S
        lane.remote.ask("start", trial_dir.name, spec, texts, has_corpus, within_s=patience_s)
        lane.known.update({spec.corpus_sha256, *texts})

    def _watched(self, lane: OpenLane, job: LocalJob, files: TrialFiles) -> Measured | TrialFailed:
        """Wait for the trial's end; keep its curve, log and result here.

        :raises LaneLost: if the lane is lost meanwhile.
        :raises AutoresearchError: see :meth:`Job.result`.
        """

        def pass_on() -> None:
            if self._is_cancelled(job):
                lane.remote.ask("cancel", within_s=_SILENCE_S)

        seen_bytes = 0
        while True:
            watched: Watched = lane.remote.ask(
                "watch", seen_bytes, _WATCH_S, within_s=_SILENCE_S, meanwhile=pass_on
            )
            if watched.curve:
                seen_bytes += len(watched.curve)
                with (files.path / CURVE_FILE).open("ab") as curve:
                    curve.write(watched.curve)
                while points := files.curve.read():
                    job.arrived.extend(points)
            if watched.end is not None:
                break
        (files.path / LOG_FILE).write_bytes(watched.log)
        if isinstance(watched.end, AutoresearchError):
            raise watched.end
        files.write_result(watched.end)
        return watched.end

    def _opened(self) -> OpenLane:
        if self._lane is None:
            self._lane = self._reopen()
        return self._lane


def _contents(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise CorpusError(f"cannot read {path}: {error.strerror}; prepare it again") from error
