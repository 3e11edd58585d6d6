"""Messages between supervisor and fork server: JSON lines over a socket."""

from __future__ import annotations

import socket
from typing import Annotated, Literal, TypeAlias

from pydantic import Field, TypeAdapter

from autoresearch.values import Frozen, NonNegative


class ServerSettings(Frozen):
    """The fork server's only command line argument."""

    control_fd: int
    parent: int
    """The supervisor's process id."""
    entry: str
    """``module:function`` that a trial runs."""
    warm: bool
    """Import the entry once, before the forks, rather than in every child."""
    landlock_abi: int
    seccomp: bool
    root: str = "/"
    """Root of the GPU driver's files."""
    cores: tuple[int, ...] = ()
    """Processors of the server and its trials; none: all."""


class Ready(Frozen):
    """The server has imported what trials need."""

    kind: Literal["ready"] = "ready"


class Start(Frozen):
    """Fork a trial. Its spec.json is in ``trial_dir``."""

    kind: Literal["start"] = "start"
    trial_dir: str
    imports: tuple[str, ...] = ()
    """Modules that this trial and similar ones import, and each ``module:function`` that they call;
    a warm server does both once, before the fork."""
    group: str | None = None
    """Directory of the cgroup that the trial should enter, if any."""


class Started(Frozen):
    """The trial's process exists."""

    kind: Literal["started"] = "started"
    pid: int


class Driver(Frozen):
    """State of the GPU driver in the trial's process, as it reports."""

    kind: Literal["driver"] = "driver"
    phase: Literal["starting", "up"]
    is_unified: bool = False
    """Whether the device shares the machine's memory; known once it is up."""


class Said(Frozen):
    """The trial's process reported its result before it ended."""

    kind: Literal["said"] = "said"
    text: str
    """A TrialResult or a TrialError, as JSON, not validated."""
    is_error: bool
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
    Ready | Start | Started | Driver | Said | Stop | Ended,
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
