"""Compute a run's rate of interruptions, the cost of its checkpoints, and its timeouts.

Interruptions come from hardware and, on spot GPUs, from preemption. Llama 3 had 419 unexpected ones
in 54 days on 16,384 GPUs (arXiv 2407.21783, section 3.3.4), which is one in 50,700 GPU-hours. The
interval between checkpoints is Young's (1974), ``sqrt(2 × pause × mean time between
interruptions)``, with the pause of a synchronous save, and at most an hour. The lost time is the
pauses and, for each interruption, half an interval and the restart.
"""

import math

from autoresearch.values import Frozen, NonNegative, Positive, PositiveInt
from funnel.cost.bill import Preemption
from funnel.plan.layout import Cluster

GPU_HOURS_BETWEEN_FAILURES = 16_384 * 54 * 24 / 419
LONGEST_INTERVAL_H = 1.0
"""Longest interval between checkpoints, and so the most training time that a failure loses."""
COPY_GB_S = 20.0
"""Bandwidth from a GPU to its host's memory during the pause of an asynchronous save.

It is assumed: less than half of the 63 GB/s of PCIe 5.0 x16.
"""
START_S = 300.0
"""Assumed time to start processes, join NCCL's groups, open the data and compile."""
SHORTEST_TIMEOUT_S = 300


USUAL_PREEMPTIONS = 2.0
"""Assumed preemptions per day of a whole spot booking."""


class Terms(Frozen):
    """How the GPUs are rented."""

    spot: bool = False
    """Whether the provider may reclaim the GPUs at any time."""
    preemptions_per_day: NonNegative = USUAL_PREEMPTIONS
    """Preemptions per day of the whole booking, if it is spot."""
    storage_gb_s: Positive = 5.0
    """Bandwidth of the shared storage over all nodes, assumed until measured."""


class Operations(Frozen):
    """The run's interruptions and their cost."""

    spot: bool
    interruptions_per_day: NonNegative
    save_s: Positive
    """Seconds to write a checkpoint; training continues during an asynchronous save."""
    pause_async_s: Positive
    """Seconds that an asynchronous save pauses the training."""
    pause_sync_s: Positive
    """Seconds that a synchronous save pauses the training."""
    restart_s: Positive
    """Seconds from an interruption to the next step, once machines are available."""
    timeout_s: PositiveInt
    """Seconds that a collective may take during training before the job is ended."""
    disturbed: Preemption
    """Pauses, repeated work and restarts, as the bill counts them.

    The time without spot GPUs is not included.
    """
    hours: Positive
    """Hours of training, pauses, repeated work and restarts."""
    cost_usd: NonNegative


def interruptions_per_day(terms: Terms, cluster: Cluster) -> float:
    """Return the interruptions per day of the whole booking."""
    failures = 24 * cluster.world_size / GPU_HOURS_BETWEEN_FAILURES
    return failures + (terms.preemptions_per_day if terms.spot else 0.0)


def pause_s(size_gb: float, cluster: Cluster) -> float:
    """Return the seconds that an asynchronous save pauses training, to copy from GPUs to hosts."""
    return size_gb / cluster.world_size / COPY_GB_S


def save_interval_h(terms: Terms, size_gb: float, cluster: Cluster) -> float:
    """Return Young's interval in hours, at most an hour and at least the time of two saves.

    It assumes synchronous saves, since a run may need them. For asynchronous saves a shorter
    interval would be optimal, but this one puts less load on the storage.
    """
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
    """Return the run's interruptions, their cost, and the hours that they add.

    :param size_gb: size of a checkpoint, in 10^9 bytes.
    :param every_h: hours between checkpoints.
    :param hours: hours of training alone.
    :param usd_per_h: hourly price of all GPUs.
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
        # A synchronous save is the longest wait of ranks for each other.
        timeout_s=max(SHORTEST_TIMEOUT_S, 60 * math.ceil(3 * save_s / 60)),
        disturbed=disturbed,
        hours=expected_h,
        cost_usd=expected_h * usd_per_h,
    )
