"""A command's process: a new program, or a function of a script called in a fork of this one.

A new Python that imports torch takes a second or two. Where the script has a function to call and
the fork server has loaded what the script imports, a fork of this process is as fresh and costs
milliseconds. Either is confined already when it begins.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Mapping, Sequence
from itertools import takewhile
from pathlib import Path
from types import ModuleType
from typing import Protocol

from autoresearch.errors import MachineryError
from trainer.machine.environment import become

_GRACE_S = 1.0
_OURS = ("agent", "autoresearch", "funnel", "trainer", "trajectory")
"""Packages that this process has loaded, and that a script may have modules called like."""


class Started(Protocol):
    """A command at work."""

    def ended(self) -> int | None:
        """Its exit code, that of a signal below zero; None while it runs."""
        ...

    def end(self) -> None:
        """Have it ended: asked first, made to after a second."""
        ...


def start_program(
    argv: Sequence[str], env: Mapping[str, str], work: Path, output: int
) -> subprocess.Popen[bytes]:
    """
    :param output: a descriptor that takes all that it prints.
    :raises MachineryError: where there is no such program, which is no config's fault.
    """
    try:
        return subprocess.Popen(
            list(argv), env=dict(env), cwd=work, stdin=subprocess.DEVNULL, stdout=output,
            stderr=output,
        )  # fmt: skip
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise MachineryError(
            f"the command {argv[0]} cannot be started ({why}); a program outside the system, this "
            "Python and the script's directory must be named under [trainer] reads"
        ) from error


class Program(Started):
    """A new program."""

    def __init__(
        self, argv: Sequence[str], env: Mapping[str, str], work: Path, output: int
    ) -> None:
        self._process = start_program(argv, env, work, output)

    def ended(self) -> int | None:
        """See :meth:`Started.ended`."""
        return self._process.poll()

    def end(self) -> None:
        """See :meth:`Started.end`."""
        self._process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_GRACE_S)
        self._process.kill()
        self._process.wait()


class _OurModules:
    """This product's own modules, for a script's process to be without.

    A process that was forked copies each page that it writes, and to look at a name counts a
    reference to it. So the fork server looks through the thousands of modules that torch has, once,
    and the script's process at those that came later; and what it hides it keeps, for to take a
    module apart writes to all of it.
    """

    def __init__(self) -> None:
        self._names: list[str] = []
        self._last = ""
        """The module that was loaded last when this looked."""
        self._hidden: list[ModuleType] = []

    def find(self) -> None:
        """Look through what was loaded since."""
        since = list(takewhile(lambda name: name != self._last, reversed(sys.modules)))
        self._names += [name for name in since if name.split(".", 1)[0] in _OURS]
        self._last = since[0] if since else self._last

    def hide(self) -> None:
        """Have the next import of each find another of its name, or none."""
        self.find()
        self._hidden = [sys.modules.pop(name) for name in self._names if name in sys.modules]


_our_modules = _OurModules()


def find_our_modules() -> None:
    """What the fork server does ahead of scripts whose function is called."""
    _our_modules.find()


class Forked(Started):
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
        """
        :param argv: what the function finds in ``sys.argv``, the script first.
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
                _flushed()
                os._exit(code)

    def ended(self) -> int | None:
        """See :meth:`Started.ended`."""
        if self._code is None:
            pid, status = os.waitpid(self._pid, os.WNOHANG)
            if pid:
                self._code = os.waitstatus_to_exitcode(status)
        return self._code

    def end(self) -> None:
        """See :meth:`Started.end`."""
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
    """Import the script as a module and call its function; the exit code."""
    from trainer.command.startup import sitecustomize  # noqa: F401, PLC0415 (for it alone)

    _our_modules.hide()
    sys.path.insert(0, str(script.parent))
    _set_threads(threads)
    found = importlib.util.spec_from_file_location(script.stem, script)
    if found is None or found.loader is None:
        print(f"{script} is no module of Python", file=sys.stderr)  # noqa: T201 (its log)
        return 1
    module = importlib.util.module_from_spec(found)
    sys.modules[script.stem] = module
    try:
        found.loader.exec_module(module)
        getattr(module, function)()
    except SystemExit as stop:
        if stop.code is None or isinstance(stop.code, int):
            return (stop.code or 0) & 0xFF
        print(stop.code, file=sys.stderr)  # noqa: T201 (what the interpreter does with such a code)
        return 1
    return 0


def _set_threads(threads: str) -> None:
    """OpenMP was loaded by the fork server, and reads its variable no more."""
    torch = sys.modules.get("torch")
    if torch is not None and threads.isdecimal():
        torch.set_num_threads(int(threads))


def _flushed() -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
