"""Lanes that are jobs of Slurm: submit them, wait for them, and replace those that end.

A lane has one job at a time, which serves one trial after another, so that no trial waits in
Slurm's queue. What a node does, and what is sent to it, is as with Ray. The messages go through
files.
"""

from __future__ import annotations

import contextlib
import secrets
import shlex
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autoresearch.campaign_files import make_folder
from autoresearch.closing import Closing
from autoresearch.code import module_command, package_root
from autoresearch.errors import AutoresearchError, MachineryError, SettingsError
from trainer.executors.base import LaneLost
from trainer.executors.lanes import Lane, Lanes
from trainer.executors.ray.connection import Remote
from trainer.executors.ray.facts import unfit
from trainer.executors.ray.lane import RayLane
from trainer.executors.ray.messages import LaneOrder, Needs
from trainer.executors.ray.parcels import fill
from trainer.executors.slurm.mail import (
    PULSE_FILE,
    REPLY_FILE,
    REQUEST_FILE,
    SENT_DIR,
    get,
    put,
)
from trainer.machine.environment import allowed_environment
from trainer.schema import Command, Place

FOLDER = "slurm"
"""Folder of a campaign for the rooms of its jobs."""
MOST_LOSSES = 20
"""Most times a trial runs again: preemption is common."""
_PASSED = ("SBATCH_", "SLURM_", "AUTORESEARCH_DATA_DIR", "XDG_CACHE_HOME", "HOME", "USER")
"""Variables that sbatch and the job see besides those of trials. Keys stay here."""
_COMMAND_S = 60.0
_POLL_S = 0.2
_ATTEMPTS = 5
"""Jobs that may fail in turn before a lane is given up."""


@dataclass
class Batch(Closing):
    """What the jobs of a session have in common, and the pulse by which they know that it lives."""

    folder: Path
    """The session's own folder, in the campaign's."""
    options: Sequence[str]
    """The user's options of sbatch."""
    order: LaneOrder
    device: str
    needs: Needs | None = None
    kind: str | None = None
    """The kind of the devices, which the first job to answer decides."""
    delay_s: float = 60.0
    """What a shared file system may add to an answer."""
    pause_s: float = 30.0
    """Time between two attempts to start a job, and between two looks at Slurm's queue."""

    def __post_init__(self) -> None:
        self._closing = threading.Event()
        self._pulse = threading.Thread(target=self._beat, name="pulse", daemon=True)
        self._pulse.start()

    def _beat(self) -> None:
        beat = 0
        while not self._closing.wait(self.order.lease_s / 20):
            beat += 1
            with contextlib.suppress(OSError):  # a full disk ends the loop elsewhere
                put(self.folder / PULSE_FILE, beat)

    def close(self) -> None:
        """Stop the pulse and remove the rooms."""
        self._closing.set()
        self._pulse.join()
        shutil.rmtree(self.folder, ignore_errors=True)


def call(*words: str, script: str = "") -> subprocess.CompletedProcess[str]:
    """Run a command of Slurm.

    :raises MachineryError: if it is not installed, or does not answer.
    """
    try:
        return subprocess.run(
            words,
            input=script,
            env=allowed_environment(also=_PASSED),
            capture_output=True,
            text=True,
            timeout=_COMMAND_S,
            check=False,
        )
    except FileNotFoundError as error:
        raise MachineryError(
            f"there is no {words[0]} here; run the loop on a login node of a Slurm cluster"
        ) from error
    except subprocess.TimeoutExpired as error:
        raise MachineryError(f"{words[0]} did not answer within {_COMMAND_S:g} s") from error


def slurm_version() -> str:
    """Return what Slurm says of its version.

    :raises MachineryError: if it is not installed here.
    """
    return call("sbatch", "--version").stdout.strip()


class SlurmJob(Remote):
    """A job with its room, in which requests go through files."""

    def __init__(self, name: str, batch: Batch) -> None:
        """Submit the job.

        :param name: the lane's.
        :raises MachineryError: if Slurm refuses it.
        """
        self._room = batch.folder / f"{name}-{secrets.token_hex(4)}"
        self._delay_s = batch.delay_s
        self.node = ""
        """Its node's name, once it runs."""
        self._number = 0
        make_folder(self._room)
        put(self._room / REQUEST_FILE, (0, "", ()))
        words = str(self._room), str(batch.order.lease_s)
        worker = shlex.join(module_command("trainer.executors.slurm.worker", *words))
        done = call(
            *("sbatch", "--parsable", "--job-name=autoresearch", "--no-requeue"),
            *("--signal=B:USR1@60", f"--output={self._room}/job.log"),
            *(f"--chdir={package_root()}", *batch.options),
            script=f"#!/bin/sh\nexec {worker}\n",
        )
        if done.returncode != 0:
            why = " ".join(done.stderr.split())[-300:]
            raise MachineryError(f"Slurm refused a job ({why}); change the options after slurm:")
        self.id = done.stdout.strip().partition(";")[0]

    def is_up(self) -> bool:
        """Return whether it runs, and note its node."""
        if not self.node:
            _, self.node, _ = get(self._room / REPLY_FILE) or (0, "", "")
        return bool(self.node)

    def refuse_if_gone(self) -> None:
        """Ask Slurm about the job.

        :raises LaneLost: if Slurm does not know it any more.
        """
        listed = call("squeue", "--noheader", f"--jobs={self.id}", "--format=%T")
        is_unknown = "invalid job id" in listed.stderr.lower()
        if is_unknown or (listed.returncode == 0 and not listed.stdout.strip()):
            said = ""
            with contextlib.suppress(OSError):
                said = " ".join((self._room / "job.log").read_text("utf-8", "replace").split())
            raise LaneLost(
                f"job {self.id} ended before it answered ({said[-300:]}); see sacct -j {self.id}"
            )

    def ask(
        self,
        method: str,
        *arguments: object,
        within_s: float,
        meanwhile: Callable[[], None] = lambda: None,
    ) -> Any:
        """Call a method of the job's NodeLane and return its answer.

        :param meanwhile: called before; no method takes longer than some seconds.
        :raises LaneLost: if the job ends or falls silent.
        :raises AutoresearchError: if the method raises one.
        """
        if not self.is_up():
            raise LaneLost(f"job {self.id} does not run")
        meanwhile()
        self._number += 1
        put(self._room / REQUEST_FILE, (self._number, method, arguments))
        ends = time.monotonic() + within_s + self._delay_s
        while time.monotonic() < ends:
            number, value, farewell = get(self._room / REPLY_FILE) or (0, None, "")
            if farewell:
                raise LaneLost(f"job {self.id} ended: {farewell}")
            if number == self._number:
                if isinstance(value, AutoresearchError):
                    raise value
                return value
            time.sleep(_POLL_S)
        raise LaneLost(f"job {self.id} has not answered for {within_s + self._delay_s:g} s")

    def end(self) -> None:
        """Cancel the job; what is left of it finds its room gone, and ends itself."""
        with contextlib.suppress(MachineryError):
            call("scancel", self.id)
        shutil.rmtree(self._room, ignore_errors=True)


