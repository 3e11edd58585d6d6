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
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from autoresearch.errors import AutoresearchError, MachineryError
from autoresearch.layout import LOG_FILE, SCRATCH_DIR, SPEC_FILE
from trainer.command.workspace import Reach, furnish, work_dir
from trainer.isolation.driver_line import DriverLine
from trainer.isolation.halves import Trial, TrialFunction, run_trial
from trainer.isolation.kernel import cgroup, shared_memory
from trainer.isolation.kernel.sandbox import Sandbox, move_home
from trainer.isolation.messages import Start
from trainer.isolation.process_tree import die_with_parent
from trainer.isolation.trial_files import TrialError
from trainer.spec import TrialSpec


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
        return run_trial(Trial(spec, trial_dir, reach, run, line, born, sandbox))
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


def _reach(spec: TrialSpec, trial_dir: Path) -> Reach | None:
    """Furnish a command's directory and return what it may read; None for the built-in trainer."""
    if spec.command is None:
        return None
    reach = Reach.of(spec.command, trial_dir)
    furnish(reach, work_dir(trial_dir, spec.command))
    has_own = shared_memory.mount_own(spec.limits.memory_gib)
    if has_own or spec.command.shared_memory:
        return replace(reach, shared_memory=shared_memory.SHARED_MEMORY)
    return reach


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
