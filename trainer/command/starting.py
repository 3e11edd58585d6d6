"""Turn a process into a command: it becomes a new program, or calls a function of a script.

A new Python that imports torch takes a second or two. If the script has a function to call and the
fork server has loaded its imports, a fork is as fresh and costs milliseconds. The process is
confined already when it begins (:mod:`trainer.isolation.command_process`).
"""

import atexit
import contextlib
import importlib.util
import os
import runpy
import signal
import sys
import tempfile
import threading
import traceback
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import NoReturn, Protocol

from autoresearch.errors import MachineryError
from trainer.machine.environment import become

STARTUP = str(Path(__file__).with_name("startup"))
"""First on a command's PYTHONPATH where its processes cannot open sockets for each other."""
_OURS = ("agent", "autoresearch", "funnel", "trainer", "trajectory")
"""Packages loaded in this process whose names a script's modules may share."""


@dataclass(frozen=True, slots=True)
class Call:
    """A command with everything filled in."""

    argv: Sequence[str]
    env: Mapping[str, str]
    work: Path
    function: str | None = None
    """Function of the script ``argv[1]`` to call in this process; None: become ``argv[0]``."""
    script: Path | None = None
    """File of the script, if it has a function to call."""


class Started(Protocol):
    """A command that has been started."""

    peak_bytes: int
    """Peak resident memory of the largest of its processes; 0 while it runs."""

    def ended(self) -> int | None:
        """Return the exit code, negative for a signal; None while it runs.

        :raises AutoresearchError: if it could not be started.
        """

    def end(self) -> None:
        """End it: ask first, kill after a second."""


def carry_out(call: Call, output: int) -> NoReturn:
    """Become the command; both outputs go to the descriptor ``output``.

    :raises MachineryError: if there is no such program, which is not a config's fault.
    """
    for stream in (1, 2):
        os.dup2(output, stream)
    os.chdir(call.work)
    if call.function is not None and call.script is not None:
        _call_and_exit(call, call.script, call.function)
    for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores them
        signal.signal(number, signal.SIG_DFL)
    try:
        os.execve(call.argv[0], list(call.argv), dict(call.env))
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise MachineryError(
            f"the command {call.argv[0]} cannot be started ({why}); a program outside the system, "
            "this Python and the script's directory must be named under [trainer] reads"
        ) from error


def _call_and_exit(call: Call, script: Path, function: str) -> NoReturn:
    code = 1
    try:
        become(call.env)
        tempfile.tempdir = None  # ask the variable again
        sys.argv = list(call.argv[1:])
        code = _called(script, function, call.env)
    except BaseException:  # noqa: BLE001 (the edge of a process)
        traceback.print_exc()
    finally:
        # As at the end of a program: wait for threads, call exit handlers and flush.
        for step in (
            threading._shutdown,  # type: ignore[attr-defined]  # as multiprocessing does
            atexit._run_exitfuncs,
            sys.stdout.flush,
            sys.stderr.flush,
        ):
            with contextlib.suppress(Exception):
                step()
        os._exit(code)


_hidden: list[object] = []
"""Keeps hidden modules and finalizers alive: destroying them would write to all their memory."""


def _called(script: Path, function: str, env: Mapping[str, str]) -> int:
    """Import the script as a module, call its function, and return the exit code.

    The name ``__main__`` stands for the whole script, run as Python runs a program.
    """
    if STARTUP in env.get("PYTHONPATH", "").split(os.pathsep):
        from trainer.command.startup import sitecustomize  # noqa: F401, PLC0415 (for it alone)

    # The server's finalizers are not this process's to run: torch's alone write 35 MB.
    _hidden.append(weakref.finalize._registry)  # type: ignore[attr-defined]
    weakref.finalize._registry = {}  # type: ignore[attr-defined]
    # An import of a name of this product's own must find another module, or none.
    ours = [name for name in sys.modules if name.split(".", 1)[0] in _OURS]
    _hidden.extend(sys.modules.pop(name) for name in ours)
    sys.path.insert(0, str(script.parent))
    # The fork server loaded OpenMP, which no longer reads its variable.
    threads = env.get("OMP_NUM_THREADS", "")
    torch = sys.modules.get("torch")
    if torch is not None and threads.isdecimal():
        torch.set_num_threads(int(threads))
    try:
        if function == "__main__":
            runpy.run_path(str(script), run_name=function)
        else:
            getattr(_imported(script), function)()
    except SystemExit as stop:
        return exit_code(stop)
    return 0


def exit_code(stop: SystemExit) -> int:
    """Return the code with which the interpreter would exit, and print what it would print."""
    if stop.code is None or isinstance(stop.code, int):
        return (stop.code or 0) & 0xFF
    print(stop.code, file=sys.stderr)  # noqa: T201 (what the interpreter does with such a code)
    return 1


def _imported(script: Path) -> ModuleType:
    found = importlib.util.spec_from_file_location(script.stem, script)
    if found is None or found.loader is None:
        raise SystemExit(f"{script} is not a module of Python")
    module = importlib.util.module_from_spec(found)
    sys.modules[script.stem] = module
    found.loader.exec_module(module)
    return module
