"""Run the first instructions of a trial's process, between the fork and the training.

Order matters. The process ties its life to the server's, opens a log, enters its cgroup if there is
one, and reads the spec and the code to run. It closes the sandbox before any of that code does
something a config decides.
"""

from __future__ import annotations

import contextlib
import errno
import faulthandler
import os
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TypeAlias

from autoresearch.errors import AutoresearchError, MachineryError
from autoresearch.layout import LOG_FILE, SCRATCH_DIR, SPEC_FILE
from trainer.command.workspace import WORK_DIR, Reach, furnish, work_dir
from trainer.isolation.driver_line import DriverEar, DriverLine
from trainer.isolation.kernel import cgroup, shared_memory
from trainer.isolation.kernel.sandbox import Sandbox, move_home
from trainer.isolation.messages import Said, Start
from trainer.isolation.process_tree import become_subreaper, die_with_parent
from trainer.isolation.reaper import Reaper
from trainer.isolation.trial_files import TrialError
from trainer.machine import cuda_driver
from trainer.spec import (
    MAX_MESSAGE_CHARACTERS,
    Command,
    CommandOk,
    Measured,
    TrialFailed,
    TrialSpec,
    parse_result,
)

TrialFunction: TypeAlias = Callable[..., Measured | TrialFailed | None]
"""The function that a trial runs, as :func:`trainer.training.child.run_trial`. It writes
curve.jsonl and returns the result for the line."""


def live(
    start: Start,
    line: DriverLine,
    *,
    server: int,
    load: Callable[[], TrialFunction],
    sandbox: Sandbox,
) -> int:
    """Run the trial in this process; return the exit code.

    :param line: reports how the GPU's driver starts, and the result or the error.
    """
    os.setsid()
    die_with_parent(server)
    born = time.monotonic()
    trial_dir = Path(start.trial_dir)
    _redirect(trial_dir / LOG_FILE)
    try:
        if start.group is not None:
            cgroup.enter(Path(start.group))
        _prefer_for_oom_killer()
        spec = TrialSpec.model_validate_json((trial_dir / SPEC_FILE).read_bytes())
        run = _load(load)
        scratch = trial_dir / SCRATCH_DIR
        scratch.mkdir()
        move_home(scratch, spec.code_cache)
        os.chdir(trial_dir)
        reach = _reach(spec, trial_dir)
        check = _Check.of(spec, reach, trial_dir)
        if check is not None and check.trainer:
            check.confine(sandbox)
            return check.report(run, line, born)
        line = line if check is None else check.ear.as_trial()
        phase: dict[str, str] = {}
        trainer = 0
        if spec.scored_apart:
            trainer, line = _fork_trainer(line)
            phase["phase"] = "score" if trainer else "train"
        sandbox.confine(spec, trial_dir, reach, heldout=phase.get("phase") != "train")
        if trainer and (code := _end_of(trainer)):
            return code
        _start_device(spec, line)
        if phase.get("phase") == "train":
            line.close()  # the half that scores reports
        else:
            line.no_more()
        result = run(spec, trial_dir, born=born, **phase)
        if result is not None:
            line.result(result.model_dump_json())
    except AutoresearchError as error:
        line.error(TrialError.of(error).model_dump_json())
        return 1
    except SystemExit as stop:
        return _exit_code(stop)
    except BaseException as error:  # noqa: BLE001 (the edge of the process)
        traceback.print_exc()
        if isinstance(error, OSError) and error.errno in {errno.ENOSPC, errno.EDQUOT}:
            full = MachineryError(
                f"the disk under {trial_dir} is full; free some space and resume the campaign"
            )
            line.error(TrialError.of(full).model_dump_json())
        return 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
    return 0


def _reach(spec: TrialSpec, trial_dir: Path) -> Reach | None:
    """Furnish a command's directory and return what it may read; None for the built-in trainer."""
    if spec.command is None:
        return None
    reach = Reach.of(spec.command, trial_dir)
    furnish(reach, work_dir(trial_dir))
    has_own = shared_memory.mount_own(spec.limits.memory_gib)
    if has_own or spec.command.shared_memory:
        return replace(reach, shared_memory=shared_memory.SHARED_MEMORY)
    return reach


