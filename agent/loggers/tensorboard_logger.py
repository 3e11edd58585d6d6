"""Log to TensorBoard: iterations in one run, each trial's curve in its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from agent.loggers.base import RunEvent, TrialEnded, TrialPoint, iteration_metrics
from trajectory.formats.tracked import curve_metrics, metrics_of
from trajectory.rows import BaselineRow, IterationRow


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
        elif isinstance(event, TrialEnded):
            writer = self._writer(event.trial.trial_id)
            _add(writer, "result", metrics_of(event.trial.result), 0)
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
