"""List the processes that an executor's trials have."""

from pathlib import Path

import psutil

from trainer.executors.local import LocalExecutor


def of_trials(executor: LocalExecutor) -> list[psutil.Process]:
    """Return all processes below its fork server."""
    return psutil.Process(executor.lane.server.pid).children(recursive=True)


def noted(trial_dir: Path) -> list[int]:
    """Return the processes that :func:`tests.support.hostile.spread` has recorded, in the end 4."""
    pids = trial_dir / "pids"
    return [int(line) for line in pids.read_text().split()] if pids.exists() else []


def alive(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False
