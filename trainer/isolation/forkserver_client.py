"""Start, use and end a fork server from the supervisor."""

import contextlib
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from autoresearch.code import module_command, package_root
from autoresearch.errors import MachineryError
from trainer.isolation.kernel.sandbox import Layers
from trainer.isolation.messages import (
    Channel,
    Driver,
    Ended,
    Message,
    Ready,
    Said,
    ServerDied,
    ServerSettings,
    StartTrial,
    Stop,
    TrialStarted,
)
from trainer.machine.environment import allowed_environment

_READY_S = 600.0
"""Timeout in seconds. Importing torch from a cold disk takes tens of seconds; on a machine with ten
busy processes for each core it once took more than 180."""
_POLL_S = 0.1
"""Seconds between checks whether a start is still wanted."""


class GivenUp(Exception):
    """A start is no longer wanted. The trial may still start until the server is closed."""


class ForkServerClient:
    """A running fork server. Its start is awaited only when needed."""

    def __init__(
        self,
        *,
        entry: str,
        layers: Layers,
        environ: Mapping[str, str] | None,
        root: Path = Path("/"),
        cores: Sequence[int] = (),
    ) -> None:
        ours, theirs = socket.socketpair()
        settings = ServerSettings(
            control_fd=theirs.fileno(),
            parent=os.getpid(),
            entry=entry,
            landlock_abi=layers.landlock_abi,
            seccomp=layers.seccomp,
            world=layers.world,
            root=str(root),
            cores=tuple(cores),
        )
        self._complaints = tempfile.TemporaryFile()  # noqa: SIM115 (closed in close)
        try:
            self._process = subprocess.Popen(
                module_command("trainer.isolation.forkserver", settings.model_dump_json()),
                env=allowed_environment(environ),
                cwd=package_root(),
                stdin=subprocess.DEVNULL,
                stdout=self._complaints,
                stderr=self._complaints,
                pass_fds=[settings.control_fd],
                start_new_session=True,
            )
        except OSError as error:
            ours.close()
            self._complaints.close()
            raise MachineryError(
                f"the fork server cannot be started with {sys.executable} ({error.strerror});"
                " see `autoresearch doctor`"
            ) from error
        finally:
            theirs.close()
        self.has_world = layers.world
        """Whether each command that it starts has a world of its own."""
        self._channel = Channel(ours)
        self._received: deque[Message] = deque()
        """Received messages that are not read yet."""
        self._ready = False

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def start_trial(self, start: StartTrial, given_up: Callable[[], bool]) -> int:
        """Start a trial, with its imports loaded, and return its process id.

        This waits for what the server still has to import.

        :raises GivenUp: if ``given_up`` returned true first.
        :raises ServerDied: if the server is gone.
        :raises MachineryError: if it does not become ready.
        """
        if not self._ready:
            with contextlib.suppress(ServerDied):
                self._ready = isinstance(self._answer(given_up), Ready)
            if not self._ready:
                raise MachineryError(
                    f"the fork server did not start ({self.last_words()});"
                    " see `autoresearch doctor`"
                )
        self._send(start)
        started = self._answer(given_up)
        if not isinstance(started, TrialStarted):
            raise ServerDied
        return started.pid

    def stop_trial(self, grace_s: float) -> None:
        """End the running trial: TERM now, KILL after ``grace_s``. An Ended message follows.

        :raises ServerDied: if the server is gone.
        """
        self._send(Stop(grace_s=grace_s))

    def receive(self, timeout_s: float) -> Driver | Said | Ended | None:
        """Return the server's next message about the running trial, or None if none comes in time.

        :raises ServerDied: if no more can come.
        """
        message = self._next(timeout_s)
        assert message is None or isinstance(message, Driver | Said | Ended)
        return message

    def last_words(self) -> str:
        """Return how the server ended, and the last line it printed."""
        try:
            code = self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            return "no answer"
        how = f"killed by {signal_name(-code)}" if code < 0 else f"exit code {code}"
        self._complaints.seek(0)
        lines = self._complaints.read().decode(errors="replace").split("\n")
        last = next((line.strip() for line in reversed(lines) if line.strip()), "")
        return f"{how}: {last}" if last else how

    def kill(self) -> None:
        """End the server at once. Its trial dies with it, but the trial's descendants may not."""
        self._process.kill()
        self._process.wait()

    def close(self) -> None:
        """End the server and everything below it. A second call does nothing."""
        self._channel.close()  # the server shuts down
        if not self._ready:
            self.kill()  # it may still be importing, and has been given no trial
        try:
            self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self.kill()
        self._complaints.close()

    def _next(self, timeout_s: float) -> Message | None:
        """Return the next message, or None if none comes in time.

        :raises ServerDied: if no more can come.
        """
        try:
            if not self._received and select.select([self._channel], [], [], timeout_s)[0]:
                self._received.extend(self._channel.receive())
        except (EOFError, OSError, ValueError):  # gone, or closed here
            raise ServerDied from None
        return self._received.popleft() if self._received else None

    def _answer(self, given_up: Callable[[], bool]) -> Message | None:
        """Return the next message; None if it takes longer than any import."""
        give_up_at = time.monotonic() + _READY_S
        while time.monotonic() < give_up_at:
            message = self._next(_POLL_S)
            if message is not None:
                return message
            if given_up():
                raise GivenUp
        return None

    def _send(self, message: Message) -> None:
        try:
            self._channel.send(message)
        except OSError:
            raise ServerDied from None


def signal_name(number: int) -> str:
    """Return ``SIGSEGV`` for 11."""
    try:
        return signal.Signals(number).name
    except ValueError:  # a real-time signal
        return f"signal {number}"
