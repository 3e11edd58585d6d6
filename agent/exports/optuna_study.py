"""Export a campaign as an Optuna study, for optuna-dashboard and for continuing with Optuna.

A trial of the study is a config: its value is the mean of its runs, and its attributes hold the
number of runs by seed. A config without any measured run is a failed trial. The knobs keep their
own values, so the dashboard shows them as the menu does. For another tool's campaign the domains
are unknown, and each parameter is categorical over the values seen.
"""

import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution
from optuna.trial import FrozenTrial, TrialState
from sqlalchemy.exc import SQLAlchemyError

from agent.exports.base import Exported, Subject, whole_database
from agent.menu.files import menu_of
from autoresearch.errors import FormatError
from trainer.spec import BPB, Direction
from trajectory.evidence import Evidence
from trajectory.formats.imported import ImportedCampaign
from trajectory.formats.standings import Standings
from trajectory.formats.tracked import seconds_of
from trajectory.history.tables import hidden
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


def export_optuna(subject: Subject, where: str) -> Exported:
    """Write a study named after the campaign into the storage at a path or SQLAlchemy URL.

    :raises FormatError: if that storage has such a study, or cannot be used.
    """
    if subject.foreign is not None:
        trials, attributes = _foreign_trials(subject.foreign)
        name, scale = subject.name, BPB
        measure: str = subject.foreign.provenance.measure
    else:
        trials, attributes = _own_trials(subject)
        scale = subject.campaign().measured_in
        name, measure = f"{subject.name} {attributes['campaign_id']}", scale.name
    with whole_database(where) as place, _usable(place):
        url = place if "://" in place else f"sqlite:///{Path(place).absolute()}"
        direction = _DIRECTIONS[scale.direction]
        study = optuna.create_study(storage=url, study_name=name, direction=direction)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            study.set_metric_names([measure])
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


# --- our own ------------------------------------------------------------------------------------


def _own_trials(subject: Subject) -> tuple[list[FrozenTrial], dict[str, Any]]:
    campaign = subject.campaign()
    measure, menu = campaign.measured_in, menu_of(campaign)
    evidence = Evidence()
    seen: dict[str, tuple[str, str]] = {}  # times of the first and the last row, by config
    for row in subject.rows():
        evidence.add(row)
        if isinstance(row, BaselineRow | IterationRow) and row.config_hash is not None:
            first, _ = seen.get(row.config_hash, (row.at, row.at))
            seen[row.config_hash] = (first, row.at)
    distributions = {name: domain.distribution() for name, domain in menu.domains.items()}
    trials = [
        _trial(
            measure.score(entry.mean) if entry.scores else None,
            menu.knob_values(entry.config),
            distributions,
            {
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
            seen.get(entry.config_hash),
        )
        for entry in evidence.configs.values()
    ]
    about = {
        "campaign_id": campaign.id,
        "menu": campaign.menu_name,
        "menu_sha256": campaign.menu_sha256,
        "corpus": campaign.corpus.name if campaign.corpus else None,
        "unit": measure.name,
        "budget": str(campaign.budget),
        "sigma": evidence.tally.sigma,
    }
    return trials, about


# --- another tool's -----------------------------------------------------------------------------


def _foreign_trials(campaign: ImportedCampaign) -> tuple[list[FrozenTrial], dict[str, Any]]:
    configs = list(Standings.of(campaign.runs).configs.values())
    # A name alone is an attribute: a category with one value per trial carries no information.
    # Values are text because 1, 1.0 and true are one category to Python.
    parameters = [{k: repr(v) for k, v in (config.values or {}).items()} for config in configs]
    domains: dict[str, dict[Any, None]] = {}
    for each in parameters:
        for name, value in each.items():
            domains.setdefault(name, {})[value] = None
    trials = [
        _trial(
            config.mean if config.scores else None,
            values,
            {name: CategoricalDistribution(list(domains[name])) for name in values},
            {
                "config": config.name or config.key,
                "iter": config.iter,
                "action": config.action,
                "reason": config.reason,
                "n": config.n,
                "scores": list(config.scores.values()),
                "failures": config.failures,
            },
            None,
        )
        for config, values in zip(configs, parameters, strict=True)
    ]
    provenance = campaign.provenance
    return trials, {"source": provenance.source, "format": provenance.format}


# --- both ---------------------------------------------------------------------------------------


def _trial(
    value: float | None,
    params: Mapping[str, Any],
    distributions: Mapping[str, BaseDistribution],
    attributes: dict[str, Any],
    when: tuple[str, str] | None,
) -> FrozenTrial:
    trial = optuna.trial.create_trial(
        state=TrialState.FAIL if value is None else TrialState.COMPLETE,
        value=value,
        params=dict(params),
        distributions=dict(distributions),
        user_attrs=attributes,
    )
    if when is not None:
        trial.datetime_start, trial.datetime_complete = (
            datetime.fromtimestamp(seconds_of(at))  # as Optuna stores it: local, without a zone
            for at in when
        )
    return trial
