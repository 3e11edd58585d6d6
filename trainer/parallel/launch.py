"""Run layouts on as many ranks as each needs, under torchrun, and always return.

torchrun starts its workers in their own sessions, so killing its process group misses them. Its
descendants are listed while it lives, and ended with it. A worker also dies with its torchrun, and
each has a timer of its own in case no process is left to end it.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from autoresearch.code import package_root
from autoresearch.errors import MachineryError
from autoresearch.values import Frozen
from trainer.isolation.process_tree import await_death, descendants
from trainer.machine.environment import allowed_environment
from trainer.parallel.job import (
    JOB_FILE,
    LOSSES_FILE,
    DeviceKind,
    Layout,
    LayoutLosses,
    ParallelJob,
    RankFailure,
    failure_file,
)
from trainer.spec import Config

_GRACE_S = 5.0
_LOG_FILE = "torchrun.log"
_LOOPBACK = {
    "linux": {"GLOO_SOCKET_IFNAME": "lo"},
    "darwin": {"GLOO_SOCKET_IFNAME": "lo0"},
}


class LayoutFailed(Frozen):
    """A layout that failed."""

    name: str
    message: str
    """One line, from the rank that failed first."""


@dataclass(frozen=True, slots=True)
class Launcher:
    """Runs one recipe, with a time limit per layout."""

    config: Config
    vocab_size: int
    seed: int
    steps: int
    device: DeviceKind
    timeout_s: float

    def run(self, layouts: tuple[Layout, ...]) -> Iterator[LayoutLosses | LayoutFailed]:
        """Yield the result of each layout, in order; neighbors of one size share their processes.

        :raises MachineryError: if no process can be started, or the scratch disk refuses.
        """
        for _, group in groupby(layouts, key=lambda layout: layout.world_size):
            todo = tuple(group)
            while todo:
                done = self._run_together(todo)
                yield from done
                todo = todo[len(done) :]

    def _run_together(self, layouts: tuple[Layout, ...]) -> list[LayoutLosses | LayoutFailed]:
        """Return results of these layouts, run in one process group, up to and including the first
        failure; later layouts need another try."""
        job = ParallelJob(
            config=self.config,
            vocab_size=self.vocab_size,
            seed=self.seed,
            steps=self.steps,
            device=self.device,
            layouts=layouts,
            deadline_s=self.timeout_s * len(layouts) + _GRACE_S,
        )
        with tempfile.TemporaryDirectory(prefix="autoresearch-") as folder:
            scratch = Path(folder)
            try:
                (scratch / JOB_FILE).write_text(job.model_dump_json(), "utf-8")
                code = _run_ranks(scratch, job.world_size, self.timeout_s * len(layouts))
                done: list[LayoutLosses | LayoutFailed] = []
                with suppress(FileNotFoundError):
                    lines = (scratch / LOSSES_FILE).read_text("utf-8").splitlines()
                    done += map(LayoutLosses.model_validate_json, lines)
                if len(done) < len(layouts):
                    why = _why(scratch, job.world_size, code, self.timeout_s * len(layouts))
                    done.append(LayoutFailed(name=layouts[len(done)].name, message=why))
            except OSError as error:
                raise MachineryError(
                    f"the ranks cannot be started in {folder} ({error.strerror or error}); free "
                    "some space, or see `autoresearch doctor`"
                ) from error
        return done


def _run_ranks(scratch: Path, world_size: int, timeout_s: float) -> int | None:
    """Return torchrun's exit code; None if it had to be ended."""
    torchrun = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={world_size}"]
    if world_size == 1:
        torchrun = []
    with (scratch / _LOG_FILE).open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, *torchrun, "-m", "trainer.parallel.worker", str(scratch)],
            # No keys; one thread per rank; gloo on the loopback: a host's name need not resolve.
            env=allowed_environment() | _LOOPBACK.get(sys.platform, {}) | {"OMP_NUM_THREADS": "1"},
            cwd=package_root(),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        try:
            return process.wait(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            return None
        finally:
            _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    """End torchrun and everything below it, gracefully first; nothing is left afterwards."""
    if process.poll() is not None:
        return
    below = set(descendants(process.pid))
    process.terminate()  # torchrun hands it on to its workers
    with suppress(subprocess.TimeoutExpired):
        process.wait(timeout=_GRACE_S)
    below |= set(descendants(process.pid))
    process.kill()
    for pid in below:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    process.wait()
    await_death(below, _GRACE_S)


def _why(scratch: Path, world_size: int, code: int | None, timeout_s: float) -> str:
    """Return one line: the rank that failed first, else how torchrun ended."""
    files = (failure_file(scratch, rank) for rank in range(world_size))
    failures = [RankFailure.model_validate_json(f.read_bytes()) for f in files if f.exists()]
    if failures:
        first = min(failures, key=lambda failure: failure.at_s)
        return f"rank {first.rank}: {first.message}"
    if code is None:
        return f"not done after {timeout_s:g} s, and ended; allow it more"
    log = (scratch / _LOG_FILE).read_text("utf-8", errors="replace").splitlines()
    last = next((line.strip() for line in reversed(log) if line.strip(" =-")), "nothing said")
    return f"exit code {code}: {last.removeprefix('traceback : ')[:200]}"
