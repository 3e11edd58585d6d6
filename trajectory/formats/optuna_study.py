"""Read a study of Optuna 3 to 5, from a copy of its SQLite file or its journal file."""

import tempfile
from pathlib import Path

import optuna
from optuna.storages.journal import JournalFileBackend
from sqlalchemy.exc import SQLAlchemyError

from autoresearch.errors import FormatError
from trajectory.formats.source import ForeignFile, Source, SourcePart
from trajectory.formats.tracker_stores import MAGIC, WRONG, Recorded, chosen, finite, foreign_file
from trajectory.history.tables import sqlite_url

MEASURE = "value"


def read(source: Source, wanted: SourcePart) -> ForeignFile:
    """Read a study with Optuna.

    :raises FormatError: if Optuna cannot read the file, or the study has no one score to minimize.
    """
    optuna.logging.set_verbosity(optuna.logging.CRITICAL)
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder, "study")
        copy.write_bytes(source.data)
        try:
            storage: optuna.storages.BaseStorage
            if source.data.startswith(MAGIC):
                url = sqlite_url(copy)
                storage = optuna.storages.RDBStorage(url, skip_table_creation=True)
            else:
                storage = optuna.storages.JournalStorage(JournalFileBackend(str(copy)))
            names = optuna.get_all_study_names(storage)
            study = optuna.load_study(
                study_name=chosen(source, "studies", names, wanted), storage=storage
            )
            directions, trials = study.directions, study.get_trials()
        except (optuna.exceptions.OptunaError, SQLAlchemyError, RuntimeError, *WRONG) as error:
            raise FormatError(
                f"Optuna cannot read {source.path} ({str(error).splitlines()[0][:200]!r}); choose "
                "another file, or restore it from a copy"
            ) from error
    if directions != [optuna.study.StudyDirection.MINIMIZE]:
        what = f"has {len(directions)} objectives" if len(directions) != 1 else "is maximized"
        raise FormatError(
            f"the study in {source.path} {what}; import takes one score of which the lower is the "
            "better"
        )
    return foreign_file("optuna", source, [_run(trial) for trial in trials], SourcePart(MEASURE))


def _run(trial: optuna.trial.FrozenTrial) -> Recorded:
    run = Recorded(f"trial {trial.number}", params=dict(trial.params))
    if trial.state.is_finished():
        run.ended = "measured" if trial.state.name == "COMPLETE" else "failed"
    else:
        run.ended = "running"
    value = finite(trial.values[0]) if trial.values else None
    if value is not None:
        run.metrics[MEASURE] = value
    return run
