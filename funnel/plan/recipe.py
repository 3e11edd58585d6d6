"""Make the recipes of a launch plan: the one to launch, and the fallbacks.

- ``winner``: the finalist with the lowest mean over its long runs.
- ``runner-up``: the next finalist, to launch if the winner fails.
- ``restart``: the other finalists, and the winner at half its learning rate.

The winner at half its rate continues from the last checkpoint before a lasting spike. It was not
stress-tested, and its description says so. It has the winner's flags, and the launch script halves
the rates of the schedule. Flags cannot: on resuming, Megatron-LM takes the rates from the
checkpoint, regardless of ``--lr`` and ``--override-opt_param-scheduler`` (core_v0.16.1 to v0.18.2),
or stops (v0.19.0).
"""

from collections.abc import Iterator, Sequence
from typing import Literal, TypeAlias

from autoresearch.values import Finite, Frozen, NonNegativeInt, Positive
from autoresearch.words import scalar_text
from funnel.plan.booking import (
    Booking,
    CheckpointPlan,
    Operations,
    StepSchedule,
    make_schedule,
    plan_checkpoints,
    plan_operations,
)
from funnel.plan.case import PlannedFinalist
from funnel.plan.layout import Cluster, Layout, MemoryUse, layouts
from funnel.plan.megatron_flags import (
    Flag,
    FlagGroup,
    launch_precision,
    megatron_flags,
    operator_flags,
    precision_flags,
    save_flags,
)
from funnel.plan.projection import Projection, project
from funnel.plan.utilisation import MeasuredSpeed, fastest, memory_factor
from funnel.targets.architecture import TargetArchitecture
from funnel.transfer.leap import NEAR
from funnel.transfer.rules import batches

RecipeRole: TypeAlias = Literal["winner", "runner-up", "restart"]
RESTART_LR = 0.5
"""Learning rate of the slowed restart, relative to the winner's."""


class Recipe(Frozen):
    """One run that could be launched; each ``recipe*.json`` holds one."""

    name: str
    """Name of its files: ``recipe``, ``recipe-runner-up``, ``recipe-restart-1`` …"""
    role: RecipeRole
    why: str
    """Reason for the recipe, in words."""
    proxy_hash: str
    """``config_hash`` of the proxy that the recipe is carried from."""
    proxy_bpb: Finite | None
    """The proxy's mean over its long runs; None if it had no long runs."""
    proxy_runs: NonNegativeInt
    projection: Projection
    memory: MemoryUse
    """Memory of a GPU under the chosen layout."""
    layouts: tuple[MemoryUse, ...]
    """Memory of a GPU under every possible layout."""
    schedule: StepSchedule
    checkpoints: CheckpointPlan
    operations: Operations
    precision: Literal["bf16", "fp8"]
    groups: tuple[FlagGroup, ...]
    """Flags of pretrain_gpt.py, without data, tokenizer and paths."""
    lr_factor: Positive = 1.0
    """Factor by which the launch script multiplies the learning rates of the flags."""
    precision_flags: tuple[Flag, ...]
    save_flags: tuple[Flag, ...]
    running_flags: tuple[Flag, ...]

    @property
    def flags(self) -> tuple[Flag, ...]:
        """All flags, in order."""
        named = (flag for group in self.groups for flag in group.flags)
        return (*named, *self.precision_flags, *self.running_flags, *self.save_flags)

    @property
    def layout(self) -> Layout:
        return self.memory.layout

    @property
    def script(self) -> str:
        """Name of the launch script."""
        return f"launch_megatron{self._suffix}.sh"

    @property
    def log(self) -> str:
        """Name of the run's log file; a log shared by two runs could not be separated."""
        return f"cloud{self._suffix}.log"

    @property
    def _suffix(self) -> str:
        return self.name.removeprefix("recipe").replace("-", "_")

    @property
    def is_continuation(self) -> bool:
        """Whether the run continues from another run's checkpoint."""
        return self.lr_factor != 1.0

    @property
    def file(self) -> str:
        return f"{self.name}.json"


def make_recipes(
    candidates: Sequence[PlannedFinalist], booking: Booking, batch: int | None
) -> tuple[Recipe, ...]:
    """Return the recipes of a launch plan, the winner's first.

    :param batch: sequences per step; None: chosen by the batch's rule.
    :raises HandoffError: if no layout fits.
    """
    recipes = []
    for place, candidate in enumerate(candidates):
        role: RecipeRole = ("winner", "runner-up")[place] if place < 2 else "restart"
        name = {"winner": "recipe", "runner-up": "recipe-runner-up"}.get(role)
        why = f"finalist {place + 1} of {len(candidates)} by its long runs"
        name = name or f"recipe-restart-{place - 1}"
        recipes.append(_recipe(candidate, booking, batch, name=name, role=role, why=why))
    gentler = recipes[0].projection.slowed(RESTART_LR)
    halved = {
        "name": "recipe-restart-half-lr",
        "role": "restart",
        "why": "the winner with half its learning rate, to continue with from the last "
        "checkpoint before a spike that does not recover; not stress-tested",
        "proxy_hash": gentler.source.config_hash,
        "proxy_bpb": None,
        "proxy_runs": 0,
        "projection": gentler,
        "lr_factor": RESTART_LR,
    }
    return (*recipes, recipes[0].model_copy(update=halved))


