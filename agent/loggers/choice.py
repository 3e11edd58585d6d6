"""Choose the loggers: parse ``--log``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from agent.loggers.background import BackgroundLogger
from agent.loggers.base import CampaignFacts, RunLogger
from agent.settings.environment import check_tracker_secrets
from autoresearch.errors import SettingsError
from autoresearch.words import did_you_mean, json_text

DEFAULT_PROJECT = "autoresearch"
TRACKERS = ("mlflow", "wandb", "tensorboard")


@dataclass(frozen=True, slots=True)
class LogTarget:
    """One ``--log`` option whose library is installed."""

    tracker: str
    where: str
    """A URI, a project or a directory; empty: the default."""

    @classmethod
    def parse(cls, text: str) -> LogTarget:
        """Parse ``mlflow[:URI]``, ``wandb[:PROJECT]`` or ``tensorboard[:DIR]``.

        :raises SettingsError: on anything else, if the library is not installed, or if its key
            cannot be sent.
        """
        tracker, _, where = text.partition(":")
        if tracker not in TRACKERS:
            raise SettingsError(
                f"--log {json_text(text)} names no known tracker{did_you_mean(tracker, TRACKERS)}; "
                "write mlflow[:URI], wandb[:PROJECT] or tensorboard[:DIR]"
            )
        if find_spec(tracker) is None:
            raise SettingsError(
                f"--log {tracker} needs {tracker}, which is not installed; run: "
                f"pip install 'autoresearch[{tracker}]'"
            )
        check_tracker_secrets(tracker)
        return cls(tracker, where)

    def started(self, facts: CampaignFacts) -> BackgroundLogger:
        """Start its logger in a thread of its own."""
        return BackgroundLogger(self.tracker, self._opener(facts))

    def _opener(self, facts: CampaignFacts) -> Callable[[], RunLogger]:
        def opened() -> RunLogger:
            # Each library is slow to load: import it in the thread, and only if asked for.
            if self.tracker == "mlflow":
                from agent.loggers.mlflow_logger import MlflowLogger  # noqa: PLC0415

                return MlflowLogger(self.where or str(facts.directory / "mlflow.sqlite"), facts)
            if self.tracker == "wandb":
                from agent.loggers.wandb_logger import WandbLogger  # noqa: PLC0415

                return WandbLogger(self.where or DEFAULT_PROJECT, facts)
            from agent.loggers.tensorboard_logger import TensorboardLogger  # noqa: PLC0415

            return TensorboardLogger(Path(self.where or facts.directory / "tensorboard"))

        return opened


def log_targets(texts: Sequence[str]) -> tuple[LogTarget, ...]:
    """Return each distinct ``--log`` option.

    :raises SettingsError: see :meth:`LogTarget.parse`.
    """
    return tuple(dict.fromkeys(LogTarget.parse(text) for text in texts))
