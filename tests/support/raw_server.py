"""Provide a server on loopback that sends raw bytes, which no HTTP library would let a test
send."""

import contextlib
import socket
import threading
from collections.abc import Callable
from typing import Self, TypeAlias

from autoresearch.closing import Closing

Speech: TypeAlias = Callable[[socket.socket], None]
"""A function that answers after the head of one request; then the server disconnects."""


def repeats(first: bytes, again: bytes) -> Speech:
    """Send the first bytes, then others as long as the client reads."""

    def speak(connection: socket.socket) -> None:
        connection.sendall(first)
        while True:
            connection.sendall(again)

    return speak


def says_once(said: bytes) -> Speech:
    return lambda connection: connection.sendall(said)


class RawServer(Closing):
    """Answer each connection: ``with RawServer(speech) as server: … server.port``."""

    def __init__(self, speech: Speech) -> None:
        self._speech = speech
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.heads: list[bytes] = []
        """The first bytes that each connection received."""
        self.port: int = self._listener.getsockname()[1]

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def close(self) -> None:
        """Stop listening."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            self.heads.append(connection.recv(65536))
            self._speech(connection)
            connection.shutdown(socket.SHUT_WR)
            while connection.recv(65536):
                pass
