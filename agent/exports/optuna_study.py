"""Export a campaign as an Optuna study, for optuna-dashboard and for continuing with Optuna.

A trial of the study is a config: its value is the mean of its runs, and its attributes hold the
number of runs by seed. A config without any measured run is a failed trial. The knobs keep their
own values, so the dashboard shows them as the menu does.
"""

import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import optuna
from optuna.trial import FrozenTrial, TrialState
from sqlalchemy.exc import SQLAlchemyError

from agent.exports.forms import Exported, campaign_row, study_name, whole_database
from agent.menu.edits import menu_now
from autoresearch.errors import FormatError
from autoresearch.layout import JOURNAL_FILE
from trainer.schema import Direction
from trajectory.formats.tracked import seconds_of
from trajectory.history.tables import hidden, sqlite_url
from trajectory.journal import read_rows
from trajectory.reading import Results
from trajectory.rows import BaselineRow, IterationRow

BATCH = 500
_DIRECTIONS: Mapping[Direction, optuna.study.StudyDirection] = {
    "minimise": optuna.study.StudyDirection.MINIMIZE,
    "maximise": optuna.study.StudyDirection.MAXIMIZE,
}
_UNUSABLE = (
    *(optuna.exceptions.OptunaError, SQLAlchemyError, OSError, ImportError),
    RuntimeError,  # Optuna's error for another program's database
)


def export_optuna(directory: Path, where: str) -> Exported:
    """Write a study named after the campaign into the storage at a path or SQLAlchemy URL.

    :raises FormatError: if that storage has such a study, or cannot be used.
    """
    trials, attributes = _trials(directory)
    scale, name = campaign_row(directory).measured_in, study_name(directory)
    with whole_database(where) as place, _usable(place):
        url = place if "://" in place else sqlite_url(place)
        direction = _DIRECTIONS[scale.direction]
        study = optuna.create_study(storage=url, study_name=name, direction=direction)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            study.set_metric_names([scale.name])
        try:
            for key, value in attributes.items():
                study.set_user_attr(key, value)
            for first in range(0, len(trials), BATCH):
                study.add_trials(trials[first : first + BATCH])
        except BaseException:
            optuna.delete_study(study_name=name, storage=study._storage)
            raise
    return Exported(len(trials), "configs", hidden(where))


@contextmanager
def _usable(where: str) -> Iterator[None]:
    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    try:
        yield
    except optuna.exceptions.DuplicatedStudyError as error:
        raise FormatError(
            f"{hidden(where)} has a study of this campaign already; choose another --out"
        ) from error
    except _UNUSABLE as error:
        why = str(error.__cause__ or error).splitlines()[0]
        raise FormatError(
            f"cannot store a study at {hidden(where)} ({why}); free some space, or give "
            "another file's path or the URL of a database whose driver is installed"
        ) from error
    finally:
        optuna.logging.set_verbosity(before)


def _trials(directory: Path) -> tuple[list[FrozenTrial], dict[str, Any]]:
    campaign = campaign_row(directory)
    measure, results = campaign.measured_in, Results()
    seen: dict[str, tuple[str, str]] = {}  # times of the first and the last row, by config
    for row in read_rows(directory / JOURNAL_FILE):
        results.add(row)
        if isinstance(row, BaselineRow | IterationRow) and row.config_hash is not None:
            first, _ = seen.get(row.config_hash, (row.at, row.at))
            seen[row.config_hash] = (first, row.at)
    menu, evidence = menu_now(campaign, results), results.evidence
    distributions = {name: domain.distribution() for name, domain in menu.domains.items()}
    trials = []
    for entry in evidence.configs.values():
        trial = optuna.trial.create_trial(
            state=TrialState.COMPLETE if entry.scores else TrialState.FAIL,
            value=measure.score(entry.mean) if entry.scores else None,
            params=menu.knob_values(entry.config),
            distributions=distributions,
            user_attrs={
                "config_hash": entry.config_hash,
                "iter": entry.iter,
                "action": entry.action,
                "reason": entry.reason,
                "n": entry.n,
                f"{measure.name}_by_seed": {
                    str(seed): measure.score(objective) for seed, objective in entry.scores.items()
                },
                "failures": [failure.status for failure in entry.failures],
                "train_s": entry.train_s,
                "params": entry.params,
            },
        )
        if entry.config_hash in seen:
            trial.datetime_start, trial.datetime_complete = (
                datetime.fromtimestamp(seconds_of(at))  # as Optuna stores it: local, no zone
                for at in seen[entry.config_hash]
            )
        trials.append(trial)
    about = {
        "campaign_id": campaign.id,
        "menu": campaign.menu_name,
        "menu_sha256": campaign.menu_sha256,
        "corpus": campaign.corpus.name if campaign.corpus else None,
        "unit": measure.name,
        "budget": str(campaign.budget),
        "sigma": evidence.sigma,
    }
    return trials, about
