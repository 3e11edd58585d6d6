"""Log to MLflow, TensorBoard or Weights & Biases; a resumed loop continues the same run."""

import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from agent.loggers.base import (
    CampaignFacts,
    RunEvent,
    TrialBegan,
    TrialPoint,
    iteration_metrics,
)
from autoresearch.errors import SettingsError
from autoresearch.layout import trial_number
from trajectory.formats.mlflow_runs import mlflow_client, translated
from trajectory.formats.tracked import curve_metrics, metrics_of
from trajectory.rows import BaselineRow, IterationRow, TrialRecord

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
        known = self._client.get_experiment_by_name(facts.name)
        if known is None:
            # No artifacts are stored, but by default MLflow would create a folder for them here.
            here = "://" not in where
            location = (facts.directory / "artifacts").resolve().as_uri() if here else None
            created = self._client.create_experiment(facts.name, artifact_location=location)
            self._experiment = str(created)
        else:
            self._experiment = str(known.experiment_id)
        found = self._client.search_runs(
            [self._experiment], f"tags.`{CAMPAIGN_TAG}` = '{facts.id}'", max_results=1
        )
        if found:
            self._campaign_run = str(found[0].info.run_id)
            self._client.update_run(self._campaign_run, "RUNNING")
        else:
            tags = {CAMPAIGN_TAG: facts.id}
            run = self._client.create_run(self._experiment, tags=tags, run_name="campaign")
            self._campaign_run = str(run.info.run_id)
            for name, value in facts.config.items():
                self._client.log_param(self._campaign_run, name, value)
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
            from mlflow.entities import Param  # noqa: PLC0415 (an extra, slow to load)

            spec, experiment = event.spec, self._experiment
            tags = {"role": event.role, "config_hash": spec.config.config_hash}
            created = self._client.create_run(experiment, tags=tags, run_name=spec.trial_id)
            begun = self._runs[spec.trial_id] = str(created.info.run_id)
            params = {**spec.config.canonical(), "seed": spec.seed}
            said = [Param(name, str(value)) for name, value in params.items()]
            self._client.log_batch(begun, params=said)
        elif isinstance(event, TrialPoint):
            run = self._runs.get(event.trial_id)
            if run is not None:
                self._add(run, curve_metrics(event.point), event.point.step)
                if event.point.step % POINTS == 0:
                    self._send(run)
        elif isinstance(event, TrialRecord):
            run = self._runs.pop(event.trial_id, None)
            if run is not None:
                self._add(run, metrics_of(event.result), 0)
                self._send(run)
                self._client.set_tag(run, "status", event.result.status)
                failed = event.objective is None
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


class TensorboardLogger:
    """Event files in a directory; a resumed loop adds to them."""

    def __init__(self, directory: Path) -> None:
        from tensorboard.summary import Writer  # noqa: PLC0415 (an extra)

        self._writer_of = Writer
        self._directory = directory
        self._campaign: Any = Writer(str(directory / "campaign"))
        self._trial: Any = None
        self._trial_id = ""

    def log(self, event: RunEvent) -> None:
        """See :class:`~agent.loggers.base.RunLogger`."""
        if isinstance(event, TrialPoint):
            writer = self._writer(event.trial_id)
            _add(writer, "trial", curve_metrics(event.point), event.point.step)
        elif isinstance(event, TrialRecord):
            writer = self._writer(event.trial_id)
            _add(writer, "result", metrics_of(event.result), 0)
            writer.flush()
        elif isinstance(event, IterationRow):
            _add(self._campaign, "iteration", iteration_metrics(event), event.iter)
            self._campaign.flush()
        elif isinstance(event, BaselineRow) and event.trial.objective is not None:
            scores = {"objective": event.trial.objective}
            _add(self._campaign, "baseline", scores, event.trial.seed)

    def close(self) -> None:
        """See :class:`~agent.loggers.base.RunLogger`."""
        for writer in (self._trial, self._campaign):
            if writer is not None:
                writer.close()

    def _writer(self, trial_id: str) -> Any:
        """Return the running trial's writer; trials run one at a time."""
        if trial_id != self._trial_id:
            if self._trial is not None:
                self._trial.close()
            self._trial = self._writer_of(str(self._directory / "trials" / trial_id))
            self._trial_id = trial_id
        return self._trial


def _add(writer: Any, prefix: str, metrics: dict[str, float], step: int) -> None:
    for name, value in metrics.items():
        writer.add_scalar(f"{prefix}/{name}", value, step)


class WandbLogger:
    """One W&B run with the campaign's id."""

    def __init__(self, project: str, facts: CampaignFacts) -> None:
        """Open the run.

        :raises SettingsError: if nobody is logged in and W&B is not set to work offline.
        """
        import wandb  # noqa: PLC0415 (an extra, slow to load)

        quiet = wandb.Settings(silent=True, console="off")
        if wandb.setup(settings=quiet).settings.mode == "online" and not wandb.login(prompt=False):
            raise SettingsError(
                "Weights & Biases has no key; run wandb login first, or set WANDB_MODE=offline"
            )
        self._wandb: Any = wandb
        try:
            self._run = wandb.init(
                project=project,
                id=facts.id,
                name=facts.directory.resolve().name,
                dir=str(facts.directory),
                config=dict(facts.config),
                resume="allow",
                settings=quiet,
            )
            self._run.define_metric("iter")
            self._run.define_metric("iteration/*", step_metric="iter")
            self._run.define_metric("trial/step")
            self._run.define_metric("trial/*", step_metric="trial/step")
        except BaseException:
            self._end()
            raise

    def log(self, event: RunEvent) -> None:
        """See :class:`~agent.loggers.base.RunLogger`."""
        if isinstance(event, TrialPoint):
            named = {f"trial/{name}": v for name, v in curve_metrics(event.point).items()}
            number = trial_number(event.trial_id)
            self._run.log({**named, "trial/step": event.point.step, "trial/number": number})
        elif isinstance(event, TrialRecord):
            named = {f"result/{name}": v for name, v in metrics_of(event.result).items()}
            self._run.log({**named, "result/trial": trial_number(event.trial_id)})
        elif isinstance(event, IterationRow):
            named = {f"iteration/{name}": v for name, v in iteration_metrics(event).items()}
            self._run.log({**named, "iter": event.iter})
        elif isinstance(event, BaselineRow) and event.trial.objective is not None:
            self._run.log({"baseline/objective": event.trial.objective})

    def close(self) -> None:
        """See :class:`~agent.loggers.base.RunLogger`."""
        try:
            self._run.finish()
        finally:
            self._end()

    def _end(self) -> None:
        """Stop W&B's service process. At exit it would stop with a traceback if the service is
        gone, and its library would end this process if the service ended badly."""
        with suppress(Exception, SystemExit):
            self._wandb.teardown()
