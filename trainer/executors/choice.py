"""Open the executor that a name means."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from autoresearch.errors import SettingsError
from trainer.executors.base import Executor
from trainer.executors.lanes import Lanes, spots, visible_gpus
from trainer.executors.local import LocalExecutor, LocalLane
from trainer.schema import Command, Place, trainer_of

EXECUTORS = ("local", "ray", "slurm")


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
    :param name: ``local``, ``ray``, ``ray:HOST:PORT``, ``slurm`` or ``slurm:OPTIONS OF SBATCH``.
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
    entry = trainer_of(command).entry
    if name == "local":
        return _local(lanes, device, allow_unsandboxed=allow_unsandboxed, entry=entry)
    there: dict[str, Any] = {
        "command": command,
        "corpus": corpus,
        "campaign": campaign,
        "device": device,
        "allow_unsandboxed": allow_unsandboxed,
        "entry": entry,
    }
    if name == "slurm":
        from trainer.executors.slurm.lane import open_slurm  # noqa: PLC0415 (few users need it)

        return open_slurm(address, lanes, **there)
    from trainer.executors.ray.cluster import open_cluster  # noqa: PLC0415 (few users need it)

    return open_cluster(address or None, lanes, kind=kind, **there)


def _local(lanes: int | None, device: str, *, allow_unsandboxed: bool, entry: str) -> Executor:
    if lanes == 1:
        return LocalExecutor(allow_unsandboxed=allow_unsandboxed, entry=entry)
    return Lanes(
        [
            LocalLane(
                place=Place(lane=spot.name),
                allow_unsandboxed=allow_unsandboxed,
                entry=entry,
                environ=spot.variables,
                gpu=spot.gpu,
                cores=spot.cores,
            )
            for spot in spots(lanes or max(1, len(visible_gpus())), device)
        ]
    )