def _recipe(
    candidate: PlannedFinalist,
    booking: Booking,
    batch: int | None,
    *,
    name: str,
    role: RecipeRole,
    why: str,
) -> Recipe:
    projection, uses, memory, wanted = carried_recipe(
        candidate, booking.target, booking.cluster, batch, booking.measured
    )
    schedule = make_schedule(projection, memory.layout, batch_carried=wanted)
    precision = launch_precision(projection)
    checkpoints = plan_checkpoints(booking, schedule)
    operations = plan_operations(
        booking.terms,
        booking.cluster,
        size_gb=checkpoints.size_gb,
        every_h=checkpoints.every_hours,
        hours=booking.compute.hours,
        usd_per_h=booking.compute.day_usd / 24,
    )
    return Recipe(
        name=name,
        role=role,
        why=why,
        proxy_hash=candidate.config_hash,
        proxy_bpb=candidate.standing.objective,
        proxy_runs=candidate.standing.runs,
        projection=projection,
        memory=memory,
        layouts=tuple(uses),
        precision=precision,
        precision_flags=precision_flags(precision),
        schedule=schedule,
        checkpoints=checkpoints,
        operations=operations,
        groups=megatron_flags(projection, memory.layout, schedule),
        save_flags=save_flags(checkpoints),
        running_flags=operator_flags(operations),
    )


def carried_recipe(
    candidate: PlannedFinalist,
    target: TargetArchitecture,
    cluster: Cluster,
    batch: int | None,
    measured: MeasuredSpeed | None,
) -> tuple[Projection, list[MemoryUse], MemoryUse, int]:
    """Return the carried recipe at the chosen layout's batch, all layouts, the chosen one, and the
    batch before the layout rounded it.

    :raises HandoffError: if no layout fits.
    """
    horizon = candidate.horizon_steps
    projection = project(candidate.config, target, horizon_steps=horizon, batch_size=batch)
    wanted = projection.config.batch_size
    fp8 = launch_precision(projection) == "fp8"
    factor = memory_factor(target, cluster, measured, fp8=fp8)
    uses = layouts(target, cluster, wanted, fp8=fp8, measured=factor)
    memory = fastest(uses, target, cluster, fp8=fp8, measured=measured)
    if memory.layout.global_batch != wanted:
        # Rates and steps must follow from the batch that the layout takes.
        projection = project(
            candidate.config,
            target,
            horizon_steps=horizon,
            batch_size=memory.layout.global_batch,
        )
    return projection, uses, memory, wanted


def departures(recipe: Recipe) -> Iterator[str]:
    """Yield each difference, in words, between the recipe's rules and those of a ladder's rungs."""
    projection = recipe.projection
    if projection.lr_rule != "mup":
        yield f"width by {projection.lr_rule}, there by mup"
    for one in projection.bounded:
        yield f"{one.name} bounded at {one.taken:.4g}, there as carried"
    kept, tokens = projection.source.tokens_per_step, recipe.schedule.tokens_per_step
    by_rule = batches(projection.target.tokens, kept)["step_law"]
    if abs(tokens / by_rule - 1) >= NEAR:
        yield f"a step of {tokens:,} tokens, where step_law would have {by_rule:,.0f}"


def batch_words(recipe: Recipe) -> str | None:
    """Return how the batch differs from the proxy's, in words; None if it does not."""
    schedule = recipe.schedule
    proxy_tokens = recipe.projection.source.tokens_per_step
    if schedule.tokens_per_step == proxy_tokens:
        return None
    adjusted = (
        f", where {schedule.batch_carried:,} were wanted and the data-parallel GPUs take whole "
        "micro-batches"
        if schedule.batch != schedule.batch_carried
        else ""
    )
    return (
        f"a step has {schedule.tokens_per_step:,} tokens, "
        f"{schedule.tokens_per_step / proxy_tokens:,.4g} times the proxy's {proxy_tokens:,} "
        f"({schedule.batch:,} sequences{adjusted}); the rates are carried with it, by its square "
        f"root: the launch's --lr is {scalar_text(recipe.projection.base_lr)}"
    )
