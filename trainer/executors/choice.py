"""Which executor a name means: the one place that chooses."""

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
    """What an executor is opened for."""

    allow_unsandboxed: bool
    """Trials may run where they cannot be confined."""
    command: Command | None
    """What a trial runs; None: the built-in trainer."""
    lanes: int | None = 1
    """None: as many as there are GPUs, or nodes of a cluster."""
    device: str = "cpu"
    address: str | None = None
    """Of a cluster: ``HOST:PORT``."""
    kind: str | None = None
    """Of device, which every node of a cluster must have."""
    campaign: Path = Path()
    corpus: Path | None = None

    @property
    def entry(self) -> str:
        """Of a trial's process."""
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
    from trainer.executors.ray.choice import ClusterLanes  # noqa: PLC0415 (of use to few)
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
"""What opens each."""


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
    """Open the executor of that name; whoever asked closes it.

    :param allow_unsandboxed: go on, and say so, where a trial cannot be confined.
    :param command: what trials run; None: the built-in trainer.
    :param name: ``local``, ``ray`` or ``ray:HOST:PORT``.
    :param lanes: trials to run at once; None: as many as there are GPUs, or nodes of a cluster.
    :param device: the campaign's.
    :param kind: of device, which every node of a cluster must have; None: the commonest there.
    :param campaign: its directory, of which other machines are sent nothing.
    :param corpus: the directory of a corpus that other machines are sent where it is small.
    :raises SandboxError: where it cannot be, and that is not allowed.
    :raises MachineryError: where no cluster answers.
    :raises SettingsError: where there is no such executor, or too little for so many lanes.
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
