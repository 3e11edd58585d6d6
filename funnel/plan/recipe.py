"""The recipes of a launch plan: the one to launch, and those to fall back on.

- ``winner``: the finalist with the lowest long-run mean.
- ``runner-up``: the next one, for where the winner's word proves void.
- ``restart``: the finalists after it; and the winner with half its learning rate, which is what to
  continue with from the last checkpoint before a lasting spike. That one was not
  stress-tested, and says so. Its flags are the winner's, and the launch script halves what the
  schedule makes of them: Megatron-LM takes a run's rates from its checkpoint, whatever ``--lr`` and
  ``--override-opt_param-scheduler`` say (core_v0.16.1 to v0.18.2), or stops (v0.19.0).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal, TypeAlias

from pydantic import Field

from autoresearch.values import Finite, Frozen, NonNegativeInt, Positive, PositiveInt
from autoresearch.words import scalar_text
from funnel.plan.booking import Booking, Checkpoints, Schedule, make_schedule, plan_checkpoints
from funnel.plan.case import Candidate
from funnel.plan.layout import Cluster, Layout, MemoryUse, layouts
from funnel.plan.megatron_flags import (
    Flag,
    FlagGroup,
    launch_precision,
    megatron_flags,
    precision_flags,
    save_flags,
)
from funnel.plan.projection import Projection, project
from funnel.plan.running.operations import Operations, plan_operations
from funnel.plan.running.operator_flags import operator_flags
from funnel.plan.utilisation import MeasuredSpeed, fastest, memory_factor
from funnel.target.architecture import TargetArchitecture
from funnel.transfer.batch import tokens_a_step
from funnel.transfer.carry import DEFAULT_RULES, RuleChoice
from funnel.transfer.leap import NEAR
from funnel.transfer.support import LadderSupport

RecipeRole: TypeAlias = Literal["winner", "runner-up", "restart", "phase"]
RESTART_LR = 0.5
"""A restart's learning rate, as a share of the winner's."""


class Recipe(Frozen):
    """One run that could be launched; ``recipe.json`` and its like hold one each."""

    name: str
    """The name of its files: ``recipe``, ``recipe-runner-up``, ``recipe-restart-1`` …"""
    role: RecipeRole
    why: str
    proxy_hash: str
    """config_hash of the proxy it is carried from."""
    proxy_bpb: Finite | None
    """The proxy's mean over its long runs; None where it had none of its own."""
    proxy_runs: NonNegativeInt
    projection: Projection
    memory: MemoryUse
    """Memory of a GPU under the chosen layout."""
    layouts: tuple[MemoryUse, ...]
    """All possible layouts."""
    schedule: Schedule
    checkpoints: Checkpoints
    operations: Operations
    precision: Literal["bf16", "fp8"]
    groups: tuple[FlagGroup, ...]
    """Flags of pretrain_gpt.py, but for data, tokenizer and places."""
    lr_factor: Positive = 1.0
    """Factor of the launch script on the learning rates of the flags."""
    follows: str | None = None
    """For a phase: the script of the previous one, whose last weights it starts from."""
    mix: dict[str, float] = Field(default_factory=dict)
    """Names of corpora and their weights; empty: the user's DATA_PATH."""
    precision_flags: tuple[Flag, ...]
    save_flags: tuple[Flag, ...]
    running_flags: tuple[Flag, ...]

    @property
    def flags(self) -> tuple[Flag, ...]:
        """All of them, in order."""
        named = (flag for group in self.groups for flag in group.flags)
        return (*named, *self.precision_flags, *self.running_flags, *self.save_flags)

    @property
    def layout(self) -> Layout:
        return self.memory.layout

    @property
    def script(self) -> str:
        """The launch script's name."""
        return f"launch_megatron{self._suffix}.sh"

    @property
    def log(self) -> str:
        """Log file, by default one per run: two runs in one log cannot be separated."""
        return f"cloud{self._suffix}.log"

    @property
    def _suffix(self) -> str:
        return self.name.removeprefix("recipe").replace("-", "_")

    @property
    def is_continuation(self) -> bool:
        """Whether it goes on from another run's checkpoint."""
        return self.lr_factor != 1.0

    @property
    def file(self) -> str:
        return f"{self.name}.json"


class Carrying(Frozen):
    """How recipes are carried to the target."""

    rules: RuleChoice = DEFAULT_RULES
    batch: PositiveInt | None = None
    """Sequences a step; None: by the batch's rule."""
    support: LadderSupport | None = None
    """Measurements of the rates by a ladder."""


