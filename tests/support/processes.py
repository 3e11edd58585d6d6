"""The processes that an executor's trials have."""

from __future__ import annotations

import psutil

from trainer.executors.local import LocalExecutor


def of_trials(executor: LocalExecutor) -> list[psutil.Process]:
    """All below its fork server but the one that waits to be the next trial."""
    below = psutil.Process(executor._server.pid).children(recursive=True)
    return [process for process in below if process.pid not in executor._server.no_trials]
