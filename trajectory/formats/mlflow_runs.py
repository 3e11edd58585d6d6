"""Write a campaign as MLflow runs, one per trial.

A trial's config becomes the run's parameters, and its curve becomes metrics.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

import sqlalchemy as sa
from sqlalchemy.exc import SQLAlchemyError

from autoresearch.errors import FormatError
from autoresearch.program import install_command
from trainer.schema import CurvePoint
from trajectory.formats.tracked import Tracked, curve_metrics
from trajectory.history.tables import hidden, sqlite_url
from trajectory.rows import TrialRecord

BATCH = 900
PARAM_BATCH = 100
"""MLflow accepts at most 1,000 items at once, of which 100 may be parameters."""
TAG_CHARACTERS = 5000
MESSAGE_CHARACTERS = 300
"""Most characters of MLflow's error messages to repeat."""
RETRIES = 2
"""Retries of a request to a tracking server, which take a few seconds. MLflow's own default would
wait silently for two minutes. MLflow reads it from the environment; a value set by the user is
kept."""
KNOCK_S = 10.0
"""Seconds to wait for a tracking server's first answer."""
ANSWER_S = 20
"""Seconds to wait for each later answer; MLflow's default is two minutes, several times."""
DATABASES = {"postgresql", "mysql", "mssql", "sqlite"}
Curves = Callable[[str], Sequence[CurvePoint]]
"""Returns the curve for a trial's id; empty if there is none."""


def tracking_uri(where: str) -> str:
    """Return an MLflow URI: the given one, or that of a SQLite file at a path."""
    return where if "://" in where else sqlite_url(where)


def mlflow_client(where: str) -> Any:
    """Return an MLflow client for a URI or a SQLite file's path.

    :raises FormatError: if MLflow is not installed, or cannot use the address.
    """
    try:
        from mlflow import environment_variables  # noqa: PLC0415 (an extra, slow to load)
        from mlflow.tracking import MlflowClient  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise FormatError(f"MLflow is not installed; run: {install_command('mlflow')}") from error
    retries: Any = environment_variables.MLFLOW_HTTP_REQUEST_MAX_RETRIES
    if not retries.is_set():
        retries.set(RETRIES)
    answer_s: Any = environment_variables.MLFLOW_HTTP_REQUEST_TIMEOUT
    if not answer_s.is_set():
        answer_s.set(ANSWER_S)
    if where.startswith("file:"):  # MLflow 3.17 requires permission for folders
        allowed: Any = getattr(environment_variables, "MLFLOW_ALLOW_FILE_STORE", None)
        if allowed is not None and not allowed.is_set():
            allowed.set(True)
    # MLflow logs each table it creates, and also prints the errors that it raises.
    logging.getLogger("mlflow").setLevel(logging.CRITICAL)
    uri = tracking_uri(where)
    with translated(where):
        # Ask first, because MLflow would retry for minutes.
        if uri.startswith(("http://", "https://")):
            import requests  # noqa: PLC0415 (what MLflow asks with)

            requests.get(f"{uri.rstrip('/')}/health", timeout=KNOCK_S)  # any status will do
        elif uri.partition("://")[0].partition("+")[0] in DATABASES:
            sa.create_engine(uri, poolclass=sa.NullPool).connect().close()
        with _without_folder_of(uri):
            return MlflowClient(tracking_uri=uri)


@contextmanager
def _without_folder_of(uri: str) -> Iterator[None]:
    """Remove the folders that MLflow makes for a SQLite file whose path is escaped in its URL: it
    takes the URL's text for the path."""
    text = Path(uri.removeprefix("sqlite:///").partition("?")[0]).parent
    is_escaped = (
        uri.startswith("sqlite:///") and text != Path(sa.make_url(uri).database or "").parent
    )
    made = [one for one in (text, *text.parents) if not one.exists()] if is_escaped else []
    try:
        yield
    finally:
        for folder in made:
            with suppress(OSError):
                folder.rmdir()


@contextmanager
def translated(where: str) -> Iterator[None]:
    """Translate errors of MLflow into one sentence.

    :raises FormatError: for an error of MLflow, of its database or of its server in the body.
    """
    from alembic.util.exc import CommandError  # noqa: PLC0415 (MLflow's, for its tables)
    from mlflow.exceptions import MlflowException  # noqa: PLC0415 (an extra, slow to load)
    from requests import RequestException  # noqa: PLC0415 (what MLflow asks with)

    try:
        yield
    except (MlflowException, RequestException, SQLAlchemyError, CommandError) as error:
        why = str(error).splitlines()[0].replace(where.rstrip("/"), hidden(where))
        raise FormatError(
            f"MLflow at {hidden(where)} refuses: {why[:MESSAGE_CHARACTERS]}; see that a server "
            "runs and answers there or that there is space, or give another file's path or the URI "
            "of a tracking server"
        ) from error


def run_status(trial: TrialRecord) -> str:
    """Return MLflow's status of a trial that ended; a pruned one did not fail."""
    if trial.objective is not None:
        return "FINISHED"
    return "KILLED" if trial.result.status == "pruned" else "FAILED"


def write_trials(where: str, experiment: str, trials: Iterable[Tracked], curves: Curves) -> int:
    """Write one run per trial to a new experiment, and return the number of runs.

    :raises FormatError: if the experiment exists, or MLflow refuses or cannot be reached.
    """
    client = mlflow_client(where)
    from mlflow.entities import Metric, Param  # noqa: PLC0415 (an extra, slow to load)

    with translated(where), _new_experiment(client, where, experiment) as experiment_id:
        written = 0
        for tracked in trials:
            trial = tracked.trial
            began_ms, ended_ms = round(1000 * tracked.began_s), round(1000 * tracked.ended_s)
            tags = {key: value[:TAG_CHARACTERS] for key, value in tracked.tags.items()}
            created = client.create_run(experiment_id, began_ms, tags, trial.trial_id)
            run_id = str(created.info.run_id)
            params = [Param(name, str(value)) for name, value in tracked.params.items()]
            metrics = [Metric(name, value, ended_ms, 0) for name, value in tracked.metrics.items()]
            metrics += [
                Metric(name, value, began_ms + round(1000 * point.elapsed_s), point.step)
                for point in curves(trial.trial_id)
                for name, value in curve_metrics(point).items()
            ]
            batches = max(-(-len(params) // PARAM_BATCH), -(-len(metrics) // BATCH))
            for number in range(batches):
                client.log_batch(
                    run_id,
                    metrics=metrics[number * BATCH : (number + 1) * BATCH],
                    params=params[number * PARAM_BATCH : (number + 1) * PARAM_BATCH],
                )
            status = run_status(trial)
            client.set_terminated(run_id, status, ended_ms)
            written += 1
        return written


@contextmanager
def _new_experiment(client: Any, where: str, name: str) -> Iterator[str]:
    """Yield the id of an experiment that gets its name on success, and is deleted on failure."""
    if client.get_experiment_by_name(name) is not None:
        raise FormatError(
            f"MLflow at {hidden(where)} has an experiment {name!r} already; choose another place "
            "with --out"
        )
    # No artifacts are stored, but by default MLflow would create a folder for them here.
    here = "://" not in where
    location = (Path(where).absolute().parent / "artifacts").as_uri() if here else None
    unfinished = f"{name} (unfinished {uuid4().hex[:8]})"
    experiment_id = str(client.create_experiment(unfinished, artifact_location=location))
    try:
        yield experiment_id
        client.rename_experiment(experiment_id, name)
    except BaseException:
        with suppress(Exception):  # only the first error is reported
            client.delete_experiment(experiment_id)
        raise
