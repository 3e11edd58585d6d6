"""Start, monitor and end this host's rank, and yield its results as they arrive."""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from autoresearch.code import package_root
from autoresearch.files import writing
from autoresearch.values import Frozen
from trainer.machine.environment import allowed_environment
from trainer.parallel.hosts.job import (
    BEAT_S,
    FAILURE_FILE,
    LINK_FILE,
    LOG_FILE,
    HostJob,
    LinkSpeed,
    Watched,
    watched,
)
from trainer.parallel.job import JOB_FILE, LOSSES_FILE, LayoutLosses

LOST_S = 15 * BEAT_S
"""Seconds without a heartbeat after which a host counts as lost."""
LOST_AFTER_FAILURE_S = 4 * BEAT_S
"""The same after a failure here, which a lost host explains."""
_SILENT_BEFORE_S = 2.5 * BEAT_S
"""Longest gap between two heartbeats of a healthy host."""
_SETTLE_S = 2 * LOST_AFTER_FAILURE_S + 3 * BEAT_S
"""After a failure here: how long to look for a host that was lost, or failed first. The first host
may find another lost and give up within ``LOST_AFTER_FAILURE_S`` and a beat; that nothing comes
from its store any more is then known here as long after."""
_POLL_S = 0.1
_NCCL_NETWORK = re.compile(r"Using network (\w+)")
_PASSED = ("NCCL_", "GLOO_")


class HostsFailed(Frozen):
    """Reason why the hosts failed, in one sentence."""

    message: str


class LinkFound(Frozen):
    """The link's speed, and its network."""

    speed: LinkSpeed
    nccl_network: str | None
    """Name in NCCL's log: IB, which includes RoCE, or Socket; None for gloo."""


def run_host(
    job: HostJob, environment: Mapping[str, str] | None = None
) -> Iterator[LayoutLosses | LinkFound | HostsFailed]:
    """Yield the result of each layout, the single process first, then the link; a failure ends it.

    :param environment: variables for the worker that override its defaults.
    :raises MachineryError: if no process can be started, or the scratch disk refuses.
    """
    with tempfile.TemporaryDirectory(prefix="autoresearch-") as folder:
        scratch = Path(folder)
        with writing(f"this host's job in {folder}", instead="see `autoresearch doctor`"):
            (scratch / JOB_FILE).write_text(job.model_dump_json(), "utf-8")
            log = (scratch / LOG_FILE).open("wb")
        with log:
            process = subprocess.Popen(
                [sys.executable, "-m", "trainer.parallel.hosts.worker", str(scratch)],
                env=_environment(job) | dict(environment or {}),
                cwd=package_root(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
            try:
                yield from _Running(job, scratch, process).results()
            finally:
                process.kill()
                process.wait()


class _Running:
    """A running worker."""

    def __init__(self, job: HostJob, scratch: Path, process: subprocess.Popen[bytes]) -> None:
        self._job = job
        self._scratch = scratch
        self._process = process
        self._reported = 0
        self._failed_at: float | None = None
        self._began = time.monotonic()

    def results(self) -> Iterator[LayoutLosses | LinkFound | HostsFailed]:
        while True:
            has_ended = self._process.poll() is not None
            yield from self._new_losses()
            why = self._failure(has_ended=has_ended)
            if why is not None:
                yield HostsFailed(message=why)
                return
            if has_ended:
                speed = LinkSpeed.model_validate_json((self._scratch / LINK_FILE).read_bytes())
                log = (self._scratch / LOG_FILE).read_text("utf-8", "replace")
                used = _NCCL_NETWORK.findall(log)
                yield LinkFound(speed=speed, nccl_network=used[-1] if used else None)
                return
            time.sleep(_POLL_S)

    def _new_losses(self) -> Iterator[LayoutLosses]:
        try:
            text = (self._scratch / LOSSES_FILE).read_text("utf-8")
        except FileNotFoundError:
            return
        whole = text[: text.rfind("\n") + 1].splitlines()
        for line in whole[self._reported :]:
            self._reported += 1
            yield LayoutLosses.model_validate_json(line)

    def _failure(self, *, has_ended: bool) -> str | None:
        """Return one sentence once the failure is known; None while all is well or the reason is
        unknown."""
        now = time.monotonic()
        own = _text(self._scratch / FAILURE_FILE)
        if has_ended and self._process.returncode == 0:
            return None
        seen = watched(self._scratch)
        if seen is None:  # they have not met, and the worker knows why
            return own or (self._last_line() if has_ended else self._overdue(now))
        if own or has_ended or seen.failed:
            self._failed_at = self._failed_at or now
        lost = self._lost(seen, now, is_watching=not has_ended)
        if lost is None and self._failed_at is not None and now - self._failed_at > _SETTLE_S:
            # No host has fallen silent, so the first reported failure is the cause.
            for place, words in seen.failed.items():
                return f"{self._name(place)} failed ({words}); fix that, and start again on all"
            return f"this host failed ({own or self._last_line()}); fix that, and start again"
        return lost or self._overdue(now)

    def _lost(self, seen: Watched, now: float, *, is_watching: bool) -> str | None:
        """Return which host has fallen silent."""
        patience = LOST_S if self._failed_at is None else LOST_AFTER_FAILURE_S
        silent = {place: seen.at_s - at_s for place, at_s in seen.seen_s.items()}
        place = max(silent, key=lambda one: silent[one])
        unwritten = now - seen.at_s
        if is_watching and self._job.hosts.this > 0 and unwritten > patience:
            # The store no longer answers: the first host was lost, or has given up because of
            # another that had been silent before.
            if silent[place] < _SILENT_BEFORE_S:
                place, silent = 0, {0: 0.0}
        elif silent[place] <= patience:
            return None
        else:
            unwritten = 0.0
        return (
            f"{self._name(place)} was lost: no sign of life for {silent[place] + unwritten:.0f} s; "
            "see to that host and its cable, and begin again on all hosts"
        )

    def _overdue(self, now: float) -> str | None:
        if now - self._began < self._job.job.deadline_s:
            return None
        return f"not done after {self._job.job.deadline_s:g} s, and ended; allow it more"

    def _name(self, place: int) -> str:
        return self._job.hosts.names[place]

    def _last_line(self) -> str:
        log = (self._scratch / LOG_FILE).read_text("utf-8", errors="replace").splitlines()
        last = next((line.strip() for line in reversed(log) if line.strip(" =-")), "nothing said")
        return f"exit code {self._process.returncode}: {last[:200]}"


def _environment(job: HostJob) -> dict[str, str]:
    """Return the environment: no keys; one thread per rank; both libraries on the hosts' shared
    interface unless set otherwise; and NCCL logging what it uses."""
    interface = job.hosts.interface
    defaults = {
        "GLOO_SOCKET_IFNAME": interface,
        "NCCL_SOCKET_IFNAME": interface,
        "NCCL_DEBUG": "INFO",
    }
    return defaults | allowed_environment(also=_PASSED) | {"OMP_NUM_THREADS": "1"}


def _text(path: Path) -> str | None:
    try:
        return path.read_text("utf-8")
    except FileNotFoundError:
        return None
