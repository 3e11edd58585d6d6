"""Define the history's table, and connections to its database.

The table's name contains the version of its layout. There are no migrations: each session fills it
from the journal.
"""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path

import sqlalchemy as sa
from sqlalchemy.exc import ArgumentError, NoSuchModuleError, SQLAlchemyError
from sqlalchemy.pool import QueuePool, StaticPool

from autoresearch.campaign_files import check_database, has_file
from autoresearch.errors import HistoryError, MachineryError

LAYOUT = 8
BUSY_TIMEOUT_S = 30.0
MEMORY = ":memory:"

metadata = sa.MetaData()
rows = sa.Table(
    f"rows_v{LAYOUT}",
    metadata,
    sa.Column("campaign_id", sa.Text, primary_key=True),
    sa.Column("line", sa.BigInteger(), primary_key=True, autoincrement=False),
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("json", sa.Text, nullable=False, comment="the journal's line itself"),
)

_UNUSABLE = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR}
_UNDEFINED = {"42P01", "42703"}
"""SQLSTATE codes of a missing table and a missing column."""


class DamagedHistoryError(HistoryError):
    """The database is no SQLite file, or its table has other columns."""


def connect(where: str | Path) -> sa.Engine:
    """Return an engine for a SQLite file (a path), memory (``:memory:``) or any SQLAlchemy URL.

    :raises HistoryError: for a URL whose database this installation cannot reach.
    """
    if where == MEMORY:
        return _sqlite(lambda: sqlite3.connect(MEMORY, check_same_thread=False), StaticPool)
    path = sqlite_path(where)
    if path is not None:
        return _sqlite(partial(_open_file, path), QueuePool)
    try:
        return sa.create_engine(str(where), pool_pre_ping=True)
    except (ArgumentError, NoSuchModuleError, ModuleNotFoundError, ValueError) as error:
        # The error may show part of the password as the port.
        why = "its port is not a number" if isinstance(error, ValueError) else error
        raise HistoryError(
            f"the history cannot be kept at {hidden(where)} ({why}); give a file's path or a "
            "SQLAlchemy URL whose driver is installed, such as postgresql+psycopg://host/database"
        ) from error


def create(connection: sa.Connection) -> None:
    """Create the table if it is missing."""
    connection.execute(sa.schema.CreateTable(rows, if_not_exists=True))


def sqlite_path(where: str | Path) -> Path | None:
    """Return the file of a path or a ``sqlite:///`` URL; None for another database."""
    text = str(where)
    if text.startswith("sqlite:///"):
        return Path(sa.make_url(text).database or "")
    return None if "://" in text else Path(where)


def sqlite_url(path: str | Path) -> str:
    """Return the URL of a SQLite file, whatever characters its path has."""
    url = sa.URL.create("sqlite", database=str(Path(path).absolute()))
    return url.render_as_string(hide_password=False)


def hidden(where: str | Path) -> str:
    """Return the address without its password, which may also be in its query."""
    try:
        return sa.make_url(str(where)).set(query={}).render_as_string(hide_password=True)
    except ArgumentError:
        return str(where)
    except ValueError:  # an invalid port
        return f"{str(where).partition('://')[0]}://…"


@contextmanager
def translated(where: str | Path) -> Iterator[None]:
    """Translate a database's errors into the project's.

    :raises DamagedHistoryError: for a damaged SQLite file, or for a missing or different table.
    :raises MachineryError: for a full disk.
    :raises HistoryError: for anything else.
    """
    try:
        yield
    except (SQLAlchemyError, sqlite3.Error) as error:
        cause = getattr(error, "orig", None) or error
        code = getattr(cause, "sqlite_errorcode", -1) & 0xFF
        what = f"the history at {hidden(where)} failed ({str(cause).splitlines()[0]})"
        if code in _UNUSABLE or getattr(cause, "sqlstate", None) in _UNDEFINED:
            raise DamagedHistoryError(f"{what}; run autoresearch reindex") from error
        if code == sqlite3.SQLITE_FULL:
            raise MachineryError(f"{what}; free some disk space and resume") from error
        raise HistoryError(
            f"{what}; check that the database can be reached and written, or use another one, "
            "for the journal holds everything"
        ) from error


def _sqlite(
    opener: Callable[[], sqlite3.Connection], pool: type[QueuePool] | type[StaticPool]
) -> sa.Engine:
    engine = sa.create_engine("sqlite://", creator=opener, poolclass=pool)

    def begin(connection: sa.Connection) -> None:
        # Lock for writing at once, because a read lock cannot always be upgraded.
        connection.exec_driver_sql("BEGIN IMMEDIATE")

    def take_over_transactions(connection: sqlite3.Connection, _record: object) -> None:
        connection.isolation_level = None  # otherwise sqlite3 begins its own transactions

    sa.event.listen(engine, "connect", take_over_transactions)
    sa.event.listen(engine, "begin", begin)
    return engine


def check_file(path: Path) -> None:
    """Check an index in a campaign's directory, which may come from somebody else. SQLite opens its
    files by their paths, so they are checked before.

    :raises HistoryError: if it or a file beside it is no plain file.
    :raises DamagedHistoryError: if its table or triggers are not those of this module.
    """
    try:
        check_database(path.parent, path.name)
    except OSError as error:
        why = f"{error.filename}: {error.strerror}"
        raise HistoryError(f"the history at {path} cannot be used ({why}); remove it") from error
    if not has_file(path.parent, path.name):
        return
    with translated(path), closing(_open_file(path)) as connection:
        found = _schema_of(connection)
    known = _own_schema()
    for entry, sql in found.items():
        if entry[0] == "trigger" or known.get(entry, sql) != sql:
            raise DamagedHistoryError(f"the history at {path} has a {entry[0]} that is not ours")


def _own_schema() -> dict[tuple[str, str], str]:
    with closing(sqlite3.connect(MEMORY)) as connection:
        with _sqlite(lambda: connection, StaticPool).begin() as made:
            create(made)
        return _schema_of(connection)


def _schema_of(connection: sqlite3.Connection) -> dict[tuple[str, str], str]:
    """Return the statement that made each table, index, view and trigger, by kind and name."""
    found = connection.execute("SELECT type, name, sql FROM sqlite_master")
    return {(kind, name): sql for kind, name, sql in found}


def _open_file(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, timeout=BUSY_TIMEOUT_S, check_same_thread=False)
    connection.execute("PRAGMA journal_mode=WAL")
    # Safe in WAL; rows lost in a power failure are restored from the journal.
    connection.execute("PRAGMA synchronous=NORMAL")
    return connection
