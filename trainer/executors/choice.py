"""Open the executor that a name means."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from autoresearch.errors import SettingsError
from trainer.executors.base import Executor
from trainer.executors.lanes import Lane, Lanes
from trainer.executors.local import COMMAND_ENTRY, ENTRY, LocalExecutor
from trainer.executors.placement import spots, visible_gpus
from trainer.spec import Command, Place


@dataclass(frozen=True, slots=True)
class Asked:
    """The request for an executor."""

    allow_unsandboxed: bool
    """Whether trials may run even if they cannot be confined."""
    command: Command | None
    """The command that a trial runs; None: the built-in trainer."""
    lanes: int | None = 1
    """Trials to run at once; None: as many as there are GPUs, or nodes of a cluster."""
    device: str = "cpu"
    address: str | None = None
    """The address of a cluster: ``HOST:PORT``."""
    kind: str | None = None
    """The kind of device that every node of a cluster must have."""
    campaign: Path = Path()
    corpus: Path | None = None

    @property
    def entry(self) -> str:
        """Return the entry point of a trial's process."""
        return ENTRY if self.command is None else COMMAND_ENTRY


def _local(asked: Asked) -> Executor:
    if asked.lanes == 1:
        return LocalExecutor(allow_unsandboxed=asked.allow_unsandboxed, entry=asked.entry)
    with ExitStack() as opened:
        wanted = asked.lanes or max(1, len(visible_gpus()))
        lanes = [
            opened.enter_context(
                Lane(
                    Place(lane=spot.name),
                    LocalExecutor(
                        allow_unsandboxed=asked.allow_unsandboxed,
                        entry=asked.entry,
                        environ=spot.variables,
                        cores=spot.cores,
                    ),
                )
            )
            for spot in spots(wanted, asked.device)
        ]
        opened.pop_all()
    return Lanes(lanes)


def _ray(asked: Asked) -> Executor:
    from trainer.executors.ray.cluster import ClusterLanes  # noqa: PLC0415 (few users need it)
    from trainer.executors.ray.needs import Needs  # noqa: PLC0415 (as above)
    from trainer.executors.ray.parcels import Parcel  # noqa: PLC0415 (as above)

    return ClusterLanes.opened(
        asked.address,
        asked.lanes,
        parcel=Parcel(asked.command, asked.corpus, asked.campaign),
        device=asked.device,
        kind=asked.kind,
        allow_unsandboxed=asked.allow_unsandboxed,
        entry=asked.entry,
        needs=None if asked.command is None else Needs.of(asked.command),
    )


EXECUTORS: dict[str, Callable[[Asked], Executor]] = {"local": _local, "ray": _ray}
"""The functions that open the executors, by name."""


def choose_executor(
    name: str = "local",
    *,
    allow_unsandboxed: bool,
    command: Command | None = None,
    lanes: int | None = 1,
    device: str = "cpu",
    kind: str | None = None,
    campaign: Path = Path(),
    corpus: Path | None = None,
) -> Executor:
    """Open the executor of that name; the caller closes it.

    :param allow_unsandboxed: if a trial cannot be confined, continue and report that.
    :param command: the command that trials run; None: the built-in trainer.
    :param name: ``local``, ``ray`` or ``ray:HOST:PORT``.
    :param lanes: trials to run at once; None: as many as there are GPUs, or nodes of a cluster.
    :param device: the campaign's device.
    :param kind: the kind of device that every node of a cluster must have; None: the most common.
    :param campaign: the campaign's directory, which is not sent to other machines.
    :param corpus: the directory of a corpus, which is sent to other machines if it is small.
    :raises SandboxError: if a trial cannot be confined and that is not allowed.
    :raises MachineryError: if no cluster answers.
    :raises SettingsError: if there is no such executor, or there are too few devices for the lanes.
    """
    name, _, address = name.partition(":")
    if name not in EXECUTORS or (address and name == "local"):
        raise SettingsError(f"there is no executor {name!r}; choose one of {', '.join(EXECUTORS)}")
    return EXECUTORS[name](
        Asked(
            allow_unsandboxed,
            command,
            lanes,
            device,
            address or None,
            kind,
            campaign,
            corpus,
        )
    )
