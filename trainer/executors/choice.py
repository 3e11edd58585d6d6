"""Which executor a name means: the one place that chooses."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass

from autoresearch.errors import SettingsError
from trainer.executors.base import Executor
from trainer.executors.lanes import Lane, Lanes
from trainer.executors.local import COMMAND_ENTRY, ENTRY, LocalExecutor
from trainer.executors.placement import spots
from trainer.spec import Place


@dataclass(frozen=True, slots=True)
class Asked:
    """What an executor is opened for."""

    allow_unsandboxed: bool
    """Trials may run where they cannot be confined."""
    entry: str
    """What a trial runs."""
    lanes: int = 1
    device: str = "cpu"


def _local(asked: Asked) -> Executor:
    if asked.lanes == 1:
        return LocalExecutor(allow_unsandboxed=asked.allow_unsandboxed, entry=asked.entry)
    with ExitStack() as opened:
        lanes = [
            opened.enter_context(
                Lane(
                    Place(lane=spot.name),
                    LocalExecutor(
                        allow_unsandboxed=asked.allow_unsandboxed,
                        entry=asked.entry,
                        environ=spot.environ or None,
                        cores=spot.cores,
                    ),
                )
            )
            for spot in spots(asked.lanes, asked.device)
        ]
        opened.pop_all()
    return Lanes(lanes)


EXECUTORS: dict[str, Callable[[Asked], Executor]] = {"local": _local}
"""What opens each."""


def choose_executor(
    name: str = "local",
    *,
    allow_unsandboxed: bool,
    of_command: bool = False,
    lanes: int = 1,
    device: str = "cpu",
) -> Executor:
    """Open the executor of that name; whoever asked closes it.

    :param allow_unsandboxed: go on, and say so, where a trial cannot be confined.
    :param of_command: trials run a command, and not the built-in trainer.
    :param lanes: trials to run at once.
    :param device: the campaign's.
    :raises SandboxError: where it cannot be, and that is not allowed.
    :raises SettingsError: where there is no such executor, or too little for so many lanes.
    """
    if name not in EXECUTORS:
        raise SettingsError(f"there is no executor {name!r}; choose one of {', '.join(EXECUTORS)}")
    entry = COMMAND_ENTRY if of_command else ENTRY
    return EXECUTORS[name](Asked(allow_unsandboxed, entry, lanes, device))
