"""Run a trial in its own process, from the fork to its result.

Order matters. The process ties its life to the server's, opens a log, enters its cgroup if there is
one, and reads the spec and the code to run. It closes the sandbox before any of that code does
something a config decides.

Where a config has code, the trial runs in two halves: one trains, the other scores what it left.
The half that trains is forked first, and nothing of the training reaches the half that scores but
the files that it left. So code of a config cannot change how it is scored.
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
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TypeAlias

from autoresearch.errors import AutoresearchError, MachineryError
from autoresearch.layout import LOG_FILE, SCRATCH_DIR, SPEC_FILE
from trainer.command.starting import Call, Started, exit_code
from trainer.command.workspace import Reach, furnish, work_below, work_dir
from trainer.isolation.command_process import CommandProcess
from trainer.isolation.kernel import cgroup, world
from trainer.isolation.kernel.sandbox import Sandbox, move_home
from trainer.isolation.messages import Driver, DriverEar, DriverLine, Said, StartTrial
from trainer.isolation.outcome import TrialError
from trainer.isolation.process_tree import become_subreaper, die_with_parent, sweep
from trainer.machine import cuda_driver
from trainer.schema import (
    MAX_MESSAGE_CHARACTERS,
    Command,
    CommandOk,
    Measured,
    TrialFailed,
    TrialSpec,
    parse_result,
)


def live(
    start: StartTrial,
    line: DriverLine,
    *,
    server: int,
    run: TrialFunction,
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
        with contextlib.suppress(OSError):  # prefer the trial over the campaign if memory runs out
            Path("/proc/self/oom_score_adj").write_text("500")
        spec = TrialSpec.model_validate_json((trial_dir / SPEC_FILE).read_bytes())
        scratch = trial_dir / SCRATCH_DIR
        scratch.mkdir()
        move_home(scratch, spec.code_cache)
        os.chdir(trial_dir)
        reach = _reach(spec, trial_dir, has_world=sandbox.layers.world)
        return run_trial(Trial(spec, trial_dir, reach, run, line, born, sandbox))
    except AutoresearchError as error:
        line.send(_refusal(error))
        return 1
    except SystemExit as stop:
        return exit_code(stop)
    except BaseException as error:  # noqa: BLE001 (the edge of the process)
        traceback.print_exc()
        if isinstance(error, OSError) and error.errno in {errno.ENOSPC, errno.EDQUOT}:
            full = MachineryError(
                f"the disk under {trial_dir} is full; free some space and resume the campaign"
            )
            line.send(_refusal(full))
        return 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()


def _refusal(error: AutoresearchError) -> Said:
    return Said(text=TrialError.of(error).model_dump_json(), is_error=True)


def _reach(spec: TrialSpec, trial_dir: Path, *, has_world: bool) -> Reach | None:
    """Furnish a command's directory and return what it may read; None for the built-in trainer."""
    if spec.command is None:
        return None
    reach = Reach.of(spec.command, trial_dir)
    furnish(reach, work_dir(trial_dir, spec.command))
    if spec.command.shared_memory and not has_world:
        return replace(reach, shared_memory=world.SHARED_MEMORY)
    return reach


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


TrialFunction: TypeAlias = Callable[..., Measured | TrialFailed | None]
"""The function that a trial runs, as :func:`trainer.training.child.run_trial`. It writes
curve.jsonl and returns the result for the line."""


@dataclass(frozen=True)
class Trial:
    """A trial in its own process, not confined yet."""

    spec: TrialSpec
    trial_dir: Path
    reach: Reach | None
    """The files that a command may read; None for the built-in trainer."""
    run: TrialFunction
    line: DriverLine
    """Reports how the GPU's driver starts, and the result or the error."""
    born: float
    """The monotonic time at which the process began."""
    sandbox: Sandbox

    def confine(self, *, heldout: bool = True) -> None:
        """Give up the rights that the trial does not need."""
        self.sandbox.confine(self.spec, self.trial_dir, self.reach, heldout=heldout)

    def start_device(self) -> None:
        """Start a GPU's driver before anything of the config is read.

        :raises MachineryError: if it does not start.
        """
        if self.spec.device.startswith("cuda"):
            self.line.send(Driver(phase="starting"))
            is_unified = cuda_driver.start(self.spec.device)
            self.line.send(Driver(phase="up", is_unified=is_unified))

    def measure(self, **how: str) -> int:
        """Run the built-in trainer, report its result, and return the exit code."""
        self.start_device()
        self.line.send(Driver(phase="settled"))
        return self.report(self.run(self.spec, self.trial_dir, born=self.born, **how))

    def run_command(self, work: str | None = None) -> Measured | TrialFailed | None:
        """Run the command, which starts a GPU's driver itself: no fork can use one that runs.

        :param work: see :func:`trainer.command.child.run_command`.
        """
        self.line.send(Driver(phase="settled"))
        start = self.start_command
        return self.run(self.spec, self.trial_dir, born=self.born, start=start, work=work)

    def start_command(self, call: Call, output: int) -> Started:
        """Start the command in a confined process, and confine this one, which reads it."""
        confine = partial(self.sandbox.confine, self.spec, self.trial_dir, self.reach)
        has_world = self.sandbox.layers.world
        as_command = partial(confine, role="command")
        started = CommandProcess(call, output, has_world=has_world, confine=as_command)
        confine(role="reader")
        return started

    def report(self, result: Measured | TrialFailed | None) -> int:
        """Report the result, if there is one, and return the exit code."""
        if result is not None:
            self.line.send(Said(text=result.model_dump_json()))
        return 0


