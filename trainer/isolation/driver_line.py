"""How far a trial's process has come with its GPU's driver, told where it can be believed.

A crash while the driver starts is no evidence about a config, and looks from outside like a crash
that a config brought about. So the trial's process says, through a pipe to the fork server, that it
starts the driver and that the driver runs, and closes the pipe before it looks at the config:
nothing that a config decides can write there any more.
"""

from __future__ import annotations

import os

from trainer.isolation.messages import Driver

_STARTING, _UP, _UP_UNIFIED = b"s", b"u", b"U"
_WORDS = {
    _STARTING: Driver(phase="starting"),
    _UP: Driver(phase="up"),
    _UP_UNIFIED: Driver(phase="up", is_unified=True),
}
_MOST_BYTES = 16


class DriverLine:
    """The trial's end."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def starting(self) -> None:
        """The driver is about to be started."""
        os.write(self._fd, _STARTING)

    def up(self, *, is_unified: bool) -> None:
        """It runs; ``is_unified``: on a device whose memory is the machine's."""
        os.write(self._fd, _UP_UNIFIED if is_unified else _UP)

    def close(self) -> None:
        """Nothing more will be said."""
        os.close(self._fd)


class DriverEar:
    """The fork server's end of a new line."""

    def __init__(self) -> None:
        self._fd, self._their_fd = os.pipe()
        os.set_blocking(self._fd, False)

    def fileno(self) -> int:
        return self._fd

    def as_trial(self) -> DriverLine:
        """In the trial's process: let go of this end, and return the other."""
        os.close(self._fd)
        return DriverLine(self._their_fd)

    def as_server(self) -> None:
        """In the fork server: let go of the trial's end."""
        os.close(self._their_fd)

    def hear(self) -> list[Driver] | None:
        """What was said since the last call; None once there can be no more."""
        try:
            said = os.read(self._fd, _MOST_BYTES)
        except BlockingIOError:
            return []
        if not said:
            return None
        words = (_WORDS.get(said[at : at + 1]) for at in range(len(said)))
        return [word for word in words if word is not None]

    def close(self) -> None:
        os.close(self._fd)