class SlurmLane(RayLane):
    """One trial at a time in a job of Slurm."""

    def __init__(self, name: str, batch: Batch) -> None:
        """Submit the lane's job.

        :raises MachineryError: if Slurm refuses it.
        """
        self.place = Place(lane=name)
        self.gone = LaneLost(f"lane {name} has no job")
        """How it was lost if no job of it can be started."""
        self._batch = batch
        self._order = batch.order
        self._known = set()
        self.home = Path()
        self._remote = self._job = SlurmJob(name, batch)

    def describe(self) -> str:
        """See :meth:`Lane.describe`."""
        return "jobs of Slurm, confined by what each node's kernel has, fork server"

    def reopen(self, closing: threading.Event) -> bool:
        """Wait until a job of the lane runs, for as long as it is in the queue; see
        :meth:`Lane.reopen`."""
        for _ in range(_ATTEMPTS):
            try:
                if self._remote is None:
                    self._remote = self._job = SlurmJob(self.place.lane, self._batch)
                asked_at = time.monotonic()
                while not self._job.is_up():
                    if closing.wait(_POLL_S):
                        return False
                    if time.monotonic() - asked_at > self._batch.pause_s:
                        asked_at = time.monotonic()
                        self._job.refuse_if_gone()
                self._open()
            except AutoresearchError as error:
                self.gone.args = (f"lane {self.place.lane}: {error}",)
            else:
                return True
            if self._remote is not None:
                self._remote.end()
                self._remote = None
            closing.wait(self._batch.pause_s)
        return False

    def _connect(self) -> SlurmJob:
        """Return the job once its node is known to be fit.

        :raises MachineryError: if it is not.
        """
        batch, job = self._batch, self._job
        facts = job.ask("facts", batch.needs, within_s=batch.delay_s)
        if wrong := unfit(facts, batch.device):
            raise MachineryError(f"the node of job {job.id} is unfit: {wrong}")
        kind = facts.kind(batch.device)
        batch.kind = batch.kind or kind
        if kind != batch.kind:
            raise MachineryError(
                f"the node of job {job.id} has {kind} and the others {batch.kind}; choose one kind"
                " with --constraint or --gres"
            )
        self.place = Place(lane=self.place.lane, node=job.node, device=kind)
        return job


class SlurmLanes(Lanes):
    """Lanes that take trials as soon as their jobs run."""

    def _serve(self, lane: Lane) -> None:
        assert isinstance(lane, SlurmLane)
        if self._reopen(lane, lane.gone):
            super()._serve(lane)
        else:
            lane.close()


def open_slurm(
    options: str,
    lanes: int | None,
    *,
    command: Command | None,
    corpus: Path | None,
    campaign: Path,
    device: str,
    allow_unsandboxed: bool,
    entry: str,
) -> Lanes:
    """Submit a job for each lane, and return the executor without waiting until they run.

    :param options: the user's options of sbatch, as one line of a shell.
    :raises SettingsError: if the number of lanes is not said, or the options cannot be read.
    :raises MachineryError: if Slurm refuses a job.
    """
    if lanes is None:
        raise SettingsError("with Slurm, say how many jobs to submit: --lanes 4")
    try:
        words = shlex.split(options)
    except ValueError as error:
        raise SettingsError(f"the options of sbatch cannot be read ({error}): {options}") from error
    folder = campaign.absolute() / FOLDER / secrets.token_hex(4)
    make_folder(folder / SENT_DIR)
    sha256 = fill(folder / SENT_DIR, command, corpus, campaign)
    order = LaneOrder(
        token="",
        entry=entry,
        lease_s=180.0,
        allow_unsandboxed=allow_unsandboxed,
        script_sha256=sha256,
    )
    needs = None if command is None else Needs(command)
    return open_batch(lanes, Batch(folder, words, order, device, needs))


def open_batch(lanes: int, batch: Batch) -> Lanes:
    """Submit the jobs of a batch; see :func:`open_slurm`."""
    opened: list[Lane] = []
    try:
        for number in range(lanes):
            opened.append(SlurmLane(str(number), batch))
    except BaseException:
        for lane in opened:
            lane.close()
        batch.close()
        raise
    return SlurmLanes(opened, MOST_LOSSES, closing=batch)
