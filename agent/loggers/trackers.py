"""Log to MLflow, TensorBoard or Weights & Biases; a resumed loop continues the same run."""

import re
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from agent.loggers.base import CampaignFacts, RunEvent, TrialBegan, numbers_of
from autoresearch.errors import SettingsError
from autoresearch.files import read_given
from autoresearch.layout import trial_number
from trajectory.formats.mlflow_runs import mlflow_client, run_status, translated
from trajectory.rows import TrialRecord

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
        from mlflow.entities import Metric, Param  # noqa: PLC0415 (an extra, slow to load)

        if isinstance(event, TrialBegan):
            spec = event.spec
            tags = {"role": event.role, "config_hash": spec.config.config_hash}
            run = self._client.create_run(self._experiment, tags=tags, run_name=spec.trial_id)
            begun = self._runs[spec.trial_id] = str(run.info.run_id)
            params = {**spec.config.canonical(), "seed": spec.seed}
            said = [Param(name, str(value)) for name, value in params.items()]
            self._client.log_batch(begun, params=said)
        found = numbers_of(event)
        if found is None or (found.trial_id and found.trial_id not in self._runs):
            return
        place = self._runs[found.trial_id] if found.trial_id else self._campaign_run
        prefix = "baseline_" if found.group == "baseline" else ""
        now_ms = round(1000 * time.time())
        self._pending.setdefault(place, []).extend(
            Metric(prefix + name, value, now_ms, found.step) for name, value in found.values.items()
        )
        if found.group != "trial" or found.step % POINTS == 0:
            self._send(place)
        if isinstance(event, TrialRecord):
            self._client.set_tag(place, "status", event.result.status)
            self._client.set_terminated(place, run_status(event))
            del self._runs[event.trial_id]

    def close(self) -> None:
        """See :class:`~agent.loggers.base.RunLogger`."""
        for run in self._runs.values():
            self._send(run)
            self._client.set_terminated(run, "KILLED")
        self._client.set_terminated(self._campaign_run, "FINISHED")

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
        self._trials: dict[str, Any] = {}
        """Writer of each running trial."""

    def log(self, event: RunEvent) -> None:
        """See :class:`~agent.loggers.base.RunLogger`."""
        if (found := numbers_of(event)) is None:
            return
        writer, name = self._campaign, found.trial_id
        if name is not None:
            if name not in self._trials:
                self._trials[name] = self._writer_of(str(self._directory / "trials" / name))
            writer = self._trials[name]
        for metric, value in found.values.items():
            writer.add_scalar(f"{found.group}/{metric}", value, found.step)
        if found.group == "result":
            self._trials.pop(found.trial_id or "").close()
        elif found.group == "iteration":
            writer.flush()

    def close(self) -> None:
        """See :class:`~agent.loggers.base.RunLogger`."""
        for writer in (*self._trials.values(), self._campaign):
            writer.close()


class WandbLogger:
    """One W&B run with the campaign's id."""

    def __init__(self, project: str, facts: CampaignFacts) -> None:
        """Open the run.

        :raises SettingsError: if nobody is logged in and W&B is not set to work offline.
        """
        import wandb  # noqa: PLC0415 (an extra, slow to load)

        _refuse_redirection(Path.cwd())
        # W&B would run git here, which runs programs that the repository's configuration names.
        quiet = wandb.Settings(silent=True, console="off", disable_git=True)
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
        if (found := numbers_of(event)) is None:
            return
        number = trial_number(found.trial_id) if found.trial_id else 0
        beside = {
            "trial": {"trial/step": found.step, "trial/number": number},
            "result": {"result/trial": number},
            "iteration": {"iter": found.step},
            "baseline": {},
        }
        named = {f"{found.group}/{name}": value for name, value in found.values.items()}
        self._run.log(named | beside[found.group])

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


_ALLOWED_SETTINGS = {"project", "entity", "mode", "disabled"}
_SETTING = re.compile(r"^\s*([\w.-]+)\s*[=:]", re.MULTILINE)


def _refuse_redirection(here: Path) -> None:
    """Check the settings that W&B reads from the current directory: whoever made it could have W&B
    send its key elsewhere.

    :raises SettingsError: if they set more than where to log.
    """
    for path in (here / "wandb" / "settings", here / ".wandb" / "settings"):
        try:
            text = read_given(path, 1 << 16).decode("utf-8", "replace")
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            raise SettingsError(f"{path} cannot be read ({error.strerror}); remove it") from error
        if more := sorted(set(_SETTING.findall(text)) - _ALLOWED_SETTINGS):
            raise SettingsError(
                f"{path} sets {', '.join(more)[:100]}, which may send your key elsewhere; put that "
                "into WANDB_ variables or into ~/.config/wandb/settings, and remove it there"
            )
