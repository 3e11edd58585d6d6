"""Compute how often a run is interrupted, what a checkpoint costs, and how long to wait.

Interruptions come from hardware (Llama 3: 419 unexpected ones in 54 days of 16,384 GPUs, arXiv
2407.21783, section 3.3.4: one in 50,700 GPU-hours) and, on spot GPUs, from preemption. The interval
between checkpoints is Young's (1974), ``sqrt(2 × pause × mean time between interruptions)`` with
the pause of a synchronous save, at most an hour. Losses are the pauses, half an interval per
interruption, and the restart.
"""

from __future__ import annotations

import math

from autoresearch.values import Frozen, NonNegative, Positive, PositiveInt
from funnel.cost.bill import Preemption
from funnel.plan.layout import Cluster

GPU_HOURS_BETWEEN_FAILURES = 16_384 * 54 * 24 / 419
LONGEST_INTERVAL_H = 1.0
"""The most that a failure can cost, whatever the formula says."""
COPY_GB_S = 20.0
"""From a GPU to its host's memory, while an asynchronous save holds the training up: assumed, less
than half of PCIe 5.0 x16's 63 GB/s."""
START_S = 300.0
"""To start processes, join NCCL's groups, open the data and compile: assumed."""
SHORTEST_TIMEOUT_S = 300


USUAL_PREEMPTIONS = 2.0
"""A day, of a whole spot booking: assumed."""


class Terms(Frozen):
    """How the GPUs are rented."""

    spot: bool = False
    """They may be taken back at any time."""
    preemptions_per_day: NonNegative = USUAL_PREEMPTIONS
    """Preemptions per day of the whole booking, if it is spot."""
    storage_gb_s: Positive = 5.0
    """Bandwidth of the shared storage, all nodes together: assumed until measured."""


class Operations(Frozen):
    """The run's interruptions and what they cost."""

    spot: bool
    interruptions_per_day: NonNegative
    save_s: Positive
    """To write a checkpoint: beside the training where saves are asynchronous."""
    pause_async_s: Positive
    """Seconds that an asynchronous save pauses the training."""
    pause_sync_s: Positive
    restart_s: Positive
    """From an interruption to the next step, the machines being there."""
    timeout_s: PositiveInt
    """How long a collective may take once training runs, before the job is ended."""
    disturbed: Preemption
    """Pauses, work done again, restarts, as the bill counts them. Waiting for spot GPUs to come
    back is not in it."""
    hours: Positive
    """Hours of training and of all these."""
    cost_usd: NonNegative


def interruptions_per_day(terms: Terms, cluster: Cluster) -> float:
    """Return the interruptions of the whole booking."""
    failures = 24 * cluster.world_size / GPU_HOURS_BETWEEN_FAILURES
    return failures + (terms.preemptions_per_day if terms.spot else 0.0)


def pause_s(size_gb: float, cluster: Cluster) -> float:
    """Return the pause of an asynchronous save: every GPU's part copied to its host."""
    return size_gb / cluster.world_size / COPY_GB_S


def save_interval_h(terms: Terms, size_gb: float, cluster: Cluster) -> float:
    """Young's interval for saves that the GPUs wait for, since they may have to; at most an hour
    and at least two saves. Where they need not wait it is longer than it need be, and the storage
    is left in peace."""
    between_s = 86_400 / interruptions_per_day(terms, cluster)
    save_s = size_gb / terms.storage_gb_s
    return min(LONGEST_INTERVAL_H, max(math.sqrt(2 * save_s * between_s), 2 * save_s) / 3600)


def plan_operations(
    terms: Terms,
    cluster: Cluster,
    *,
    size_gb: float,
    every_h: float,
    hours: float,
    usd_per_h: float,
) -> Operations:
    """Return what the run takes besides training.

    :param every_h: hours between checkpoints.
    :param hours: of training alone.
    :param usd_per_h: price of all GPUs.
    """
    a_day = interruptions_per_day(terms, cluster)
    save_s = size_gb / terms.storage_gb_s
    paused_s = pause_s(size_gb, cluster)
    restart_s = START_S + save_s
    disturbed = Preemption(
        per_day=a_day,
        checkpoint_hours=every_h,
        restart_hours=restart_s / 3600,
        pause_share=paused_s / (3600 * every_h),
    )
    expected_h = disturbed.expected_hours(hours)
    return Operations(
        spot=terms.spot,
        interruptions_per_day=a_day,
        save_s=save_s,
        pause_async_s=paused_s,
        pause_sync_s=save_s,
        restart_s=restart_s,
        # A synchronous save is the longest that ranks wait for each other.
        timeout_s=max(SHORTEST_TIMEOUT_S, 60 * math.ceil(3 * save_s / 60)),
        disturbed=disturbed,
        hours=expected_h,
        cost_usd=expected_h * usd_per_h,
    )
