"""Compute the cloud run's schedule, hours, cost, checkpoints and interruptions on rented GPUs.

    hours = FLOPs per token × tokens / (GPUs × peak × utilization) / 3600
    cost  = hours × GPUs × rate

The peak is that of dense bf16. Utilization is the share of it that the model's own arithmetic
reaches (MFU, Chowdhery et al. 2022, arXiv 2204.02311, appendix B). It counts neither the arithmetic
of recomputation nor that of another precision.

Interruptions come from hardware and, on spot GPUs, from preemption. Llama 3 had 419 unexpected ones
in 54 days on 16,384 GPUs (arXiv 2407.21783, section 3.3.4), which is one in 50,700 GPU-hours. The
interval between checkpoints is Young's (1974), ``sqrt(2 × pause × mean time between
interruptions)``, with the pause of a synchronous save, and at most an hour. The lost time is the
pauses and, for each interruption, half an interval and the restart.
"""

import math

from autoresearch.values import Frozen, NonNegative, NonNegativeInt, Positive, PositiveInt
from funnel.cost.bill import Preemption
from funnel.plan.layout import OPTIMIZER_BYTES, WEIGHT_BYTES, Cluster, Layout
from funnel.plan.projection import Projection
from funnel.plan.utilisation import MeasuredSpeed, Utilisation
from funnel.targets.architecture import TargetArchitecture
from trainer.machine.flops import FORMULA

DAY_S = 24 * 3600
KEPT_LATEST = 2
"""Checkpoints kept besides the daily ones: Megatron-LM deletes one once the next is written."""


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


class Compute(Frozen):
    """FLOPs, time and cost of the whole run."""

    tokens: PositiveInt
    flops_per_token: Positive
    formula: str
    total_flops: Positive
    mfu: Positive
    speed: Utilisation
    """Source of the utilization, and the parts of a step's time."""
    peak_tflops: Positive
    """Data-sheet dense bf16 rate of all GPUs together."""
    tokens_per_s: Positive
    hours: Positive
    first_day_tokens: PositiveInt
    gpu_hourly_usd: NonNegative
    gpu_hours: Positive
    cost_usd: NonNegative
    day_usd: NonNegative
    """Cost of 24 hours."""


class CheckpointPlan(Frozen):
    """Contents of the checkpoints, and the space they need."""

    size_gb: Positive
    """Size of one checkpoint in 10^9 bytes: bf16 weights, fp32 master weights, two moments."""
    every_steps: PositiveInt
    every_hours: Positive
    kept_every_steps: PositiveInt
    """Steps between permanent checkpoints, a multiple of ``every_steps``.

    Any other checkpoint is deleted once the next one is written.
    """
    kept: PositiveInt
    """Number of checkpoints at the end of the run."""
    total_gb: Positive
    """Size of all checkpoints at the end of the run, in 10^9 bytes."""


class StepSchedule(Frozen):
    """The run in steps."""

    tokens: PositiveInt
    """Token budget, rounded up to whole steps."""
    tokens_per_step: PositiveInt
    steps: PositiveInt
    warmup_steps: NonNegativeInt
    batch_carried: PositiveInt
    """Sequences per step that the carried recipe asks for."""
    batch: PositiveInt
    """Sequences per step that the layout takes, a multiple of DP × micro-batch."""


class Booking(Frozen):
    """The rented GPUs, and the time and cost of the whole run on them under the winner's layout."""

    target: TargetArchitecture
    cluster: Cluster
    compute: Compute
    terms: Terms = Terms()
    measured: MeasuredSpeed | None = None
    """Speed that the preflight measured on these GPUs; None if it did not run."""


def make_booking(
    target: TargetArchitecture,
    cluster: Cluster,
    *,
    mfu: float | Utilisation,
    gpu_hourly_usd: float,
    terms: Terms | None = None,
    measured: MeasuredSpeed | None = None,
) -> Booking:
    """Return the booking of these GPUs for the target's token budget.

    :param mfu: expected share of the peak, above 0 and at most 1; a plain number counts as stated
        by the user.
    :param terms: how the GPUs are rented; None: the default terms, without preemption.
    """
    speed = mfu if isinstance(mfu, Utilisation) else Utilisation(mfu=mfu, source="stated")
    flops = target.flops
    peak_tflops = cluster.world_size * cluster.gpu.bf16_tflops
    tokens_per_s = peak_tflops * 1e12 * speed.mfu / flops.per_token
    hours = target.tokens / tokens_per_s / 3600
    node_hourly_usd = cluster.world_size * gpu_hourly_usd
    compute = Compute(
        tokens=target.tokens,
        flops_per_token=flops.per_token,
        formula=FORMULA,
        total_flops=flops.per_token * target.tokens,
        mfu=speed.mfu,
        speed=speed,
        peak_tflops=peak_tflops,
        tokens_per_s=tokens_per_s,
        hours=hours,
        first_day_tokens=max(1, round(min(tokens_per_s * DAY_S, target.tokens))),
        gpu_hourly_usd=gpu_hourly_usd,
        gpu_hours=hours * cluster.world_size,
        cost_usd=hours * node_hourly_usd,
        day_usd=24 * node_hourly_usd,
    )
    return Booking(
        target=target,
        cluster=cluster,
        compute=compute,
        terms=terms or Terms(),
        measured=measured,
    )


def make_schedule(projection: Projection, layout: Layout, *, batch_carried: int) -> StepSchedule:
    """Return the schedule of a carried recipe in steps of the layout's batch."""
    tokens_per_step = layout.global_batch * projection.target.seq_len
    steps = math.ceil(projection.target.tokens / tokens_per_step)
    return StepSchedule(
        tokens=steps * tokens_per_step,
        tokens_per_step=tokens_per_step,
        steps=steps,
        warmup_steps=min(round(projection.warmup_fraction * steps), steps - 1),
        batch_carried=batch_carried,
        batch=layout.global_batch,
    )


def plan_checkpoints(booking: Booking, schedule: StepSchedule) -> CheckpointPlan:
    """Plan a checkpoint every hour, or more often if interruptions require it; keep one a day."""
    size_gb = (WEIGHT_BYTES + OPTIMIZER_BYTES) * booking.target.total_params / 1e9
    step_hours = schedule.tokens_per_step / booking.compute.tokens_per_s / 3600
    every_steps = min(
        schedule.steps,
        max(1, round(save_interval_h(booking.terms, size_gb, booking.cluster) / step_hours)),
    )
    a_day = max(1, round(24 / (every_steps * step_hours)))
    kept_every_steps = every_steps * a_day
    kept = schedule.steps // kept_every_steps + min(KEPT_LATEST, schedule.steps // every_steps)
    return CheckpointPlan(
        size_gb=size_gb,
        every_steps=every_steps,
        every_hours=every_steps * step_hours,
        kept_every_steps=kept_every_steps,
        kept=max(1, kept),
        total_gb=max(1, kept) * size_gb,
    )


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
    paused_s = size_gb / cluster.world_size / COPY_GB_S  # copies from the GPUs to their hosts
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