def make_recipes(
    candidates: Sequence[Candidate], booking: Booking, carrying: Carrying
) -> tuple[Recipe, ...]:
    """The winner first.

    :raises HandoffError: where no layout fits.
    """
    recipes = []
    for place, candidate in enumerate(candidates):
        role: RecipeRole = ("winner", "runner-up")[place] if place < 2 else "restart"
        name = {"winner": "recipe", "runner-up": "recipe-runner-up"}.get(role)
        recipes.append(
            _recipe(
                name or f"recipe-restart-{place - 1}",
                role,
                f"finalist {place + 1} of {len(candidates)} by its long runs",
                candidate,
                booking,
                carrying,
            )
        )
    return (*recipes, _halved(recipes[0]))


def carry(
    candidate: Candidate,
    target: TargetArchitecture,
    carrying: Carrying,
    batch_size: int | None = None,
) -> Projection:
    """The candidate's recipe at the target's scale.

    :param batch_size: sequences a step that a layout takes; None: what is wished.
    """
    return project(
        candidate.config,
        target,
        horizon_steps=candidate.horizon_steps,
        rules=carrying.rules,
        batch_size=batch_size or carrying.batch,
        support=carrying.support,
    )


def _halved(winner: Recipe) -> Recipe:
    gentler = winner.projection.slowed(RESTART_LR)
    return winner.model_copy(
        update={
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
    )


def _recipe(
    name: str,
    role: RecipeRole,
    why: str,
    candidate: Candidate,
    booking: Booking,
    carrying: Carrying,
) -> Recipe:
    projection, uses, memory = carried_and_laid_out(
        candidate, booking.target, booking.cluster, carrying, booking.measured
    )
    # The batch that was asked for, before the layout had its say.
    wanted = carry(candidate, booking.target, carrying).config.batch_size
    schedule = make_schedule(projection, memory.layout, batch_carried=wanted)
    checkpoints = plan_checkpoints(booking, schedule)
    operations = plan_operations(
        booking.terms,
        booking.cluster,
        size_gb=checkpoints.size_gb,
        every_h=checkpoints.every_hours,
        hours=booking.compute.hours,
        usd_per_h=booking.compute.day_usd / 24,
    )
    precision = launch_precision(projection)
    return Recipe(
        name=name,
        role=role,
        why=why,
        proxy_hash=candidate.config_hash,
        proxy_bpb=candidate.standing.val_bpb,
        proxy_runs=candidate.standing.runs,
        projection=projection,
        memory=memory,
        layouts=tuple(uses),
        schedule=schedule,
        checkpoints=checkpoints,
        operations=operations,
        running_flags=operator_flags(operations),
        precision=precision,
        groups=megatron_flags(projection, memory.layout, schedule),
        precision_flags=precision_flags(precision),
        save_flags=save_flags(checkpoints),
    )


def carried_and_laid_out(
    candidate: Candidate,
    target: TargetArchitecture,
    cluster: Cluster,
    carrying: Carrying,
    measured: MeasuredSpeed | None,
) -> tuple[Projection, list[MemoryUse], MemoryUse]:
    """The candidate's recipe at the batch that a layout takes, all layouts, and the one to take.

    :raises HandoffError: where no layout fits.
    """
    projection = carry(candidate, target, carrying)
    wanted = projection.config.batch_size
    fp8 = launch_precision(projection) == "fp8"
    factor = memory_factor(target, cluster, measured, fp8=fp8)
    uses = layouts(target, cluster, wanted, fp8=fp8, measured=factor)
    memory = fastest(uses, target, cluster, fp8=fp8, measured=measured)
    if memory.layout.global_batch != wanted:
        # Rates and steps are those of the batch that the layout takes.
        projection = carry(candidate, target, carrying, memory.layout.global_batch)
    return projection, uses, memory


def departures_from(rules: RuleChoice, recipe: Recipe) -> Iterator[str]:
    """In words, by which other rules than these the recipe was carried."""
    projection = recipe.projection
    for name in RuleChoice.model_fields:
        own, other = getattr(projection.rules, name), getattr(rules, name)
        if name != "in_config" and own != other:
            yield f"{name} by {own}, there by {other}"
    by_rule = tokens_a_step(
        rules.batch,
        kept=projection.source.tokens_per_step,
        tokens=projection.target.tokens,
    )
    tokens = recipe.schedule.tokens_per_step
    if projection.rules.batch == rules.batch and abs(tokens / by_rule - 1) >= NEAR:
        yield f"a step of {tokens:,} tokens, where {rules.batch} would have {by_rule:,.0f}"


def batch_words(recipe: Recipe) -> str | None:
    """Return how the batch was changed if the proxy's could not be kept, or was not wanted."""
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
