"""A campaign as MLflow runs: one per trial, its config as parameters, its curve as metrics."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from trainer.spec import CurvePoint
from trajectory.errors import FormatError
from trajectory.formats.foreign import ForeignRun, Measure
from trajectory.formats.tracked import Tracked, curve_metrics

BATCH = 900
PARAM_BATCH = 100
"""MLflow takes at most 1,000 things at once, of which 100 may be parameters."""
TAG_CHARACTERS = 5000
Curves = Callable[[str], Sequence[CurvePoint]]
"""From a trial's id to its curve; empty where there is none."""


def tracking_uri(where: str) -> str:
    """An MLflow address: as it is, or that of a SQLite file at a path."""
    return where if "://" in where else f"sqlite:///{Path(where).absolute()}"


def mlflow_client(where: str) -> Any:
    """
    :raises FormatError: where MLflow is not installed, or the address is none it can use.
    """
    try:
        from mlflow.tracking import MlflowClient  # noqa: PLC0415 (an extra, slow to load)
    except ModuleNotFoundError as error:
        raise FormatError(
            "MLflow is not installed; run: pip install 'autoresearch[mlflow]'"
        ) from error
    logging.getLogger("mlflow").setLevel(logging.WARNING)  # it announces each table it makes
    with translated(where):
        return MlflowClient(tracking_uri=tracking_uri(where))


@contextmanager
def translated(where: str) -> Iterator[None]:
    """Turn what MLflow refuses into one sentence.

    :raises FormatError: for an MlflowException within.
    """
    from mlflow.exceptions import MlflowException  # noqa: PLC0415 (an extra, slow to load)

    try:
        yield
    except MlflowException as error:
        raise FormatError(
            f"MLflow at {where} refuses: {str(error).splitlines()[0]}; give a file's path or the "
            "URI of a tracking server"
        ) from error


def write_trials(where: str, experiment: str, trials: Iterable[Tracked], curves: Curves) -> int:
    """A run per trial in a new experiment; how many.

    :raises FormatError: where the experiment is there already.
    """
    client = mlflow_client(where)
    with translated(where):
        return _write_trials(client, _new_experiment(client, where, experiment), trials, curves)


def _write_trials(
    client: Any, experiment_id: str, trials: Iterable[Tracked], curves: Curves
) -> int:
    written = 0
    for tracked in trials:
        run_id = _begin(
            client, experiment_id, tracked.trial.trial_id, tracked.began_s, tracked.tags
        )
        began_ms = _ms(tracked.began_s)
        metrics = [
            (name, value, _ms(tracked.ended_s), 0) for name, value in tracked.metrics.items()
        ]
        metrics += [
            (name, value, began_ms + _ms(point.elapsed_s), point.step)
            for point in curves(tracked.trial.trial_id)
            for name, value in curve_metrics(point).items()
        ]
        _log(client, run_id, tracked.params, metrics)
        failed = tracked.trial.val_bpb is None
        client.set_terminated(run_id, "FAILED" if failed else "FINISHED", _ms(tracked.ended_s))
        written += 1
    return written


def write_runs(where: str, experiment: str, runs: Iterable[ForeignRun], measure: Measure) -> int:
    """A run per measured or failed run of another tool in a new experiment; how many.

    :raises FormatError: where the experiment is there already.
    """
    client = mlflow_client(where)
    with translated(where):
        return _write_runs(client, _new_experiment(client, where, experiment), runs, measure)


def _write_runs(
    client: Any, experiment_id: str, runs: Iterable[ForeignRun], measure: Measure
) -> int:
    written = 0
    for run in runs:
        if run.config_key is None or run.status not in {"measured", "failed"}:
            continue
        tags = {"iter": str(run.iter), "status": run.status, "action": run.action}
        tags |= {"reason": run.reason, "why": run.why}
        run_id = _begin(client, experiment_id, run.name or f"iteration {run.iter}", None, tags)
        numbers = {
            name: float(value)
            for name, value in run.metrics.items()
            if isinstance(value, int | float) and not isinstance(value, bool)
        }
        scored = {measure: run.score} if run.score is not None else {}
        metrics = [(name, value, 0, 0) for name, value in (numbers | scored).items()]
        _log(client, run_id, run.values or {}, metrics)
        client.set_terminated(run_id, "FAILED" if run.score is None else "FINISHED")
        written += 1
    return written


def _new_experiment(client: Any, where: str, name: str) -> str:
    if client.get_experiment_by_name(name) is not None:
        raise FormatError(
            f"MLflow at {where} has an experiment {name!r} already; name another place with --out"
        )
    # Nothing is stored as an artifact; left to itself MLflow would make a folder for them here.
    here = "://" not in where
    location = (Path(where).absolute().parent / "artifacts").as_uri() if here else None
    return str(client.create_experiment(name, artifact_location=location))


def _begin(
    client: Any, experiment_id: str, name: str, began_s: float | None, tags: dict[str, str]
) -> str:
    cut = {key: value[:TAG_CHARACTERS] for key, value in tags.items()}
    start = None if began_s is None else _ms(began_s)
    return str(client.create_run(experiment_id, start, cut, name).info.run_id)


def _log(
    client: Any,
    run_id: str,
    params: dict[str, Any],
    metrics: Sequence[tuple[str, float, int, int]],
) -> None:
    """Metrics as (name, value, milliseconds since 1970, step)."""
    from mlflow.entities import Metric, Param  # noqa: PLC0415 (an extra, slow to load)

    named = [Param(name, str(value)) for name, value in params.items()]
    batches = max(-(-len(named) // PARAM_BATCH), -(-len(metrics) // BATCH))
    for number in range(batches):
        some = metrics[number * BATCH : (number + 1) * BATCH]
        client.log_batch(
            run_id,
            metrics=[Metric(*metric) for metric in some],
            params=named[number * PARAM_BATCH : (number + 1) * PARAM_BATCH],
        )


def _ms(seconds: float) -> int:
    return round(1000 * seconds)