def run_trial(trial: Trial) -> int:
    """Run the trial in this process, and its training in another where the trial is scored apart.

    :return: the exit code.
    """
    command = trial.spec.command
    if command is not None and command.checking is not None:
        return _train_and_check(trial, command.checking)
    if command is not None:
        return trial.report(trial.run_command())
    if not trial.spec.scored_apart:
        trial.confine()
        return trial.measure()
    # Train the GPT without access to the held-out text, and score it in this process.
    trainer = _fork_trainer(trial.line)
    trial.confine(heldout=bool(trainer))
    if not trainer:
        trial.start_device()
        trial.line.close()  # the half that scores reports
        trial.run(trial.spec, trial.trial_dir, born=trial.born, phase="train")
        return 0
    return _end_of(trainer) or trial.measure(phase="score")


def _train_and_check(trial: Trial, command: Command) -> int:
    """Run the command that trains, and score what it left with its check in this process.

    The check's home and working directory are created only when nothing of the training runs any
    more. So the training could write nothing that the check runs or finds there: neither files nor
    a compile cache.

    :raises MachineryError: if a process that the training left cannot be killed.
    """
    assert trial.reach is not None, "a command has files that it may read"
    spec = trial.spec.model_copy(update={"command": command, "compile_cache": None})
    reach = replace(Reach.of(command, trial.trial_dir), shared_memory=trial.reach.shared_memory)
    ear = DriverEar()  # no process of the command can write to it
    become_subreaper()
    trainer = _fork_trainer(trial.line, ear)
    if not trainer:
        return trial.report(trial.run_command())
    code = _end_of(trainer)
    if survivors := sweep():
        raise MachineryError(
            f"processes {list(survivors)} of the training cannot be killed; check for a stuck "
            "device or file system before running more"
        )
    check = replace(trial, spec=spec, reach=reach)
    said = next((one for one in ear.hear() or () if isinstance(one, Said)), None)
    if said is None:
        return code or 1
    if said.is_error:
        trial.line.send(said)
        return 1
    result = parse_result(said.text)
    if isinstance(result, CommandOk):
        result = _checked(check, result)
    trial.line.send(Said(text=result.model_dump_json()))
    return 0


def _checked(check: Trial, trained: CommandOk) -> Measured | TrialFailed:
    """Return the training's result with the score of its check, or the check's failure."""
    assert check.reach is not None, "a command has files that it may read"
    assert check.spec.command is not None
    scratch = check.trial_dir / SCRATCH_DIR
    if scratch.is_symlink():
        raise NotADirectoryError(errno.ENOTDIR, "the training replaced it by a link", str(scratch))
    home = Path(tempfile.mkdtemp(dir=scratch))
    move_home(home)
    work = work_below(home, check.spec.command)
    furnish(check.reach, work)
    checked = check.run_command(str(work))
    if isinstance(checked, CommandOk):
        return trained.model_copy(update={"score": checked.score})
    assert isinstance(checked, TrialFailed), "a command has a score or fails"
    message = f"[score.check] {checked.message}"[:MAX_MESSAGE_CHARACTERS]
    found = {"steps": trained.steps, "peak_mem_gib": trained.peak_mem_gib}
    return checked.model_copy(update={"message": message, **found})


def _fork_trainer(line: DriverLine, ear: DriverEar | None = None) -> int:
    """Fork the half that trains, which reports to ``ear`` if any; return its process id, or 0 in
    it."""
    scorer = os.getpid()
    trainer = line.fork(ear)
    if not trainer:
        die_with_parent(scorer)
    return trainer


def _end_of(trainer: int) -> int:
    """Wait for the half that trains and return its exit code; die by the signal that killed it."""
    _, status = os.waitpid(trainer, 0)
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        signal.signal(number, signal.SIG_DFL) if number != signal.SIGKILL else None
        os.kill(os.getpid(), number)
    return os.waitstatus_to_exitcode(status)
