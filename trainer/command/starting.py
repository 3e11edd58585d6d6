"""Start a command's process: a new program, or a script in a fork of this process.

A new Python that imports torch takes a second or two. If the script has a function to call and the
fork server has loaded its imports, a fork of this process is as fresh and costs milliseconds. Both
are confined already when they begin.
"""

import atexit
import contextlib
import importlib.util
import os
import runpy
import signal
import subprocess
import sys
import threading
import time
import traceback
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType

from autoresearch.errors import MachineryError
from trainer.machine.environment import become

_GRACE_S = 1.0
_OURS = ("agent", "autoresearch", "funnel", "trainer", "trajectory")
"""Packages loaded in this process whose names a script's modules may share."""


class Program:
    """A new program."""

    def __init__(
        self, argv: Sequence[str], env: Mapping[str, str], work: Path, output: int
    ) -> None:
        """Start the program.

        :param output: a descriptor that takes all output.
        :raises MachineryError: if there is no such program, which is not a config's fault.
        """
        try:
            self._process = subprocess.Popen(
                list(argv), env=dict(env), cwd=work, stdin=subprocess.DEVNULL, stdout=output,
                stderr=output,
            )  # fmt: skip
        except (OSError, ValueError) as error:
            why = error.strerror if isinstance(error, OSError) else error
            raise MachineryError(
                f"the command {argv[0]} cannot be started ({why}); a program outside the system, "
                "this Python and the script's directory must be named under [trainer] reads"
            ) from error

    def ended(self) -> int | None:
        """Return the exit code, negative for a signal; None while it runs."""
        return self._process.poll()

    def end(self) -> None:
        """End it: ask first, kill after a second."""
        self._process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_GRACE_S)
        self._process.kill()
        self._process.wait()


_hidden: list[object] = []
"""Keeps hidden modules and finalizers alive: destroying them would write to all their memory."""


class Forked:
    """A function of a script, in a fork of this process."""

    def __init__(
        self,
        script: Path,
        function: str,
        argv: Sequence[str],
        env: Mapping[str, str],
        work: Path,
        output: int,
    ) -> None:
        """Fork and call the function.

        :param argv: contents of ``sys.argv``, the script first.
        """
        sys.stdout.flush()
        sys.stderr.flush()
        self._code: int | None = None
        self._pid = os.fork()
        if self._pid == 0:
            code = 1
            try:
                os.dup2(output, 1)
                os.dup2(output, 2)
                os.chdir(work)
                become(env)
                sys.argv = list(argv)
                code = _called(script, function, env.get("OMP_NUM_THREADS", ""))
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

    def ended(self) -> int | None:
        """Return the exit code, negative for a signal; None while it runs."""
        if self._code is None:
            pid, status = os.waitpid(self._pid, os.WNOHANG)
            if pid:
                self._code = os.waitstatus_to_exitcode(status)
        return self._code

    def end(self) -> None:
        """End it: ask first, kill after a second."""
        give_up_at = time.monotonic() + _GRACE_S
        self._signal(signal.SIGTERM)
        while self.ended() is None and time.monotonic() < give_up_at:
            time.sleep(0.01)
        self._signal(signal.SIGKILL)
        while self.ended() is None:
            time.sleep(0.001)

    def _signal(self, number: signal.Signals) -> None:
        if self.ended() is None:
            os.kill(self._pid, number)


def _called(script: Path, function: str, threads: str) -> int:
    """Import the script as a module, call its function, and return the exit code.

    The name ``__main__`` stands for the whole script, run as Python runs a program.
    """
    from trainer.command.startup import sitecustomize  # noqa: F401, PLC0415 (for it alone)

    # The server's finalizers are not this process's to run: torch's alone write 35 MB.
    _hidden.append(weakref.finalize._registry)  # type: ignore[attr-defined]
    weakref.finalize._registry = {}  # type: ignore[attr-defined]
    # An import of a name of this product's own must find another module, or none.
    ours = [name for name in sys.modules if name.split(".", 1)[0] in _OURS]
    _hidden.extend(sys.modules.pop(name) for name in ours)
    sys.path.insert(0, str(script.parent))
    # The fork server loaded OpenMP, which no longer reads its variable.
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
