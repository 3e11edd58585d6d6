"""List the processes that an executor's trials have."""

from __future__ import annotations

import psutil

from trainer.executors.local import LocalExecutor


def of_trials(executor: LocalExecutor) -> list[psutil.Process]:
    """Return all processes below its fork server."""
    return psutil.Process(executor._server.pid).children(recursive=True)
