"""What each lane of this machine has for itself: some of its cores, or one of its GPUs."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from autoresearch.errors import SettingsError
from autoresearch.words import counted
from trainer.machine.environment import named_gpus, with_gpu
from trainer.machine.gpu import gpu_count


@dataclass(frozen=True, slots=True)
class Spot:
    """A lane's share of the machine."""

    name: str
    cores: tuple[int, ...] = ()
    variables: Mapping[str, str] | None = None
    """The environment that its trials' is taken from; None: this process's."""


def spots(lanes: int, device: str) -> list[Spot]:
    """Where so many lanes of this machine run, for a campaign on this device.

    On a CPU lanes have equally many cores, so that trials on any of them sum in the same order;
    with more lanes than cores some have the same one. On GPUs each has its own.

    :raises SettingsError: where there are fewer GPUs, or the device is one of them.
    """
    if device == "cpu":
        return [Spot(str(n), cores) for n, cores in enumerate(shares(usable_cores(), lanes))]
    if device != "cuda":
        raise SettingsError(
            f"--lanes {lanes} wants a GPU for each lane, and the campaign's device is {device}, "
            "which is one; leave --lanes out, or begin a campaign with --device cuda"
        )
    names = visible_gpus()
    if lanes > len(names):
        raise SettingsError(
            f"--lanes {lanes} wants as many GPUs, and {counted(len(names), 'GPU')} can be seen "
            f"here; ask for --lanes {max(1, len(names))}"
        )
    return [Spot(str(n), (), with_gpu(name)) for n, name in enumerate(names[:lanes])]


def usable_cores() -> list[int]:
    """The processors that this process may use."""
    return sorted(os.sched_getaffinity(0))


def shares(cores: Sequence[int], lanes: int) -> list[tuple[int, ...]]:
    """Equally many for each; what cannot be shared evenly is left to everything else."""
    each = max(1, len(cores) // lanes)
    return [
        tuple(cores[(lane * each + n) % len(cores)] for n in range(each)) for lane in range(lanes)
    ]


def visible_gpus() -> list[str]:
    """How CUDA_VISIBLE_DEVICES names each GPU that this process may use."""
    named = named_gpus()
    return [str(number) for number in range(gpu_count())] if named is None else named
