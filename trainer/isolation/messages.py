"""What the supervisor and the fork server say to each other: JSON lines over a socket."""

from __future__ import annotations

import selectors
import socket
import threading
import time
from collections import defaultdict, deque
from typing import Annotated, Literal, TypeAlias

from pydantic import Field, TypeAdapter

from autoresearch.values import Frozen, NonNegative


class ServerSettings(Frozen):
    """The fork server's one command line argument."""

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
    """Where the GPU driver's files are looked for."""
    cores: tuple[int, ...] = ()
    """The processors that it and its trials keep to; none: all."""


class Ready(Frozen):
    """The server has imported what trials need."""

    kind: Literal["ready"] = "ready"


class Start(Frozen):
    """Fork a trial. Its spec.json lies in ``trial_dir``."""

    kind: Literal["start"] = "start"
    trial_dir: str
    imports: tuple[str, ...] = ()
    """Modules that this trial and those like it will want, and ``module:function`` that they would
    call; a warm server imports and calls them first, once."""
    group: str | None = None
    """The directory of the cgroup that the trial is to enter, where there is one."""
    device: str = "cpu"
    """What it runs on."""


class Started(Frozen):
    """The trial's process exists."""

    kind: Literal["started"] = "started"
    pid: int
    waiting: int | None = None
    """The process that waits to be the next trial, if one does."""


class WaitsNoMore(Frozen):
    """The process that waited to be the next trial has ended, and another will be made."""

    kind: Literal["waits no more"] = "waits no more"
    pid: int


class Over(Frozen):
    """The trial has said that it is over, had started nothing, and was killed: it runs no more. It
    may be taken apart still, and an Ended will follow."""

    kind: Literal["over"] = "over"
    pid: int


class Driver(Frozen):
    """How far the trial's process has come with its GPU's driver, in its own words."""

    kind: Literal["driver"] = "driver"
    pid: int = 0
    phase: Literal["starting", "up"]
    is_unified: bool = False
    """Whether the device's memory is the machine's; known once it is up."""


class Said(Frozen):
    """The trial's process reported what came of it, before it ended."""

    kind: Literal["said"] = "said"
    pid: int
    text: str
    """A TrialResult or a TrialError, as JSON: not validated."""
    is_error: bool
    """A TrialError: nothing was measured, and the config is not to blame."""


class Stop(Frozen):
    """Ask the running trial to end; after ``grace_s`` seconds make it."""

    kind: Literal["stop"] = "stop"
    grace_s: NonNegative


class Ended(Frozen):
    """The trial's process has ended, and everything it left behind has been ended too."""

    kind: Literal["ended"] = "ended"
    pid: int = 0
    exit_code: int | None = None
    signal: int | None = None
    """The signal that killed it; then there is no exit code."""
    peak_bytes: int = 0
    """Peak resident memory of the trial's own process."""
    began: bool = True
    """Else it ended before it had its order, and nothing of the trial has run."""
    survivors: tuple[int, ...] = ()
    """Processes that even SIGKILL did not end in time; empty unless the kernel is in trouble."""


Message: TypeAlias = Annotated[
    Ready | Start | Started | WaitsNoMore | Driver | Said | Over | Stop | Ended,
    Field(discriminator="kind"),
]

_MESSAGE: TypeAdapter[Message] = TypeAdapter(Message)


class Channel:
    """One end of the conversation. Owns its socket."""

    def __init__(self, end: socket.socket) -> None:
        self._socket = end
        self._unread = b""

    def fileno(self) -> int:
        return self._socket.fileno()

    def send(self, message: Message) -> None:
        """
        :raises OSError: where the other end is gone.
        """
        self._socket.sendall(message.model_dump_json().encode() + b"\n")

    def receive(self) -> list[Message]:
        """Wait for bytes, and return the messages now complete.

        :raises EOFError: where the other end is gone.
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


SERVER = 0
"""In place of a trial: what the server says of itself, and of who has begun."""


class ServerDied(Exception):
    """The server ended without being asked to."""


class Mail:
    """The supervisor's end of the conversation, for several threads: whoever waits reads for all,
    and hands everybody his own."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._selector = selectors.DefaultSelector()
        self._selector.register(channel, selectors.EVENT_READ)
        self._for: defaultdict[int, deque[Message]] = defaultdict(deque)
        self._turn = threading.Condition()
        self._is_read = False
        """Whether somebody reads."""
        self._has_ended = False
        self._waiting: int | None = None
        self._over: set[int] = set()

    @property
    def no_trials(self) -> frozenset[int]:
        """The process that waits to be the next trial, and those of trials that are over."""
        with self._turn:
            return frozenset(self._over if self._waiting is None else {*self._over, self._waiting})

    def send(self, message: Message) -> None:
        """
        :raises OSError: where the server is gone.
        """
        self._channel.send(message)

    def receive(self, whose: int, timeout_s: float) -> Message | None:
        """The next that speaks of that trial, or of the :data:`SERVER`; None where none comes in
        time.

        :raises ServerDied: where none can come any more.
        """
        give_up_at, looked = time.monotonic() + timeout_s, False
        with self._turn:
            while True:
                letters = self._for.get(whose)
                if letters:
                    letter = letters.popleft()
                    if isinstance(letter, Ended):
                        del self._for[whose]  # there can be no more
                    return letter
                if self._has_ended:
                    raise ServerDied
                left_s = give_up_at - time.monotonic()
                if left_s <= 0 and looked:
                    return None
                if self._is_read:
                    self._turn.wait(max(0.0, left_s))
                else:
                    self._read(max(0.0, left_s))
                looked = True

    def close(self) -> None:
        """Hang up."""
        self._selector.close()
        self._channel.close()

    def _read(self, timeout_s: float) -> None:
        """Wait so long for what comes, and sort it. Holds the lock before and after."""
        messages: list[Message] = []
        self._is_read = True
        self._turn.release()
        try:
            if self._selector.select(timeout_s):
                messages = self._channel.receive()
        except (EOFError, OSError, ValueError):  # gone, or hung up by another thread
            self._has_ended = True
        finally:
            self._turn.acquire()
            self._is_read = False
            for message in messages:
                self._sort(message)
            self._turn.notify_all()

    def _sort(self, message: Message) -> None:
        if isinstance(message, WaitsNoMore):
            if self._waiting == message.pid:
                self._waiting = None
            return
        if isinstance(message, Started):
            self._waiting = message.waiting
        elif isinstance(message, Over):
            self._over.add(message.pid)
        elif isinstance(message, Ended):
            self._over.discard(message.pid)
        whose = message.pid if isinstance(message, Driver | Said | Over | Ended) else SERVER
        self._for[whose].append(message)
