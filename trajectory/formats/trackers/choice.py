"""Recognize a tracker's file or folder, and read it."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

from autoresearch.errors import FormatError
from trajectory.formats.source import ForeignFile, Source
from trajectory.formats.trackers import mlflow_store, optuna_study, tensorboard_events, wandb_csv
from trajectory.formats.trackers.database import MAGIC, opened
from trajectory.formats.trackers.folder import Folder
from trajectory.formats.trackers.recorded import Wanted

_LOOKED_AT = 5
Reader = Callable[[Any, Wanted], ForeignFile]


def reader_of(source: Source) -> Reader | None:
    """Return what reads this source; None if it is of no tracker.

    :raises FormatError: for a database or a folder that is of none.
    """
    if isinstance(source, Folder):
        if mlflow_store.recognises(source):
            return mlflow_store.read_files
        return tensorboard_events.read if tensorboard_events.recognises(source) else None
    if source.data.startswith(MAGIC):
        return _of_database(source)
    if "tfevents" in source.path.name:
        return _read_event_file
    lines = list(islice(source.lines(), _LOOKED_AT))
    if optuna_study.recognises(lines):
        return optuna_study.read_journal
    return wandb_csv.read if wandb_csv.recognises(lines) else None


def _of_database(source: Source) -> Reader:
    with opened(source) as database:
        tables = database.tables()
    if tables >= optuna_study.TABLES:
        return optuna_study.read_database
    if tables >= mlflow_store.TABLES:
        return mlflow_store.read_database
    raise FormatError(
        f"{source.path} is a SQLite database, but neither Optuna's nor MLflow's; choose another "
        "file"
    )


def _read_event_file(source: Source, wanted: Wanted) -> ForeignFile:
    folder = Folder(source.path, source.data, {Path(source.path.name): source.data})
    return tensorboard_events.read(folder, wanted)
