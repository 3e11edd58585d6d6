"""Connect to a PostgreSQL server that may stop responding.

A lost host sends nothing, and the kernel of a stopped server still acknowledges packets. So the
client limits each wait itself: a connection that is silent for too long is closed and counts as
lost.
"""

from collections.abc import Generator
from time import monotonic
from typing import Any, TypeVar

import psycopg
import sqlalchemy as sa

CONNECT_S = 5
SILENCE_S = 30.0
"""Seconds that one statement may take, equal to the wait for a locked SQLite file."""

_OPTIONS = {
    "connect_timeout": CONNECT_S,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 1000 * int(SILENCE_S),
}
"""Defaults of libpq options that the URL may override: seconds, except the last in milliseconds."""

_Answer = TypeVar("_Answer")


class SilentServerError(psycopg.OperationalError):
    """A server that keeps its connection open and does not answer."""


class ImpatientConnection(psycopg.Connection[Any]):
    """Connection that closes once a statement has waited longer than :data:`SILENCE_S`."""

    def wait(self, gen: Generator[Any, Any, _Answer], *arguments: Any, **options: Any) -> _Answer:
        """Wait like psycopg's method, which waits for the server in all operations but connecting.

        :raises SilentServerError: if it takes too long; the connection is then closed.
        """
        try:
            return super().wait(_limited(gen, SILENCE_S), *arguments, **options)
        except SilentServerError:
            self.close()
            raise


def impatient(engine: sa.Engine) -> sa.Engine:
    """Limit how long an engine's future connections wait for their server; return the engine."""

    def connect(
        _dialect: object, _record: object, arguments: list[Any], options: dict[str, Any]
    ) -> object:
        return ImpatientConnection.connect(*arguments, **(_OPTIONS | options))

    sa.event.listen(engine, "do_connect", connect)
    return engine


def _limited(waiting: Generator[Any, Any, _Answer], seconds: float) -> Generator[Any, Any, _Answer]:
    """Wrap a generator that psycopg drives, with a time limit.

    The generator yields what it waits for and is sent what is ready. If nothing is ready, psycopg
    sends nothing ten times a second.
    """
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
