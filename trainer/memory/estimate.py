"""Estimate the memory that training a config needs, and choose a campaign's memory model."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, get_args

import psutil

from autoresearch.errors import MachineryError, SpecError
from autoresearch.values import Frozen, Positive
from trainer.machine.gpu import gpu_memory
from trainer.machine.host import MEMINFO, available_gib, lacking, unified_limit_gib
from trainer.memory.parts import (
    MemoryParts,
    fused,
    megatron,
    parameter_count,
    written_out,
)
from trainer.schema import DEFAULT_RESERVE_GIB, BackendName, Config

__all__ = ["GIB", "AnalyticMemory", "DeviceLimit", "device_limit", "parameter_count"]

GIB = 1 << 30

CPU_PROCESS_GIB = 0.20
"""Resident memory of a trial's process with torch imported, before it has a model."""
_CGROUP_LIMITS = (
    Path("/sys/fs/cgroup/memory.max"),
    Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class AnalyticMemory:
    """The estimate of :mod:`trainer.memory.parts` for the trials of a campaign.

    :raises SpecError: if there is no such backend.
    """

    vocab_size: int
    backend: str
    """A new one is assumed to hold what torch's operators hold, until :mod:`trainer.memory.parts`
    has its formulas."""
    device: str
    limit_gib: float
    """Memory that the device has for a trial."""
    kernels: bool = True
    """Whether the torch backend's kernels, which Triton compiles, run on the GPU."""
    means: int = 0
    """Means of the weights in fp32 that a trial keeps (:class:`trainer.schema.Averaging`)."""

    def __post_init__(self) -> None:
        if self.backend not in (names := get_args(BackendName)):
            raise SpecError(
                f"there is no backend {self.backend!r}; choose one of {', '.join(names)}"
            )

    def predict_gib(self, config: Config) -> float:
        """Return the predicted peak of training ``config``."""
        parts = self.parts(config)
        at_loss = parts.fixed_bytes + parts.per_token_bytes * config.tokens_per_step
        means_bytes = 4 * self.means * parameter_count(config, self.vocab_size)
        return (max(at_loss, parts.update_bytes) + means_bytes) / GIB

    def parts(self, config: Config) -> MemoryParts:
        """Return the terms of the prediction."""
        on_cpu = self.device == "cpu"
        is_fused = not on_cpu and self.backend == "torch" and self.kernels
        if self.backend == "megatron":
            parts = megatron(config, self.vocab_size)
        elif is_fused and not config.code:
            parts = fused(config, self.vocab_size)
        else:
            parts = written_out(config, self.vocab_size, on_cpu=on_cpu)
        if not on_cpu:
            return parts
        process = CPU_PROCESS_GIB * GIB
        return replace(
            parts,
            fixed_bytes=parts.fixed_bytes + process,
            update_bytes=parts.update_bytes + process,
        )


# --- available memory -------------------------------------------------------------------------


class DeviceLimit(Frozen):
    """Most memory that a trial may use."""

    gib: Positive
    source: Literal["device", "system", "available", "container", "trial"]
    """The GPU's own memory; the machine's; what a trial on a GPU that shares it may take of the
    memory available now; this container's limit; or the limit set for a trial."""
    is_shared: bool = False
    """Whether the GPU shares the machine's memory."""


def device_limit(
    device: str,
    trial_limit_gib: float | None = None,
    reserve_gib: float = DEFAULT_RESERVE_GIB,
    meminfo: Path = MEMINFO,
    *,
    places: int = 1,
) -> DeviceLimit:
    """Return the memory that a trial on ``device`` may use.

    On a CPU it is all memory of the machine, or an equal share if trials run side by side, so that
    repeated calls agree. On a GPU it is the memory free now, since other users stay; if it shares
    the machine's memory, the available memory minus the reserve. ``trial_limit_gib`` bounds a
    trial's resident memory, which is its peak on a CPU and says nothing about a GPU's.

    :param places: concurrent trials on a CPU; a GPU runs one.
    :raises SpecError: if there is no such device.
    :raises MachineryError: if none is left for a trial.
    """
    sharers = places if device == "cpu" else 1
    limits = [DeviceLimit(gib=psutil.virtual_memory().total / GIB / sharers, source="system")]
    for path in _CGROUP_LIMITS:
        with suppress(OSError):
            text = path.read_text("ascii").strip()
            # Version 1 says "no limit" with a number near 2**63.
            if text.isdigit() and 0 < int(text) < 1 << 60:
                gib = int(text) / GIB / sharers
                limits.append(DeviceLimit(gib=gib, source="container"))
    if device == "cpu":
        if trial_limit_gib is not None:
            limits.append(DeviceLimit(gib=trial_limit_gib, source="trial"))
        return min(limits, key=lambda limit: limit.gib)
    memory = gpu_memory(device)
    gpu_gib = memory.gib if memory.free_gib is None else memory.free_gib
    if gpu_gib == 0:
        raise MachineryError(f"{device} has no memory left; see with nvidia-smi who holds it")
    gpu = DeviceLimit(gib=gpu_gib, source="device")
    if not memory.is_unified:
        return gpu
    left_gib = unified_limit_gib(available_gib(meminfo), reserve_gib)
    left = DeviceLimit(gib=left_gib, source="available")
    least = min((*limits, gpu, left), key=lambda limit: limit.gib)
    return least.model_copy(update={"is_shared": True})


@dataclass(frozen=True, slots=True)
class MemoryChoice:
    """A campaign's memory model, and its description for a person."""

    model: AnalyticMemory | None
    """None if no prediction is possible."""
    description: str

    def for_defaults(self, config: Config, menu: str, device: str) -> MemoryChoice:
        """Return the same, describing what the menu's defaults need of a GPU.

        :raises MachineryError: if they do not fit into the free memory.
        """
        if self.model is None or device == "cpu":
            return self
        need_gib, free_gib = self.model.predict_gib(config), self.model.limit_gib
        if need_gib > free_gib:
            raise MachineryError(
                f"the defaults of menu {menu} need about {need_gib:.1f} GiB and {device} has"
                f" {free_gib:.1f} GiB free for a trial; see with nvidia-smi and `free -g` who holds"
                " the rest (a NIM's share is NIM_GPU_MEM_FRACTION), or choose a smaller menu"
            )
        parts = self.model.parts(config)
        need = f"{need_gib:.1f} GiB: {parts.fixed_bytes / GIB:.1f}, and"
        need += f" {parts.per_token_bytes / (1 << 20):.2f} MiB a token"
        return replace(self, description=f"{self.description}; the defaults need {need}")


def choose_memory(
    *,
    vocab_size: int,
    backend: str,
    device: str,
    average: bool = False,
    trial_limit_gib: float | None = None,
    reserve_gib: float = DEFAULT_RESERVE_GIB,
    places: int = 1,
) -> MemoryChoice:
    """Return the estimate by formula, within what a trial may use.

    :param average: whether trials keep a mean of their weights.
    :param places: concurrent trials on a CPU, each with its share of the memory.
    :raises SpecError: if there is no such device or backend.
    """
    limit = device_limit(device, trial_limit_gib, reserve_gib, places=places)
    shared = places > 1 and device == "cpu" and limit.source != "trial"
    description = (
        f"analytic estimate, of {limit.gib:.1f} GiB ({limit.source}"
        f"{f', shared by {places}' if shared else ''})"
    )
    if average:
        description += ", and a mean of the weights besides"
    model = AnalyticMemory(
        vocab_size=vocab_size,
        backend=backend,
        device=device,
        limit_gib=limit.gib,
        kernels=lacking() is None,
        means=1 if average else 0,
    )
    return MemoryChoice(model, description)