class _Check:
    """The half of a command's trial that scores what the other half, which trains, left behind.

    The half that trains is forked first. This half waits until nothing of the training runs any
    more, and only then creates the check's home and working directory. So the training could write
    nothing that the check runs or finds there: neither files nor a compile cache.
    """

    @classmethod
    def of(cls, spec: TrialSpec, reach: Reach | None, trial_dir: Path) -> _Check | None:
        """Fork the half that trains, if the trial's command has a check."""
        command = None if spec.command is None else spec.command.checking
        return cls(spec, command, reach, trial_dir) if command and reach else None

    def __init__(self, spec: TrialSpec, command: Command, reach: Reach, trial_dir: Path) -> None:
        """Fork the half that trains, in which :attr:`trainer` is 0."""
        self._spec = spec.model_copy(update={"command": command, "compile_cache": None})
        self._reach = replace(Reach.of(command, trial_dir), shared_memory=reach.shared_memory)
        self._trial_dir = trial_dir
        self._code = 0
        self.ear = DriverEar()
        """Hears the other half's report, which no process of the command can write."""
        become_subreaper()
        scorer = os.getpid()
        self.trainer = os.fork()
        if self.trainer == 0:
            die_with_parent(scorer)

    def confine(self, sandbox: Sandbox) -> None:
        """Wait for the end of the training, kill what it left running, and give up the rights that
        the check does not need.

        :raises MachineryError: if a process that it left cannot be killed.
        """
        self.ear.as_server()
        self._code = _end_of(self.trainer)
        if survivors := Reaper().sweep():
            raise MachineryError(
                f"processes {list(survivors)} of the training cannot be killed; check for a stuck "
                "device or file system before running more"
            )
        sandbox.confine(self._spec, self._trial_dir, self._reach)

    def report(self, run: TrialFunction, line: DriverLine, born: float) -> int:
        """Score what the training left, report the result or its failure, and return the exit
        code."""
        said = next((one for one in self.ear.hear() or () if isinstance(one, Said)), None)
        if said is None:
            return self._code or 1
        if said.is_error:
            line.error(said.text)
            return 1
        result = parse_result(said.text)
        if isinstance(result, CommandOk):
            result = self._scored(result, run, born)
        line.result(result.model_dump_json())
        return 0

    def _scored(
        self, trained: CommandOk, run: TrialFunction, born: float
    ) -> Measured | TrialFailed:
        home = Path(tempfile.mkdtemp(dir=self._trial_dir / SCRATCH_DIR))
        move_home(home)
        furnish(self._reach, home / WORK_DIR)
        checked = run(self._spec, self._trial_dir, born=born, work=str(home / WORK_DIR))
        if isinstance(checked, CommandOk):
            return trained.model_copy(update={"score": checked.score})
        assert isinstance(checked, TrialFailed), "a command has a score or fails"
        message = f"[score.check] {checked.message}"[:MAX_MESSAGE_CHARACTERS]
        found = {"steps": trained.steps, "peak_mem_gib": trained.peak_mem_gib}
        return checked.model_copy(update={"message": message, **found})


def _fork_trainer(line: DriverLine) -> tuple[int, DriverLine]:
    """Fork the half that trains; return its process id, or 0 in it, and the line of this half."""
    scorer, copy = os.getpid(), line.copy()
    trainer = os.fork()
    if trainer == 0:
        die_with_parent(scorer)
        return 0, copy
    copy.close()
    return trainer, line


def _end_of(trainer: int) -> int:
    """Wait for the half that trains and return its exit code; die by the signal that killed it."""
    _, status = os.waitpid(trainer, 0)
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        signal.signal(number, signal.SIG_DFL) if number != signal.SIGKILL else None
        os.kill(os.getpid(), number)
    return os.waitstatus_to_exitcode(status)


def _start_device(spec: TrialSpec, line: DriverLine) -> None:
    """Start a GPU's driver before anything of the config is read.

    A command starts it itself: a fork of a process with a running driver could not use it.

    :raises MachineryError: if it does not start.
    """
    if spec.device.startswith("cuda") and spec.command is None:
        line.starting()
        started = cuda_driver.start(spec.device)
        line.up(is_unified=started.is_unified)


def _load(load: Callable[[], TrialFunction]) -> TrialFunction:
    try:
        return load()
    except Exception as error:  # a failing import is never the config's fault
        raise MachineryError(
            f"the trainer cannot be imported ({type(error).__name__}: {error});"
            " run `autoresearch doctor`"
        ) from error


def _exit_code(stop: SystemExit) -> int:
    if stop.code is None:
        return 0
    if isinstance(stop.code, int):
        return stop.code & 0xFF
    print(stop.code, file=sys.stderr)  # noqa: T201 (what the interpreter does with such a code)
    return 1


def _redirect(log: Path) -> None:
    """Redirect input from nothing, and output line by line to the log."""
    nothing = os.open(os.devnull, os.O_RDONLY)
    out = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW)
    os.dup2(nothing, 0)
    os.dup2(out, 1)
    os.dup2(out, 2)
    os.close(nothing)
    os.close(out)
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    faulthandler.enable()


def _prefer_for_oom_killer() -> None:
    """Let the kernel's out-of-memory killer prefer the trial over the campaign."""
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("500")
