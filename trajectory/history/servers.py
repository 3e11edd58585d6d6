"""Connections to a PostgreSQL server that may vanish without a word.

A host that is lost says nothing, and a server that stands still has a kernel that acknowledges for
it. So whoever waits for it keeps a clock of its own: a connection that was silent for too long is
closed, and counts as one that was lost.
"""

from __future__ import annotations

from collections.abc import Generator
from time import monotonic
from typing import Any, TypeVar

import psycopg
import sqlalchemy as sa

CONNECT_S = 5
SILENCE_S = 30.0
"""The longest that one statement may take: as long as a locked SQLite file is waited for."""

_OPTIONS = {
    "connect_timeout": CONNECT_S,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 1000 * int(SILENCE_S),
}
"""libpq's, where the URL does not say otherwise: seconds, but for the last, in milliseconds."""

_Answer = TypeVar("_Answer")


class SilentServerError(psycopg.OperationalError):
    """A server that keeps its connection open and does not answer."""


class ImpatientConnection(psycopg.Connection[Any]):
    """Closed once a statement has waited for longer than :data:`SILENCE_S`."""

    def wait(self, gen: Generator[Any, Any, _Answer], *arguments: Any, **options: Any) -> _Answer:
        """As psycopg's, through which everything but connecting waits for the server.

        :raises SilentServerError: when it took too long; the connection is closed then.
        """
        try:
            return super().wait(_limited(gen, SILENCE_S), *arguments, **options)
        except SilentServerError:
            self.close()
            raise


def impatient(engine: sa.Engine) -> sa.Engine:
    """The same engine, whose connections from now on wait for their server no longer than they
    must."""

    def connect(
        _dialect: object, _record: object, arguments: list[Any], options: dict[str, Any]
    ) -> object:
        return ImpatientConnection.connect(*arguments, **(_OPTIONS | options))

    sa.event.listen(engine, "do_connect", connect)
    return engine


def _limited(waiting: Generator[Any, Any, _Answer], seconds: float) -> Generator[Any, Any, _Answer]:
    """What psycopg drives: it says what it waits for and is sent what is ready, which is nothing
    ten times a second where nothing is."""
    until = monotonic() + seconds
    try:
        wanted = next(waiting)
        while True:
            ready = yield wanted
            if not ready and monotonic() > until:
                raise SilentServerError(f"the server has not answered for {seconds:g} s")
            wanted = waiting.send(ready)
    except StopIteration as end:
        answer: _Answer = end.value
        return answer
