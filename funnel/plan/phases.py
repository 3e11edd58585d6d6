"""Plan each phase of the target's curriculum: layout, memory, steps, rates, hours and cost.

A step has the same number of tokens in every phase, so the batch's factor of the learning rate does
not change. A phase starts from the weights of the previous one by Megatron-LM's
``--pretrained-checkpoint``. The counters of steps and samples and the schedule restart, because
they count sequences, whose length changes. Adam's moments restart too, because no flag keeps them
without the counters. Each phase therefore begins with a warm-up.
"""

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise

from autoresearch.errors import HandoffError
from autoresearch.values import Frozen, NonNegative, Positive, PositiveInt
from funnel.plan.booking import Booking, make_booking, make_schedule
from funnel.plan.layout import MemoryUse, layouts
from funnel.plan.megatron_flags import Flag, FlagGroup
from funnel.plan.recipe import Recipe, scheduled
from funnel.plan.utilisation import Utilisation, fastest, memory_factor, utilisation
from funnel.target.architecture import Phase, TargetArchitecture
from trainer.spec import Config

WARMUP_STEPS = 100
"""Warm-up steps of a later phase, limited to a tenth of the phase.

The number is assumed: ten times Adam's averaging length of the gradient at beta1 0.9.
"""


class PhasePlan(Frozen):
    """The plan of one phase."""

    name: str
    seq_len: PositiveInt
    recipe: Recipe
    speed: Utilisation
    lr_start: NonNegative
    """The launch script's ``--lr``."""
    lr_end: NonNegative
    """The launch script's ``--min-lr``."""
    hours: Positive
    """Hours of training alone."""
    cost_usd: NonNegative
    change: str
    """Changes of the layout from the previous phase, in words; empty if there are none."""


def plan_phases(winner: Recipe, booking: Booking) -> Iterator[PhasePlan]:
    """Yield the plan of each phase of the target; nothing if it has no phases.

    :raises HandoffError: if a phase fits no layout, or not the layout that it asks for.
    """
    phases, cluster, fp8 = booking.target.phases, booking.cluster, winner.precision == "fp8"
    peak = winner.projection.base_lr
    rates = [peak * share for share in (1.0, *hand_overs(winner, phases))]
    before: PhasePlan | None = None
    for place, (phase, (start, end)) in enumerate(zip(phases, pairwise(rates), strict=True)):
        target = booking.target
        # A phase without its own rotary base keeps that of the previous phase.
        rope_base = before.recipe.projection.target.rope_base if before else target.rope_base
        target = target.model_copy(
            update={
                "seq_len": phase.seq_len or target.seq_len,
                "rope_base": phase.rope_base or rope_base,
                "token_budget": max(1, round(phase.share * target.tokens)),
                "phases": (),
            }
        )
        memory, uses = _laid_out(winner, booking, phase, target)
        speed: float | Utilisation = booking.compute.mfu
        if booking.compute.speed.source != "stated":
            speed = utilisation(target, memory.layout, cluster, fp8=fp8, measured=booking.measured)
        own = make_booking(
            target,
            cluster,
            mfu=speed,
            gpu_hourly_usd=booking.compute.gpu_hourly_usd,
            terms=booking.terms,
            measured=booking.measured,
        )
        passed = math.fsum(earlier.share for earlier in phases[:place])
        source = _decayed(winner, phase, before, passed)
        recipe = _recipe(winner, own, phase, place, memory, uses, before, source)
        groups = _with_rates(recipe.groups, start, end)
        before = PhasePlan(
            name=phase.name,
            seq_len=target.seq_len,
            recipe=recipe.model_copy(update={"groups": groups}),
            speed=own.compute.speed,
            lr_start=start,
            lr_end=end,
            hours=own.compute.hours,
            cost_usd=own.compute.cost_usd,
            change=_change(before.recipe.memory, memory) if before else "",
        )
        yield before


def hand_overs(winner: Recipe, phases: Sequence[Phase]) -> Iterator[float]:
    """Yield the rate at each phase's end, as a share of the peak.

    It is the phase's own rate, else that of the recipe's schedule over all tokens.
    """
    config = winner.projection.config
    lowest = config.lr_min_ratio
    passed = 0.0
    for phase in phases:
        passed += phase.share
        usual = lowest + (1 - lowest) * _left(config, min(1.0, passed))
        yield usual if phase.rate is None else phase.rate


def _left(config: Config, passed: float) -> float:
    """Return the remaining part of the schedule's decay, from 1 to 0."""
    if config.schedule == "linear":
        return 1 - passed
    if config.schedule == "wsd":
        return min(1.0, (1 - passed) / config.decay_share)
    return (1 + math.cos(math.pi * passed)) / 2


