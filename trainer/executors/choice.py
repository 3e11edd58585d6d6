"""Which executor a name means: the one place that chooses."""

from __future__ import annotations

from collections.abc import Callable

from autoresearch.errors import SettingsError
from trainer.executors.base import Executor
from trainer.executors.local import COMMAND_ENTRY, ENTRY, LocalExecutor

EXECUTORS: dict[str, Callable[[bool, str], Executor]] = {
    "local": lambda allow_unsandboxed, entry: LocalExecutor(
        allow_unsandboxed=allow_unsandboxed, entry=entry
    ),
}
"""What opens each, told whether trials may run where they cannot be confined, and what they run."""


def choose_executor(
    name: str = "local", *, allow_unsandboxed: bool, of_command: bool = False
) -> Executor:
    """Open the executor of that name; whoever asked closes it.

    :param allow_unsandboxed: go on, and say so, where a trial cannot be confined.
    :param of_command: trials run a command, and not the built-in trainer.
    :raises SandboxError: where it cannot be, and that is not allowed.
    :raises SettingsError: where there is no such executor.
    """
    if name not in EXECUTORS:
        raise SettingsError(f"there is no executor {name!r}; choose one of {', '.join(EXECUTORS)}")
    return EXECUTORS[name](allow_unsandboxed, COMMAND_ENTRY if of_command else ENTRY)
