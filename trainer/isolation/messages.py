"""Messages between the processes of a trial's supervision, and the two connections they go through.

Supervisor and fork server exchange JSON lines over a socket, a :class:`Channel`.

A trial's process reports to the fork server by a :class:`DriverLine`: the state of its GPU driver,
and its result. A crash while the driver starts is not evidence about a config, but looks from
outside like a crash that a config caused. So the trial's process reports that it starts the driver
and that the driver runs. Before it reads the config it declares the driver's reports complete:
nothing that a config decides can report about the driver after that.

Then it reports the result, or the error that prevented one. A command cannot: the processes that a
trial starts do not inherit the line, and since it is a socket, nobody can open it through /proc.
"""

from __future__ import annotations

import contextlib
import os
import socket
from typing import Annotated, Literal, TypeAlias

from pydantic import Field, TypeAdapter, ValidationError

from autoresearch.values import Frozen, NonNegative


class ServerSettings(Frozen):
    """The fork server's only command line argument."""

    control_fd: int
    parent: int
    """The supervisor's process id."""
    entry: str
    """``module:function`` that a trial runs."""
    landlock_abi: int
    seccomp: bool
    world: bool
    root: str = "/"
    """Root of the GPU driver's files."""
    cores: tuple[int, ...] = ()
    """Processors of the server and its trials; none: all."""


class Ready(Frozen):
    """The server has imported what trials need."""

    kind: Literal["ready"] = "ready"


class StartTrial(Frozen):
    """Fork a trial. Its spec.json is in ``trial_dir``."""

    kind: Literal["start"] = "start"
    trial_dir: str
    imports: tuple[str, ...] = ()
    """Modules that this trial and similar ones import, and each ``module:function`` that they call;
    the server does both once, before the fork."""
    group: str | None = None
    """Directory of the cgroup that the trial should enter, if any."""


class TrialStarted(Frozen):
    """The trial's process exists."""

    kind: Literal["started"] = "started"
    pid: int


class Driver(Frozen):
    """State of the GPU driver in the trial's process, as it reports."""

    kind: Literal["driver"] = "driver"
    phase: Literal["starting", "up", "settled"]
    """``settled``: the trial's process reports nothing more about the driver."""
    is_unified: bool = False
    """Whether the device shares the machine's memory; known once it is up."""


class Said(Frozen):
    """The trial's process reported its result before it ended."""

    kind: Literal["said"] = "said"
    text: str
    """A TrialResult or a TrialError, as JSON, not validated."""
    is_error: bool = False
    """True for a TrialError: nothing was measured, and the config is not to blame."""


class Stop(Frozen):
    """Ask the running trial to end; kill it after ``grace_s`` seconds."""

    kind: Literal["stop"] = "stop"
    grace_s: NonNegative


class Ended(Frozen):
    """The trial's process has ended, and so has everything it left behind."""

    kind: Literal["ended"] = "ended"
    exit_code: int | None = None
    signal: int | None = None
    """The signal that killed it; then there is no exit code."""
    peak_bytes: int = 0
    """Peak resident memory of the trial's own process."""
    survivors: tuple[int, ...] = ()
    """Processes that even SIGKILL did not end in time; empty unless the kernel has a fault."""


Message: TypeAlias = Annotated[
    Ready | StartTrial | TrialStarted | Driver | Said | Stop | Ended,
    Field(discriminator="kind"),
]

_MESSAGE: TypeAdapter[Message] = TypeAdapter(Message)


class Channel:
    """One end of the connection, which owns its socket."""

    def __init__(self, end: socket.socket) -> None:
        self._socket = end
        self._unread = b""

    def fileno(self) -> int:
        return self._socket.fileno()

    def send(self, message: Message) -> None:
        """Send a message.

        :raises OSError: if the other end is gone.
        """
        self._socket.sendall(message.model_dump_json().encode() + b"\n")

    def receive(self) -> list[Message]:
        """Wait for bytes, and return the messages now complete.

        :raises EOFError: if the other end is gone.
        """
        try:
            chunk = self._socket.recv(1 << 16)
        except ConnectionResetError:
            chunk = b""
        if not chunk:
            raise EOFError
        *lines, self._unread = (self._unread + chunk).split(b"\n")
        return [_MESSAGE.validate_json(line) for line in lines]

    def close(self) -> None:
        self._socket.close()


class ServerDied(Exception):
    """The server ended unexpectedly."""


Report: TypeAlias = Annotated[Driver | Said, Field(discriminator="kind")]
_REPORT: TypeAdapter[Report] = TypeAdapter(Report)
_MOST_BYTES = 1 << 18
"""More than the kernel takes as one packet by default."""


class DriverLine:
    """The trial's end of the line, on which each report is a packet."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def fork(self, ear: DriverEar | None = None) -> int:
        """Fork a process whose line leads to the server, as this one, or to ``ear``.

        :return: its process id; 0 in it.
        """
        end = os.dup(self._fd) if ear is None else ear.their_fd
        pid = os.fork()
        if pid:
            os.close(end)
            return pid
        self._fd = end  # the fork has closed the one before
        if ear is not None:
            ear.close()
        return 0

    def send(self, report: Report) -> None:
        """Send a report, unless the server is gone, so that this process will end soon."""
        with contextlib.suppress(OSError):
            os.write(self._fd, report.model_dump_json().encode())

    def close(self) -> None:
        """Close the line, as every process forked from this one does."""
        with contextlib.suppress(OSError):
            os.close(self._fd)
        self._fd = -1  # the number may be another file's soon


class DriverEar:
    """The fork server's end of a new line."""

    def __init__(self) -> None:
        here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._fd, self.their_fd = here.detach(), there.detach()
        os.set_blocking(self._fd, False)
        self._driver_may_speak = True
        self._has_reported = False

    def fileno(self) -> int:
        return self._fd

    def as_trial(self) -> DriverLine:
        """Close the server's end in the trial's process and return the trial's end, which is not
        inherited by processes that the trial forks."""
        os.close(self._fd)
        line = DriverLine(self.their_fd)
        os.register_at_fork(after_in_child=line.close)
        return line

    def as_server(self) -> None:
        """Close the trial's end in the fork server."""
        os.close(self.their_fd)

    def hear(self) -> list[Driver | Said] | None:
        """Return the reports since the last call; None once no more are accepted.

        After the reports about the driver only one more is accepted, so a trial cannot keep the
        server busy.
        """
        heard: list[Driver | Said] = []
        report: Report | None
        while True:
            try:
                report = _REPORT.validate_json(os.read(self._fd, _MOST_BYTES))
            except BlockingIOError:
                return heard
            except (ConnectionResetError, ValidationError):  # it is gone, or makes no sense
                report = None
            match report:
                case Driver(phase="settled") if self._driver_may_speak:
                    self._driver_may_speak = False
                case Driver() if self._driver_may_speak:
                    heard.append(report)
                case Said() if not self._has_reported:
                    self._driver_may_speak, self._has_reported = False, True
                    heard.append(report)
                case _:
                    self._driver_may_speak, self._has_reported = False, True
                    return heard or None

    def close(self) -> None:
        os.close(self._fd)