def _decayed(winner: Recipe, phase: Phase, before: PhasePlan | None, passed: float) -> Config:
    """Return the proxy's config with the schedule of a phase.

    The first phase has the recipe's own schedule, a later one a linear schedule. A ``wsd`` schedule
    stays ``wsd`` only in the phase in which its decay begins.

    :param passed: share of all tokens before the phase.
    """
    source = winner.projection.source
    if source.schedule == "wsd":
        falling = (passed + phase.share - (1 - source.decay_share)) / phase.share
        if 0 < falling < 1:
            return source.model_copy(update={"decay_share": falling})
        return source.model_copy(update={"schedule": "linear"})
    return source if before is None else source.model_copy(update={"schedule": "linear"})


def _laid_out(
    winner: Recipe, booking: Booking, phase: Phase, target: TargetArchitecture
) -> tuple[MemoryUse, list[MemoryUse]]:
    fp8 = winner.precision == "fp8"
    factor = memory_factor(target, booking.cluster, booking.measured, fp8=fp8)
    batch = max(1, round(winner.schedule.tokens_per_step / target.seq_len))
    uses = [
        use
        for use in layouts(target, booking.cluster, batch, fp8=fp8, measured=factor)
        if phase.tensor in (None, use.layout.tensor)
        and phase.pipeline in (None, use.layout.pipeline)
    ]
    if not uses:
        raise HandoffError(
            f"phase {phase.name} wants TP {phase.tensor or 'any'} × PP {phase.pipeline or 'any'}, "
            f"which does not divide {target.name} and {booking.cluster.nodes} × "
            f"{booking.cluster.gpus} GPUs; take another, or leave it to the plan"
        )
    chosen = fastest(uses, target, booking.cluster, fp8=fp8, measured=booking.measured)
    return chosen, uses


def _recipe(
    winner: Recipe,
    own: Booking,
    phase: Phase,
    place: int,
    memory: MemoryUse,
    uses: list[MemoryUse],
    before: PhasePlan | None,
    source: Config,
) -> Recipe:
    """:param source: the proxy's config with the schedule of the phase."""
    target, sequences = own.target, memory.layout.global_batch
    shape = {"seq_len": target.seq_len, "batch_size": sequences, "rope_base": target.rope_base}
    config = winner.projection.config.model_copy(update=shape)
    projection = winner.projection.model_copy(update={"target": target, "config": config})
    schedule = make_schedule(projection, memory.layout, batch_carried=sequences)
    projection = projection.model_copy(
        update={"steps": schedule.steps, "tokens_per_step": schedule.tokens_per_step}
    )
    # The first phase warms up like a run without phases.
    warmup = min(WARMUP_STEPS, schedule.steps // 10) if before else winner.schedule.warmup_steps
    schedule = schedule.model_copy(update={"warmup_steps": min(warmup, schedule.steps - 1)})
    falling = projection.model_copy(update={"source": source})
    return winner.model_copy(
        update={
            "name": f"recipe-phase-{place + 1}-{phase.name}",
            "role": "phase",
            "why": f"{phase.share:.4g} of the tokens, in sequences of {target.seq_len:,}",
            "projection": projection,
            "memory": memory,
            "layouts": tuple(uses),
            **scheduled(own, falling, memory.layout, schedule),
            "follows": before.recipe.script if before else None,
            "mix": phase.mix,
        }
    )


def _with_rates(groups: Sequence[FlagGroup], lr: float, min_lr: float) -> tuple[FlagGroup, ...]:
    """Return the flags with the phase's own rates."""
    values = {"--lr": f"{lr:.8g}", "--min-lr": f"{min_lr:.8g}"}
    return tuple(
        FlagGroup(
            name=group.name,
            flags=tuple(
                Flag(name=flag.name, value=values.get(flag.name, flag.value))
                for flag in group.flags
            ),
        )
        for group in groups
    )


def _change(before: MemoryUse, now: MemoryUse) -> str:
    """Return the changes of the layout between two phases, and the reasons, in words."""
    changes = []
    if str(before.layout) != str(now.layout):
        changes.append(f"{before.layout} becomes {now.layout}")
    if now.layout.is_sharded != before.layout.is_sharded:
        whole_gb = now.optimizer_gb * (now.layout.data if now.layout.is_sharded else 1)
        changes.append(
            f"the optimizer's state, {whole_gb:.1f} GB a GPU, is "
            + (
                f"sharded: with {now.activations_gb + now.logits_gb:.1f} GB of activations and "
                f"logits it would not fit in {now.limit_gb:.1f}"
                if now.layout.is_sharded
                else "kept whole: there is room for it"
            )
        )
    if before.layout.recompute != now.layout.recompute:
        changes.append(f"recomputation is {now.layout.recompute}")
    return "; ".join(changes)
