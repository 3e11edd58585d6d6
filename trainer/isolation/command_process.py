"""Start a command in a process that is confined before it begins, in its own world if there is one.

The trial's process is the command's reader: it forks the command's process, confines itself, and
reads what the command prints. In a world of its own (:mod:`trainer.isolation.kernel.world`) the
forked process is the first of its PID namespace. It forks the command, collects whatever processes
end below it, and ends with the command; the kernel then kills what is left. Elsewhere the forked
process itself becomes the command, since Landlock's rules for /proc/self hold for one process.

The reader learns how it went from the exit code, and from a pipe that no command has: what kept it
from starting, or, from the first process of a world, how the command ended.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time
import traceback
from collections.abc import Callable
from dataclasses import replace
from typing import NoReturn

from autoresearch.errors import AutoresearchError, MachineryError, SandboxError
from trainer.command.starting import STARTUP, Call, carry_out
from trainer.isolation.kernel import world
from trainer.isolation.kernel.libc import check, libc
from trainer.schema import MAX_MESSAGE_CHARACTERS

_GRACE_S = 1.0
_MOST_BYTES = 1 << 14
_ENDED = "ended"
_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE = 1, 4


class CommandProcess:
    """A command that runs, as its reader sees it."""

    def __init__(
        self, call: Call, output: int, *, has_world: bool, confine: Callable[[], None]
    ) -> None:
        """Start it; both of its outputs go to the descriptor ``output``.

        :param confine: confines the process that becomes the command, in its world.
        :raises SandboxError: if the kernel refuses.
        """
        self._code: int | None = None
        self.peak_bytes = 0
        self._reports, report = os.pipe()
        if has_world:
            try:
                world.separate_children()
            except OSError as error:
                raise SandboxError(
                    f"no process of its own namespaces can be started ({error}); run"
                    " `autoresearch doctor`"
                ) from error
            # A short path: one of a socket holds 107 bytes.
            call = replace(call, env={**call.env, "TMPDIR": str(world.TEMPORARY)})
        else:
            path = os.pathsep.join(filter(None, (STARTUP, call.env.get("PYTHONPATH"))))
            call = replace(call, env={**call.env, "PYTHONPATH": path})
        self._pid = os.fork()
        if self._pid == 0:
            os.close(self._reports)
            _begin(call, output, report, has_world=has_world, confine=confine)
        os.close(report)

    def ended(self) -> int | None:
        """See :meth:`trainer.command.starting.Started.ended`."""
        if self._code is None:
            pid, status, usage = os.wait4(self._pid, os.WNOHANG)
            if pid:
                self._code = os.waitstatus_to_exitcode(status)
                self.peak_bytes = usage.ru_maxrss * 1024
                self._read_report()
        return self._code

    def end(self) -> None:
        """See :meth:`trainer.command.starting.Started.end`."""
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

    def _read_report(self) -> None:
        """Read what the process reported before it ended.

        :raises AutoresearchError: if it could not start the command.
        """
        said = os.read(self._reports, _MOST_BYTES).decode(errors="replace")
        os.close(self._reports)
        kind, _, rest = said.partition("\n")[0].partition(" ")
        if kind == _ENDED:
            code, _, peak_kib = rest.partition(" ")
            self._code, self.peak_bytes = int(code), int(peak_kib) * 1024
        elif kind == SandboxError.__name__:
            raise SandboxError(rest)
        elif kind:
            raise MachineryError(rest)


def _begin(
    call: Call, output: int, report: int, *, has_world: bool, confine: Callable[[], None]
) -> NoReturn:
    """Become the command, or the first process of its world."""
    try:
        _end_with_reader(report)
        confine()
        if has_world:
            # Else the command could write to the pipe: through /proc, or as this process's tracer.
            check(libc().prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0), "PR_SET_DUMPABLE")
            command = os.fork()
            if command:
                _serve_world(command, report)
            check(libc().prctl(_PR_SET_DUMPABLE, 1, 0, 0, 0), "PR_SET_DUMPABLE")
        if call.function is not None:
            os.close(report)  # a program that it becomes does not inherit it
        carry_out(call, output)
    except AutoresearchError as error:
        _report(report, error)
    except BaseException as error:  # noqa: BLE001 (the edge of the process)
        traceback.print_exc()
        _report(report, MachineryError(f"the command could not be started ({error}); run it again"))
    finally:
        os._exit(1)


def _report(report: int, error: AutoresearchError) -> None:
    line = " ".join(f"{type(error).__name__} {error}".split())
    with contextlib.suppress(OSError):
        os.write(report, f"{line[:MAX_MESSAGE_CHARACTERS]}\n".encode())


def _serve_world(command: int, report: int) -> NoReturn:
    """Be the first process of a world until the command ends, and report how."""

    def pass_on(number: int, frame: object) -> None:
        with contextlib.suppress(ProcessLookupError):  # it has just ended
            os.kill(command, number)

    signal.signal(signal.SIGTERM, pass_on)
    while True:
        pid, status, usage = os.wait4(-1, 0)
        if pid == command:
            code = os.waitstatus_to_exitcode(status)
            os.write(report, f"{_ENDED} {code} {usage.ru_maxrss}\n".encode())
            os._exit(0)


def _end_with_reader(report: int) -> None:
    """Have the kernel end this process when its parent ends, which may be outside its namespace."""
    check(libc().prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0), "PR_SET_PDEATHSIG")
    polled = select.poll()
    polled.register(report, 0)
    if polled.poll(0):  # nobody can read it any more
        os._exit(1)
