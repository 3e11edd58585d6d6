"""Provide ports of the loopback interface."""

import socket


def free_port() -> int:
    """Return a port that no process listens on at present."""
    with socket.socket() as here:
        here.bind(("127.0.0.1", 0))
        return int(here.getsockname()[1])
