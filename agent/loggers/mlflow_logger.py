"""Log to MLflow: one run for the campaign, with a step per iteration, and one run per trial."""

from __future__ import annotations

import time
from typing import Any

from agent.loggers.base import (
    CampaignFacts,
    RunEvent,
    TrialBegan,
    TrialEnded,
    TrialPoint,
    iteration_metrics,
)
from trainer.spec import TrialSpec
from trajectory.formats.mlflow_runs import mlflow_client, translated
from trajectory.formats.tracked import curve_metrics, metrics_of
from trajectory.rows import BaselineRow, IterationRow, Role

POINTS = 50
"""Curve points sent per request."""
CAMPAIGN_TAG = "autoresearch.campaign_id"


class MlflowLogger:
    """One experiment, named after the campaign; a resumed loop continues it."""

    def __init__(self, where: str, facts: CampaignFacts) -> None:
        """Open the experiment.

        :param where: a file's path or a tracking URI.
        :raises FormatError: if MLflow is not installed or cannot use it.
        """
        self._where = where
        self._client = mlflow_client(where)
        self._experiment = self._experiment_id(where, facts)
        self._campaign_run = self._campaign_run_id(facts)
        self._runs: dict[str, str] = {}
        """MLflow run of each running trial."""
        self._pending: dict[str, list[Any]] = {}
        """Metrics by run, not sent yet."""

    def log(self, event: RunEvent) -> None:
        """See :class:`~agent.loggers.base.RunLogger`.

        :raises FormatError: if MLflow refuses the event.
        """
        with translated(self._where):
            self._log(event)

    def _log(self, event: RunEvent) -> None:
        if isinstance(event, TrialBegan):
            self._begin(event.spec, event.role)
        elif isinstance(event, TrialPoint):
            run = self._runs.get(event.trial_id)
            if run is not None:
                self._add(run, curve_metrics(event.point), event.point.step)
                if event.point.step % POINTS == 0:
                    self._send(run)
        elif isinstance(event, TrialEnded):
            run = self._runs.pop(event.trial.trial_id, None)
            if run is not None:
                self._add(run, metrics_of(event.trial.result), 0)
                self._send(run)
                self._client.set_tag(run, "status", event.trial.result.status)
                failed = event.trial.objective is None
                self._client.set_terminated(run, "FAILED" if failed else "FINISHED")
        elif isinstance(event, IterationRow):
            self._add(self._campaign_run, iteration_metrics(event), event.iter)
            self._send(self._campaign_run)
        elif isinstance(event, BaselineRow) and event.trial.objective is not None:
            self._add(
                self._campaign_run, {"baseline_objective": event.trial.objective}, event.trial.seed
            )
            self._send(self._campaign_run)

    def close(self) -> None:
        """See :class:`~agent.loggers.base.RunLogger`."""
        for run in self._runs.values():
            self._send(run)
            self._client.set_terminated(run, "KILLED")
        self._client.set_terminated(self._campaign_run, "FINISHED")

    def _experiment_id(self, where: str, facts: CampaignFacts) -> str:
        known = self._client.get_experiment_by_name(facts.name)
        if known is not None:
            return str(known.experiment_id)
        # Nothing is stored as an artifact, but by default MLflow would create a folder for
        # artifacts here.
        location = None if "://" in where else (facts.directory / "artifacts").resolve().as_uri()
        return str(self._client.create_experiment(facts.name, artifact_location=location))

    def _campaign_run_id(self, facts: CampaignFacts) -> str:
        found = self._client.search_runs(
            [self._experiment], f"tags.`{CAMPAIGN_TAG}` = '{facts.id}'", max_results=1
        )
        if found:
            self._client.update_run(found[0].info.run_id, "RUNNING")
            return str(found[0].info.run_id)
        tags = {CAMPAIGN_TAG: facts.id}
        created = self._client.create_run(self._experiment, tags=tags, run_name="campaign")
        for name, value in facts.config.items():
            self._client.log_param(created.info.run_id, name, value)
        return str(created.info.run_id)

    def _begin(self, spec: TrialSpec, role: Role) -> None:
        from mlflow.entities import Param  # noqa: PLC0415 (an extra, slow to load)

        tags = {"role": role, "config_hash": spec.config.config_hash}
        created = self._client.create_run(self._experiment, tags=tags, run_name=spec.trial_id)
        run = self._runs[spec.trial_id] = str(created.info.run_id)
        params = {**spec.config.canonical(), "seed": spec.seed}
        self._client.log_batch(run, params=[Param(n, str(value)) for n, value in params.items()])

    def _add(self, run: str, metrics: dict[str, float], step: int) -> None:
        from mlflow.entities import Metric  # noqa: PLC0415 (an extra, slow to load)

        now_ms = round(1000 * time.time())
        self._pending.setdefault(run, []).extend(
            Metric(name, value, now_ms, step) for name, value in metrics.items()
        )

    def _send(self, run: str) -> None:
        metrics = self._pending.pop(run, [])
        if metrics:
            self._client.log_batch(run, metrics=metrics)
