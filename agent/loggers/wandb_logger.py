"""Log to Weights & Biases: one run per campaign, which a resumed loop continues.

Iterations are charted against ``iter``, the steps of trials against ``trial/step``, with the
trial's number beside them.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from agent.loggers.base import (
    CampaignFacts,
    RunEvent,
    TrialEnded,
    TrialPoint,
    iteration_metrics,
)
from autoresearch.errors import SettingsError
from trajectory.formats.tracked import curve_metrics, metrics_of
from trajectory.rows import BaselineRow, IterationRow


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
            number = _number(event.trial_id)
            self._run.log({**named, "trial/step": event.point.step, "trial/number": number})
        elif isinstance(event, TrialEnded):
            named = {f"result/{name}": v for name, v in metrics_of(event.trial.result).items()}
            self._run.log({**named, "result/trial": _number(event.trial.trial_id)})
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


def _number(trial_id: str) -> int:
    """Return the number in a trial's id: 12 for ``t000012``."""
    return int(trial_id[1:])
