"""Determine the share of the GPUs' peak that a layout reaches: computed, stated or measured.

:mod:`funnel.plan.step_time` computes it. On Megatron-LM's published tables the mean error is
3 %. The error of every row is less than 10 %, also for rows outside the fit (docs/plan.md). A
measurement by the preflight replaces the computed value.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Literal, TypeAlias

from pydantic import ValidationError

from autoresearch.errors import HandoffError
from autoresearch.files import read_given
from autoresearch.values import Frozen, Positive, PositiveInt, explain
from funnel.cost.gpus import MACHINES
from funnel.plan.layout import Cluster, Layout, MemoryUse, memory_use
from funnel.plan.step_time import FABRIC_SHARE, StepTime, step_time
from funnel.targets.architecture import TargetArchitecture

ERROR = 0.10
"""Largest relative error of the computed share on a published run."""
SAME_SPEED = 0.03
"""Relative difference below which layouts count as equally fast; the simpler one is chosen."""

Source: TypeAlias = Literal["computed", "stated", "measured", "scaled"]


class MeasuredSpeed(Frozen):
    """Measurements of ``preflight.sh speed`` and ``preflight.sh fabric`` on the rented GPUs."""

    target: str
    gpu: str
    nodes: PositiveInt
    gpus: PositiveInt
    seq_len: PositiveInt
    layout: Layout
    step_s: Positive
    """Median seconds of a step."""
    memory_gb: Positive | None = None
    """Largest memory that PyTorch reserved on any GPU that reports it, in 10^9 bytes."""
    fabric_gb_s: Positive | None = None
    """Bus bandwidth of an all-reduce across nodes per GPU, in 10^9 bytes per second."""


class Utilisation(Frozen):
    """Share of the peak that a run reaches, and the source of that number."""

    mfu: Positive
    """Share of the dense bf16 peak; it counts the model's own arithmetic once (Chowdhery et al.
    2022)."""
    source: Source
    step: StepTime | None = None
    """Parts of a step's time; None if stated."""

    def words(self) -> str:
        """Return the source of the number, in a few words."""
        return {
            "computed": f"computed from the layout, to about {ERROR:.0%}",
            "stated": "stated, not measured",
            "measured": "measured by the pre-flight",
            "scaled": "computed, and scaled by what the pre-flight measured of another layout",
        }[self.source]


def utilisation(
    target: TargetArchitecture,
    layout: Layout,
    cluster: Cluster,
    *,
    fp8: bool,
    measured: MeasuredSpeed | None = None,
) -> Utilisation:
    """Return the share of the cluster's peak that this layout reaches.

    :raises HandoffError: if the measurement is of another run.
    """
    machine = MACHINES[cluster.gpu.name]
    if measured is not None:
        _same_run(measured, target, cluster)
        if measured.fabric_gb_s is not None:
            fabric = {"fabric_gb_s": measured.fabric_gb_s / FABRIC_SHARE}
            machine = machine.model_copy(update=fabric)
    step = step_time(target, layout, cluster, machine, fp8=fp8)
    computed = _mfu(target, layout, cluster, step.total_s)
    if measured is None:
        return Utilisation(mfu=computed, source="computed", step=step)
    if (measured.layout, measured.seq_len) == (layout, target.seq_len):
        mfu = _mfu(target, layout, cluster, measured.step_s)
        return Utilisation(mfu=mfu, source="measured", step=step)
    seen = target.model_copy(update={"seq_len": measured.seq_len})
    said = step_time(seen, measured.layout, cluster, machine, fp8=fp8).total_s
    return Utilisation(mfu=computed * said / measured.step_s, source="scaled", step=step)


def fastest(
    uses: Sequence[MemoryUse],
    target: TargetArchitecture,
    cluster: Cluster,
    *,
    fp8: bool,
    measured: MeasuredSpeed | None = None,
) -> MemoryUse:
    """Return the usable layout with the shortest step.

    Of equally fast layouts it is the one with the least model parallelism. It recomputes whole
    layers only if no layout is usable without that.

    :raises HandoffError: if no layout is usable.
    """
    usable = [use for use in uses if use.is_usable]
    if not usable:
        least = min(uses, key=lambda use: use.total_gb)
        raise HandoffError(
            f"{target.name} does not fit {cluster.nodes} × {cluster.gpus} {cluster.gpu.name}: at "
            f"best ({least.layout}, {least.layout.recompute} recomputation) a GPU needs "
            f"{least.total_gb:.0f} GB of the {least.limit_gb:.0f} GB it can use, and a pipeline "
            "needs as many micro-batches as stages; take more --nodes, a --gpu with more memory, "
            "or a larger --global-batch (context parallelism, ZeRO 2 and 3 and FSDP are left out)"
        )
    usable = [use for use in usable if use.layout.recompute == usable[0].layout.recompute]
    shares = [
        utilisation(target, use.layout, cluster, fp8=fp8, measured=measured).mfu for use in usable
    ]
    best = max(shares)
    return next(
        use for use, share in zip(usable, shares, strict=True) if share >= best * (1 - SAME_SPEED)
    )


def memory_factor(
    target: TargetArchitecture, cluster: Cluster, measured: MeasuredSpeed | None, *, fp8: bool
) -> float:
    """Return the ratio of the preflight's measured memory to the formula; 1 if unmeasured."""
    if measured is None or measured.memory_gb is None:
        return 1.0
    _same_run(measured, target, cluster)
    seen = target.model_copy(update={"seq_len": measured.seq_len})
    said = memory_use(seen, measured.layout, cluster.gpu, fp8=fp8)
    return measured.memory_gb / said.total_gb


def read_measured(path: Path) -> MeasuredSpeed:
    """Read the preflight's measurements.

    :raises HandoffError: if the file cannot be read or holds no measurements.
    """
    try:
        return MeasuredSpeed.model_validate_json(read_given(path))
    except OSError as error:
        raise HandoffError(
            f"the measurement {path} cannot be read ({error.strerror or error}); make one on the "
            "rented GPUs with: ./preflight.sh speed"
        ) from error
    except ValidationError as error:
        raise HandoffError(
            f"{path} is not a measurement of the pre-flight: {explain(error)}"
        ) from error


def _mfu(target: TargetArchitecture, layout: Layout, cluster: Cluster, step_s: float) -> float:
    peak = cluster.world_size * cluster.gpu.bf16_tflops * 1e12
    return target.flops.per_token * (layout.global_batch * target.seq_len) / step_s / peak


def _same_run(measured: MeasuredSpeed, target: TargetArchitecture, cluster: Cluster) -> None:
    seen = (measured.target, measured.gpu, measured.nodes, measured.gpus)
    asked = (target.name, cluster.gpu.name, cluster.nodes, cluster.gpus)
    if seen != asked:
        raise HandoffError(
            f"the measurement is of {seen[0]} on {seen[2]} × {seen[3]} {seen[1]}, and the plan is "
            f"for {asked[0]} on {asked[2]} × {asked[3]} {asked[1]}; leave --measured out, or "
            "measure there"
        )
