"""What a trial's process tells the fork server, through a pipe: how far it has come with its GPU's
driver, where it can be believed, and that it is over.

A crash while the driver starts is no evidence about a config, and looks from outside like a crash
that a config brought about. So the trial's process says that it starts the driver and that the
driver runs, and then, before it looks at the config, that nothing more will be said of it: nothing
that a config decides can speak of the driver after that.

Its last word is that it is over. That is taken at its word: who says so is killed at once. A
process that has imported torch takes the kernel ten milliseconds to take apart, and the next trial
need not wait for that.
"""

from __future__ import annotations

import contextlib
import os
from typing import Literal

from trainer.isolation.messages import Driver

_STARTING, _UP, _UP_UNIFIED, _NO_MORE, _OVER = b"s", b"u", b"U", b".", b"o"
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

    def no_more(self) -> None:
        """Nothing more will be said of the driver."""
        os.write(self._fd, _NO_MORE)

    def over(self) -> None:
        """This process has done what it was for, and ends with exit code 0, if not by itself. What
        a trial did to its end of the line costs it nothing but time."""
        with contextlib.suppress(OSError):
            os.write(self._fd, _OVER)


class DriverEar:
    """The fork server's end of a new line."""

    def __init__(self) -> None:
        self._fd, self._their_fd = os.pipe()
        os.set_blocking(self._fd, False)
        self._driver_may_speak = True

    def fileno(self) -> int:
        return self._fd

    def as_trial(self) -> DriverLine:
        """In the trial's process: let go of this end, and return the other."""
        os.close(self._fd)
        return DriverLine(self._their_fd)

    def as_server(self) -> None:
        """In the fork server: let go of the trial's end."""
        os.close(self._their_fd)

    def hear(self) -> list[Driver | Literal["over"]] | None:
        """What was said since the last call; None once nothing more is worth hearing. After what is
        said of the driver that is all but one word, so that nobody can keep the server listening.
        """
        try:
            said = os.read(self._fd, _MOST_BYTES)
        except BlockingIOError:
            return []
        if not said:
            return None
        heard: list[Driver | Literal["over"]] = []
        for at in range(len(said)):
            byte = said[at : at + 1]
            if self._driver_may_speak and byte in _WORDS:
                heard.append(_WORDS[byte])
            elif self._driver_may_speak and byte == _NO_MORE:
                self._driver_may_speak = False
            else:
                return [*heard, "over"] if byte == _OVER else heard or None
        return heard

    def close(self) -> None:
        os.close(self._fd)
