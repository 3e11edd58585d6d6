"""Provide a stand-in for Slurm: small programs on PATH that start processes and signal them.

``sbatch`` starts the script that it reads; with a file ``hold`` in the state folder the job stays
in the queue, with a file ``refuse`` it is refused with that file's text.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support import hostile
from tests.support.ray_lanes import Armed
from tests.support.waiting import wait_until
from trainer.executors.base import Executor
from trainer.executors.ray.messages import LaneOrder
from trainer.executors.slurm.lane import Batch, SlurmLane, SlurmLanes
from trainer.executors.slurm.mail import SENT_DIR

_PROGRAM = f"""#!{sys.executable} -S
import os, pathlib, signal, subprocess, sys
state, name = pathlib.Path({{state!r}}), pathlib.Path(sys.argv[0]).name
words = sys.argv[1:]
with (state / "log").open("a") as log:
    print(name, *words, file=log)
if name == "sbatch" and words == ["--version"]:
    print("slurm 25.05.0")
elif name == "sbatch":
    script = sys.stdin.read()
    if (state / "refuse").exists():
        sys.exit((state / "refuse").read_text())
    (state / "environ").write_text(repr(dict(os.environ)))
    number = len(list(state.glob("*.pid"))) + 101
    option = dict(word[2:].split("=", 1) for word in words if "=" in word)
    pid = ""
    if not (state / "hold").exists():
        with open(option["output"], "ab") as output:
            job = subprocess.Popen(
                ["/bin/sh", "-c", script], cwd=option["chdir"], start_new_session=True,
                stdin=subprocess.DEVNULL, stdout=output, stderr=output,
            )
        pid = str(job.pid)
    (state / f"{{{{number}}}}.pid").write_text(pid)
    print(f"{{{{number}}}};cluster")
else:
    number = [word for word in words if word.strip("-jobs=").isdigit()][0].strip("-jobs=")
    file = state / f"{{{{number}}}}.pid"
    if not file.exists():
        sys.exit("slurm_load_jobs error: Invalid job id specified")
    pid = file.read_text()
    if name == "scancel":
        file.write_text("0")
        if pid not in ("", "0"):
            try:
                os.killpg(int(pid), signal.SIGTERM)
            except ProcessLookupError:
                pass
    elif pid == "":
        print("PENDING")
    elif pid != "0" and pathlib.Path("/proc", pid, "cmdline").read_bytes():
        print("RUNNING")
"""


@dataclass(frozen=True)
class FakeSlurm:
    """The stand-in's folder."""

    state: Path

    def log(self) -> list[str]:
        """Return the calls so far, one a line."""
        with suppress(FileNotFoundError):
            return (self.state / "log").read_text().splitlines()
        return []

    def jobs(self) -> list[int]:
        """Return the processes of the jobs that run."""
        pids = [path.read_text() for path in sorted(self.state.glob("*.pid"))]
        return [int(pid) for pid in pids if pid not in ("", "0") and _runs(int(pid))]

    def signal(self, number: signal.Signals, job: int = 0) -> None:
        """Signal a running job, as Slurm does before it ends one."""
        os.kill(self.jobs()[job], number)

    def lose(self, job: int = 0) -> None:
        """Stop all processes of a job at once, as when its node dies."""
        os.killpg(self.jobs()[job], signal.SIGKILL)


def _runs(pid: int) -> bool:
    with suppress(OSError):
        return bool(Path("/proc", str(pid), "cmdline").read_bytes())
    return False


@contextmanager
def fake_slurm(folder: Path) -> Iterator[FakeSlurm]:
    """Put the stand-in on PATH; no process of it is left afterwards."""
    state, programs = folder / "state", folder / "bin"
    for made in (state, programs):
        made.mkdir(parents=True)
    for name in ("sbatch", "squeue", "scancel"):
        text = _PROGRAM.format(state=str(state)).replace("{{", "{").replace("}}", "}")
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
    slurm = FakeSlurm(state)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", str(programs), prepend=os.pathsep)
        try:
            yield slurm
        finally:
            for pid in slurm.jobs():
                with suppress(ProcessLookupError):
                    os.killpg(pid, signal.SIGKILL)


def batch(folder: Path, *options: str, lease_s: float = 60.0) -> Batch:
    """Return a batch whose trials are armed by the test."""
    (folder / SENT_DIR).mkdir(parents=True)
    order = LaneOrder(token="", entry=hostile.ENTRY, lease_s=lease_s, allow_unsandboxed=True)
    return Batch(folder, options, order, "cpu", delay_s=5.0, pause_s=0.2)


class ArmedSlurm(Armed, SlurmLanes):
    """Run trials in a job of the stand-in, with the attacks that the test has armed them with."""


@contextmanager
def slurm_lane(folder: Path) -> Iterator[Executor]:
    """Yield one lane that is a job of the stand-in."""
    with fake_slurm(folder), batch(folder / "session") as common:
        lane = SlurmLane("0", common)
        with ArmedSlurm(lane) as executor:
            wait_until(lambda: lane.home != Path())
            yield executor
