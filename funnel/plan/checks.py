"""List the checks to run on the rented GPUs before the whole run, cheapest first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from autoresearch.values import Frozen, NonNegative, PositiveInt
from funnel.cost.gpus import MACHINES
from funnel.forecast.band import Forecast
from funnel.plan.booking import Booking
from funnel.plan.layout import Cluster, MemoryUse
from funnel.plan.megatron_flags import flag_words, is_muon, layout_flags
from funnel.plan.recipe import Recipe
from funnel.plan.step_time import FABRIC_SHARE
from funnel.plan.utilisation import ERROR
from funnel.targets.shape import size_text

NCCL_SHARE = 0.7
"""Share of NVLink's one-way data-sheet bandwidth that an all-reduce of gigabytes must reach."""
MEMORY_SHARE = 0.95
"""Share of the data sheet's memory that nvidia-smi must show at least."""
FP8_TOLERANCE = 0.01
LAYOUT_TOLERANCE = 0.02
SHORT_STEPS = 200
SHORT_WARMUP = 20
MIB = 1 << 20
_UNNEEDED = "; the recipe is bf16, so this is only for who means to change it to fp8"


class PreflightCheck(Frozen):
    """One item of the preflight list."""

    name: str
    command: str
    does: str
    passes: str
    """Condition of a pass, in words."""


class PreflightLimits(Frozen):
    """The limits that preflight.sh applies."""

    memory_mib: PositiveInt
    nccl_gb_s: NonNegative
    fabric_gb_s: NonNegative
    """Least bus bandwidth between nodes, 10^9 bytes per second."""
    other_layout: tuple[str, ...]
    """Flags of a second layout; empty if no other layout fits."""

    @classmethod
    def of(cls, recipe: Recipe, booking: Booking) -> PreflightLimits:
        cluster = booking.cluster
        other = other_layout(recipe)
        muon = is_muon(recipe.projection.source)
        return cls(
            memory_mib=int(cluster.gpu.memory_gb * 1e9 / MIB * MEMORY_SHARE),
            nccl_gb_s=round(NCCL_SHARE * cluster.gpu.nvlink_gb_s / 2),
            fabric_gb_s=round(FABRIC_SHARE * MACHINES[cluster.gpu.name].fabric_gb_s),
            other_layout=tuple(flag_words(layout_flags(other.layout, muon=muon))) if other else (),
        )


def other_layout(recipe: Recipe) -> MemoryUse | None:
    """Return a layout to compare losses with: the first with another TP or PP for the same batch.

    The layout fits, recomputes like the chosen one, and has the least model parallelism of those.
    Its pipeline may be starved, since the comparison is short. None if there is no such layout.
    """
    chosen = recipe.layout
    for use in recipe.layouts:
        same = (use.layout.tensor, use.layout.pipeline) == (chosen.tensor, chosen.pipeline)
        if (
            use.fits
            and not same
            and use.layout.recompute == chosen.recompute
            and chosen.global_batch % (use.layout.data * use.layout.micro_batch) == 0
        ):
            return use
    return None


def preflight_checks(
    recipe: Recipe, booking: Booking, forecast: Forecast | None
) -> Sequence[PreflightCheck]:
    """Return the checks, each of which the script preflight.sh runs and judges."""
    data = PreflightCheck(
        name="Data",
        command="./preflight.sh data",
        does="counts the tokens of DATA_PATH's files",
        passes=f"enough for {size_text(recipe.schedule.tokens)} without more than four repeats",
    )
    return [
        *_machine_checks(booking.cluster, PreflightLimits.of(recipe, booking)),
        data,
        *_launch_checks(recipe, booking, forecast),
    ]


def _machine_checks(cluster: Cluster, limits: PreflightLimits) -> Iterator[PreflightCheck]:
    """Yield the checks of the GPUs and of the connections between them."""
    yield PreflightCheck(
        name="Memory topology",
        command="./preflight.sh topology",
        does="nvidia-smi topo -m, and the GPUs' memory; on every node",
        passes=f"{cluster.gpus} GPUs of at least {limits.memory_mib:,} MiB, every pair NV (NVLink)",
    )
    yield PreflightCheck(
        name="Bandwidth",
        command="./preflight.sh nccl",
        does="all_reduce_perf of nccl-tests with 4 GiB; on every node",
        passes=(
            f"bus bandwidth of at least {limits.nccl_gb_s:,.0f} GB/s, {NCCL_SHARE:.0%} of "
            "NVLink one way"
        ),
    )
    if cluster.nodes > 1:
        yield PreflightCheck(
            name="Fabric between nodes",
            command="./preflight.sh fabric",
            does="all_reduce_perf between nodes alone, all adapters at once, by MPI; on one node",
            passes=(
                f"bus bandwidth of at least {limits.fabric_gb_s:,.0f} GB/s a GPU, "
                f"{FABRIC_SHARE:.0%} of its adapter"
            ),
        )


def _launch_checks(
    recipe: Recipe, booking: Booking, forecast: Forecast | None
) -> Iterator[PreflightCheck]:
    """Yield the checks that run the launch script."""
    yield PreflightCheck(
        name="FP8 numerics on the target GPU",
        command="./preflight.sh fp8",
        does=(
            f"{SHORT_STEPS} steps (FP8_STEPS) of the launch script in bf16 and in fp8, same "
            f"weights and batches{'' if recipe.precision == 'fp8' else _UNNEEDED}"
        ),
        passes=f"mean loss of the last 20 steps within {FP8_TOLERANCE:.0%} of bf16's",
    )
    if (other := other_layout(recipe)) is not None:
        yield PreflightCheck(
            name="TP and PP at full width",
            command="./preflight.sh layout",
            does=(
                f"{SHORT_STEPS} steps in {recipe.layout} and in {other.layout}, or in the one that "
                "TP and PP name"
            ),
            passes=f"mean loss of the last 20 steps within {LAYOUT_TOLERANCE:.0%} of each other",
        )
    planned_s = recipe.schedule.tokens_per_step / booking.compute.tokens_per_s
    yield PreflightCheck(
        name="Speed and memory",
        command="./preflight.sh speed",
        does=(
            f"{SHORT_STEPS} steps of the launch script; writes measured.json, which autoresearch "
            "handoff --measured plans with"
        ),
        passes=(
            f"a step takes at most {ERROR:.0%} more than {planned_s:,.3g} s; memory near "
            f"{recipe.memory.total_gb:.1f} GB a GPU"
        ),
    )
    tokens_per_s = booking.compute.tokens_per_s / booking.cluster.world_size
    yield PreflightCheck(
        name="One day of the real run",
        command="./preflight.sh day",
        does=(
            "the launch script for 24 hours, checkpoints and all, then autoresearch verify; "
            f"about ${booking.compute.day_usd:,.0f}, and nothing is lost where it passes"
        ),
        passes=(
            f"autoresearch verify exits {day_code(forecast)}, "
            "no restart was needed, and the log's throughput is near "
            f"{tokens_per_s:,.0f} tokens/s a GPU"
        ),
    )


def day_code(forecast: Forecast | None) -> str:
    """Return, in words, verify's exit code after the first day of a sound run."""
    point = forecast.telling_point if forecast else None
    if forecast is None or point is None:
        return "3 and not 1 (0 it cannot: there is no usable forecast)"
    if point.tokens <= forecast.first_day_tokens:
        return "0"
    return f"3 and not 1 (0 not before {size_text(point.tokens)} tokens)"
