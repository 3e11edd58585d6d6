"""Measure the hosts' link by all-reduce on all hosts at once, as in training."""

from __future__ import annotations

import time
from statistics import median

import torch
import torch.distributed as dist

from trainer.parallel.hosts.job import LinkSpeed

_ABOUT_S = 3.0
"""Approximate seconds of all large all-reduces together."""
_LEAST, _MOST = 3, 20
_SMALL = 30


def measure_link(message_bytes: int, device: torch.device) -> LinkSpeed:
    """Time all-reduces of one number and of ``message_bytes``, in the default process group.

    Every rank calls it; it returns the slowest host's times on all.
    """
    small = torch.ones(1, device=device)
    large = torch.ones(message_bytes // 4, device=device)
    latency_s = _agreed(median(_timed(small, _SMALL)[_SMALL // 3 :]), device)
    (trial_s,) = _timed(large, 1)
    repeats = round(_ABOUT_S / max(_agreed(trial_s, device), 1e-6))
    repeats = max(_LEAST, min(_MOST, repeats))
    seconds = _agreed(median(_timed(large, repeats)), device)
    return LinkSpeed(
        network="NCCL" if device.type == "cuda" else "gloo",
        hosts=dist.get_world_size(),
        message_bytes=4 * large.numel(),
        seconds=seconds,
        repeats=repeats,
        latency_us=1e6 * latency_s,
    )


def _timed(tensor: torch.Tensor, repeats: int) -> list[float]:
    """Return the seconds of each all-reduce, from when all hosts are ready."""
    seconds = []
    for _ in range(repeats):
        dist.barrier()
        _settle(tensor)
        began = time.perf_counter()
        dist.all_reduce(tensor)
        _settle(tensor)
        seconds.append(time.perf_counter() - began)
        tensor.fill_(1.0)
    return seconds


def _settle(tensor: torch.Tensor) -> None:
    if tensor.is_cuda:
        torch.cuda.synchronize(tensor.device)


def _agreed(seconds: float, device: torch.device) -> float:
    """Return the slowest host's time."""
    slowest = torch.tensor(seconds, dtype=torch.float64, device=device)
    dist.all_reduce(slowest, op=dist.ReduceOp.MAX)
    return float(slowest)
