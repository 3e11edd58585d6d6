"""The recipes of a launch plan: the one to launch, and those to fall back on.

- ``winner``: the finalist with the lowest long-run mean.
- ``runner-up``: the next one, for where the winner's word proves void.
- ``restart``: the finalists after it; and the winner with half its learning rate, which is what to
  go on with from the last checkpoint before a spike that does not come back. That one was not
  stress-tested, and says so. Its flags are the winner's, and the launch script halves what the
  schedule makes of them: Megatron-LM takes a run's rates from its checkpoint, whatever ``--lr`` and
  ``--override-opt_param-scheduler`` say (core_v0.16.1 to v0.18.2), or stops (v0.19.0).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias

from autoresearch.values import Finite, Frozen, NonNegative, NonNegativeInt, Positive
from autoresearch.words import scalar_text
from funnel.plan.booking import Booking, Checkpoints, Schedule, make_schedule, plan_checkpoints
from funnel.plan.case import Candidate
from funnel.plan.layout import Layout, MemoryUse, layouts, suggest
from funnel.plan.megatron_flags import (
    Flag,
    FlagGroup,
    launch_precision,
    megatron_flags,
    precision_flags,
    save_flags,
)
from funnel.plan.projection import LrRule, Projection, project
from funnel.target.architecture import TargetArchitecture

RecipeRole: TypeAlias = Literal["winner", "runner-up", "restart"]
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
    """What a GPU holds under the layout to take."""
    layouts: tuple[MemoryUse, ...]
    """All that divide."""
    schedule: Schedule
    checkpoints: Checkpoints
    precision: Literal["bf16", "fp8"]
    sqrt_batch_lr: NonNegative
    """What the square-root rule would make of the launch script's ``--lr`` for the changed batch
    (Malladi et al. 2022, arXiv 2205.10287); the script keeps the projected one."""
    groups: tuple[FlagGroup, ...]
    """Flags of pretrain_gpt.py, but for data, tokenizer and places."""
    lr_factor: Positive = 1.0
    """What the launch script multiplies the learning rates of the flags by."""
    precision_flags: tuple[Flag, ...]
    save_flags: tuple[Flag, ...]

    @property
    def flags(self) -> tuple[Flag, ...]:
        """All of them, in order."""
        named = (flag for group in self.groups for flag in group.flags)
        return (*named, *self.precision_flags, *self.save_flags)

    @property
    def layout(self) -> Layout:
        return self.memory.layout

    @property
    def script(self) -> str:
        """The launch script's name."""
        return f"launch_megatron{self._suffix}.sh"

    @property
    def log(self) -> str:
        """Where it logs, unless told otherwise: two runs in one log cannot be told apart."""
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


def make_recipes(
    candidates: Sequence[Candidate], booking: Booking, *, lr_rule: LrRule, batch: int | None
) -> tuple[Recipe, ...]:
    """The winner first.

    :param batch: sequences a step; None: as many tokens as the proxy's.
    :raises HandoffError: where no layout fits.
    """
    recipes = []
    for place, candidate in enumerate(candidates):
        projection = carry(candidate, booking.target, lr_rule)
        role: RecipeRole = ("winner", "runner-up")[place] if place < 2 else "restart"
        name = {"winner": "recipe", "runner-up": "recipe-runner-up"}.get(role)
        recipes.append(
            _recipe(
                name or f"recipe-restart-{place - 1}",
                role,
                f"finalist {place + 1} of {len(candidates)} by its long runs",
                candidate,
                projection,
                booking,
                batch,
            )
        )
    recipes.append(_halved(candidates[0], booking, lr_rule, batch))
    return tuple(recipes)


def carry(candidate: Candidate, target: TargetArchitecture, lr_rule: LrRule) -> Projection:
    """The candidate's recipe at the target's scale."""
    return project(candidate.config, target, horizon_steps=candidate.horizon_steps, lr_rule=lr_rule)


def _halved(winner: Candidate, booking: Booking, lr_rule: LrRule, batch: int | None) -> Recipe:
    gentler = winner.config.model_copy(update={"lr": winner.config.lr * RESTART_LR})
    recipe = _recipe(
        "recipe-restart-half-lr",
        "restart",
        "the winner with half its learning rate, to go on with from the last checkpoint before a "
        "spike that does not recover; not stress-tested",
        winner.model_copy(update={"config": gentler}),
        carry(winner.model_copy(update={"config": gentler}), booking.target, lr_rule),
        booking,
        batch,
    )
    return recipe.model_copy(
        update={
            "proxy_hash": gentler.config_hash,
            "proxy_bpb": None,
            "proxy_runs": 0,
            "groups": megatron_flags(
                carry(winner, booking.target, lr_rule), recipe.layout, recipe.schedule
            ),
            "lr_factor": RESTART_LR,
        }
    )


def _recipe(
    name: str,
    role: RecipeRole,
    why: str,
    candidate: Candidate,
    projection: Projection,
    booking: Booking,
    batch: int | None,
) -> Recipe:
    wanted = batch or projection.config.batch_size
    fp8 = projection.config.precision == "fp8"
    uses = layouts(booking.target, booking.cluster, wanted, fp8=fp8)
    memory = suggest(uses, booking.target, booking.cluster)
    schedule = make_schedule(projection, memory.layout, batch_carried=wanted)
    checkpoints = plan_checkpoints(booking, schedule)
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
        precision=precision,
        sqrt_batch_lr=projection.base_lr
        * (schedule.tokens_per_step / candidate.config.tokens_per_step) ** 0.5,
        groups=megatron_flags(projection, memory.layout, schedule),
        precision_flags=precision_flags(precision),
        save_flags=save_flags(checkpoints),
    )


def batch_words(recipe: Recipe) -> str | None:
    """What became of the batch where the proxy's could not be kept, or was not wanted."""
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
        f"({schedule.batch:,} sequences{adjusted}); the launch's --lr is left at "
        f"{scalar_text(recipe.projection.base_lr)}, the square-root rule would say "
        f"{scalar_text(recipe.sqrt_batch_lr)}"
    )
