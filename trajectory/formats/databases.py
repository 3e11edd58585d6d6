"""Read another tool's database, or Optuna's log, in a process of its own that ends in time.

A file may come from anybody. A view without an end, a generated column or a damaged page can keep a
library busy for ever, where nothing interrupts it.
"""

from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from autoresearch.errors import FormatError
from autoresearch.limited import OutOfTimeError, answer, begin_limits, run
from trajectory.formats import mlflow_store
from trajectory.formats.source import MOST_BYTES, ForeignFile, Source, SourcePart
from trajectory.formats.tracker_stores import LIMIT_S, MAGIC, opened

MOST_MEMORY_BYTES = 16 << 30
_OPTUNA_TABLES = {"studies", "study_directions", "trials", "trial_params", "trial_values"}
_FURTHER = {
    *("study_user_attributes", "study_system_attributes", "trial_user_attributes"),
    *("trial_system_attributes", "trial_intermediate_values", "trial_heartbeats"),
    *("version_info", "alembic_version"),
}
"""Tables that Optuna reads besides."""
_FILE: TypeAdapter[ForeignFile] = TypeAdapter(ForeignFile)


def read(source: Source, wanted: SourcePart) -> ForeignFile:
    """Read a database of Optuna or MLflow, or Optuna's log.

    :raises FormatError: if it is neither, is damaged, or cannot be read in time.
    """
    request = {"path": str(source.path), "metric": wanted.metric, "study": wanted.study}
    try:
        found = run(__name__, request, source.data, limit_s=2 * LIMIT_S)
    except OutOfTimeError:
        raise FormatError(
            f"{source.path} kept its reader busy for {2 * LIMIT_S:.0f} s, so no tracker wrote it; "
            "choose another file"
        ) from None
    return _FILE.validate_python(found)


def _answer(request: dict[str, Any], data: bytes) -> Any:
    from trajectory.formats import optuna_study  # noqa: PLC0415 (slow to load)

    begin_limits(request["limit_s"], file_bytes=2 * MOST_BYTES, more_memory_bytes=MOST_MEMORY_BYTES)
    source = Source(Path(request["path"]), data)
    wanted = SourcePart(request["metric"], request["study"])
    read_store = optuna_study.read
    if data.startswith(MAGIC):
        tables = _plain_tables(source)
        if tables >= mlflow_store.TABLES:
            read_store = mlflow_store.read_database
        elif not tables >= _OPTUNA_TABLES:
            raise FormatError(
                f"{source.path} is a database without the tables of an Optuna study or an MLflow "
                "store; choose another file"
            )
    return _FILE.dump_python(read_store(source, wanted), mode="json", by_alias=True)


def _plain_tables(source: Source) -> set[str]:
    """Return the names of the tables whose every column is stored.

    :raises FormatError: if a view or another table has the name of one that a tracker reads.
    """
    read_by_us = mlflow_store.TABLES | _OPTUNA_TABLES | _FURTHER
    with opened(source) as database:
        entries = database.execute("SELECT name, type, sql FROM sqlite_master").fetchall()
        for name, kind, sql in entries:
            is_stored = kind == "table" and not str(sql).upper().startswith("CREATE VIRTUAL")
            computed = 0
            if is_stored and name in read_by_us:
                query = "SELECT count(*) FROM pragma_table_xinfo(?) WHERE hidden > 0"
                computed = database.execute(query, (name,)).fetchone()[0]
            if name in read_by_us and (computed or not is_stored):
                raise FormatError(
                    f"{source.path} computes its {name} instead of storing them, as no tracker "
                    "does; choose another file"
                )
        return {str(name) for name, kind, _ in entries if kind == "table"}


if __name__ == "__main__":
    answer(_answer)
