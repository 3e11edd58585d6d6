"""A process that waits to be the next trial: forked ahead, while the present one trains.

To fork a process that has imported torch, and to put together what confines it, takes tens of
milliseconds. So the fork server has both done ahead. Whoever waits is a fork as fresh as any: it
has heard nothing of a trial, has opened nothing of one, and holds what every fork of the server
begins with. It is nobody yet, so nothing of it counts as any trial's: its clock, log, cgroup and
limits begin with its order, and it is confined before it does what a config decides, as
:mod:`trainer.isolation.trial_startup` says. One order is all that it can be given, since the pipe
for it is closed behind that. That it has taken it, it says: one that is killed in that very moment
was no trial yet. It ends where the server does, which tells it so twice: by the signal
of the parent's death, and by the end of that pipe.

It costs one process a lane: some megabytes that are its own, the rest shared with the server.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable

from trainer.isolation.driver_line import DriverEar, DriverLine
from trainer.isolation.messages import Start


class OrderSlot:
    """Through which a process that waits is given its one order."""

    def __init__(self) -> None:
        self._there_fd, self._here_fd = os.pipe()
        self._taken = mmap.mmap(-1, 1)
        """Shared with the fork, until that has its order."""

    def as_server(self) -> None:
        """In the fork server: let go of the other end."""
        os.close(self._there_fd)

    def as_trial(self) -> None:
        """In the process that waits: let go of the server's end."""
        os.close(self._here_fd)

    def give(self, start: Start) -> None:
        """Once.

        :raises BrokenPipeError: where nobody waits any more.
        """
        try:
            os.write(self._here_fd, start.model_dump_json().encode() + b"\n")
        finally:
            self.close()

    @property
    def is_taken(self) -> bool:
        """Whether it was given and has arrived."""
        return self._taken[0] != 0

    def close(self) -> None:
        """Give none, or no more."""
        if self._here_fd >= 0:
            os.close(self._here_fd)
            self._here_fd = -1

    def take(self) -> Start | None:
        """In the process that waits: until it is to be a trial; None where it never is."""
        order = b""
        while not order.endswith(b"\n"):
            piece = os.read(self._there_fd, 1 << 16)
            if not piece:
                return None
            order += piece
        os.close(self._there_fd)
        self._taken[0] = 1
        self._taken.close()  # nothing of the trial can take that back
        return Start.model_validate_json(order)


class Waiting:
    """The fork server's hold on one that waits, and on the trial that it becomes."""

    def __init__(
        self, be: Callable[[OrderSlot, DriverLine], int], let_go: Callable[[], None]
    ) -> None:
        """Fork it.

        :param be: what it does, given where its order comes from and its line; the exit code.
        :param let_go: closes, in it, what is the server's.
        :raises OSError: where there can be no further process.
        """
        ear = DriverEar()
        self._slot = OrderSlot()
        pid = os.fork()
        if pid == 0:
            exit_code = 1
            try:
                self._slot.as_trial()
                let_go()
                exit_code = be(self._slot, ear.as_trial())
            finally:
                os._exit(exit_code)
        self._slot.as_server()
        ear.as_server()
        self.pid = pid
        self.ear: DriverEar | None = ear
        """Open as long as anything is worth hearing."""
        self.said_over = False

    @property
    def has_begun(self) -> bool:
        """Whether it is a trial, rather than one that waits or died of that."""
        return self._slot.is_taken

    def begin(self, start: Start) -> None:
        """Give it its order. Once.

        :raises BrokenPipeError: where it has ended.
        """
        self._slot.give(start)

    def close(self) -> None:
        """Let go of it; if it waits, it ends."""
        self._slot.close()
        if self.ear is not None:
            self.ear.close()
            self.ear = None
