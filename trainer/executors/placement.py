"""Divide this machine among its lanes: some of its cores, or one of its GPUs, for each."""

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
    """The environment from which its trials' variables are taken; None: this process's."""


def spots(lanes: int, device: str) -> list[Spot]:
    """Return the shares of this machine for ``lanes`` lanes of a campaign on ``device``.

    On a CPU all lanes have the same number of cores, so that their trials sum in the same order.
    With more lanes than cores, some lanes share a core. On GPUs each lane has its own.

    :raises SettingsError: if there are fewer GPUs, or the device names one of them.
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
    """Return the processors that this process may use."""
    return sorted(os.sched_getaffinity(0))


def shares(cores: Sequence[int], lanes: int) -> list[tuple[int, ...]]:
    """Deal the same number of cores to each lane; a remainder is left to other processes."""
    each = max(1, len(cores) // lanes)
    return [
        tuple(cores[(lane * each + n) % len(cores)] for n in range(each)) for lane in range(lanes)
    ]


def visible_gpus() -> list[str]:
    """Return how CUDA_VISIBLE_DEVICES names each GPU that this process may use."""
    named = named_gpus()
    return [str(number) for number in range(gpu_count())] if named is None else named
