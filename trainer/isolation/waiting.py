"""A process that waits to be the next trial: forked ahead, while the present one trains.

To fork a process that has imported torch, and to put together what confines it, takes tens of
milliseconds. So the fork server has both done ahead. Whoever waits is a fork as fresh as any: it
has heard nothing of a trial, has opened nothing of one, and holds what every fork of the server
begins with. It is nobody yet, so nothing of it counts as any trial's: its clock, log, cgroup and
limits begin with its order, and it is confined before it does what a config decides, as
:mod:`trainer.isolation.trial_startup` says. One order is all that it can be given, since the pipe
for it is closed behind that. It ends where the server does, which tells it so twice: by the signal
of the parent's death, and by the end of that pipe.

It costs one process a lane: some megabytes that are its own, the rest shared with the server.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from trainer.isolation.driver_line import DriverEar, DriverLine
from trainer.isolation.messages import Start


class Waiting:
    """The fork server's hold on one that waits, and on the trial that it becomes."""

    def __init__(self, be: Callable[[int, DriverLine], int], let_go: Callable[[], None]) -> None:
        """Fork it.

        :param be: what it does, given where its order comes from and its line; the exit code.
        :param let_go: closes, in it, what is the server's.
        :raises OSError: where there can be no further process.
        """
        ear = DriverEar()
        order_fd, self._order_fd = os.pipe()
        pid = os.fork()
        if pid == 0:
            exit_code = 1
            try:
                os.close(self._order_fd)
                let_go()
                exit_code = be(order_fd, ear.as_trial())
            finally:
                os._exit(exit_code)
        os.close(order_fd)
        ear.as_server()
        self.pid = pid
        self.ear: DriverEar | None = ear
        """Open as long as anything is worth hearing."""
        self.said_over = False

    def begin(self, start: Start) -> None:
        """Give it its order. Once.

        :raises BrokenPipeError: where it has ended.
        """
        try:
            os.write(self._order_fd, start.model_dump_json().encode() + b"\n")
        finally:
            os.close(self._order_fd)
            self._order_fd = -1

    def close(self) -> None:
        """Let go of it; if it waits, it ends."""
        if self._order_fd >= 0:
            os.close(self._order_fd)
            self._order_fd = -1
        if self.ear is not None:
            self.ear.close()
            self.ear = None


def await_order(order_fd: int) -> Start | None:
    """In the process that waits: until it is to be a trial; None where it never is."""
    order = b""
    while not order.endswith(b"\n"):
        piece = os.read(order_fd, 1 << 16)
        if not piece:
            return None
        order += piece
    os.close(order_fd)
    return Start.model_validate_json(order)
