"""A lane's job on its node: ``python -m trainer.executors.slurm.worker ROOM LEASE_S``.

It answers requests as an actor of Ray does, from files in its room, and ends when Slurm signals its
end, or when the campaign's process has sent no pulse for the lease or has removed the room. A trial
that runs then is cancelled; the campaign repeats it on another lane.
"""

import os
import signal
import socket
import sys
import time
from pathlib import Path

from autoresearch.errors import AutoresearchError
from trainer.executors.ray.node import NodeLane
from trainer.executors.slurm.mail import (
    PULSE_FILE,
    REPLY_FILE,
    REQUEST_FILE,
    SENT_DIR,
    get,
    put,
)

POLL_S = 0.2
ENDS = {
    signal.SIGUSR1: "it was preempted, or its time limit is near",
    signal.SIGTERM: "it was cancelled",
}
"""Signals that end the job, and what they mean."""


def serve(room: Path, lease_s: float) -> str:
    """Answer requests until the job is to end; return why it ends."""
    why: list[str] = []

    def end(number: int, _frame: object) -> None:
        why.append(ENDS[signal.Signals(number)])

    for number in ENDS:
        signal.signal(number, end)
    os.chdir(room.parent / SENT_DIR)  # where a node expects what it was sent
    node, answered, pulse, heard_at = NodeLane(), 0, None, time.monotonic()
    put(room / REPLY_FILE, (answered, socket.gethostname(), ""))
    try:
        while not why:
            new, request = get(room.parent / PULSE_FILE), get(room / REQUEST_FILE)
            if request is not None and new != pulse:
                pulse, heard_at = new, time.monotonic()
            if time.monotonic() - heard_at > lease_s:
                return "the loop is gone"
            if request is None or request[0] == answered:
                time.sleep(POLL_S)
                continue
            answered, method, arguments = request
            try:
                value = getattr(node, method)(*arguments)
            except AutoresearchError as error:
                value = error
            put(room / REPLY_FILE, (answered, value, ""))
        return why[0]
    finally:
        node.close()


def main() -> None:
    """Serve the room that the arguments name."""
    room = Path(sys.argv[1])
    farewell = serve(room, float(sys.argv[2]))
    if room.exists():
        put(room / REPLY_FILE, (-1, "", farewell))


if __name__ == "__main__":
    main()
