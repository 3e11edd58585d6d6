"""Days of a curriculum's phases, and the parallelism each needs.

A phase trains a share of the tokens at one context length T. With N weights in matrix products, L
layers and D = d_model, training takes

    FLOPs a token = 6 × N + 6 × L × D × T

(Chowdhery et al. 2022, arXiv 2204.02311, appendix B, counted by :mod:`trainer.machine.flops`, its
attention term halved because a causal mask needs half of the scores.) A unit that was measured at
so many tokens/s on some model reaches their product, FLOP/s, in every phase:

    tokens/s = units × efficiency × FLOP/s / FLOPs a token
    days     = tokens × share / (tokens/s × 86,400)

The state is 16 bytes a parameter (weight, gradient and AdamW's two moments in fp32, or ZeRO's mixed
precision, arXiv 1910.02054, section 3.1, which comes to the same); the activations of one sequence
are :mod:`trainer.memory.estimate`'s, none of them computed anew. On n devices that split a sequence
c ways, each holds

    state / n + activations / c

and 90 % of its memory may be used. Where n = 1 will do, plain data parallelism does. Else the state
is sharded over the fewest devices that hold it (FSDP, ZeRO-3), and the sequence split (context
parallel) where it must be; powers of two.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Self, TypeAlias

from pydantic import Field, ValidationError, model_validator

from agent.settings.rates import Amount
from autoresearch.errors import SettingsError
from autoresearch.values import Frozen, PositiveInt, explain
from funnel.cost.speed import PUBLISHED_SPEED, MeasuredSpeed
from funnel.target.architecture import TargetArchitecture
from funnel.target.plain_recipe import plain_config
from trainer.machine.flops import TrainingFlops
from trainer.memory.estimate import GIB, AnalyticMemory

Parallelism: TypeAlias = Literal["data parallel", "sharded", "sharded, sequence split"]

SECONDS_PER_DAY = 86_400
STATE_BYTES = 16
LONGEST_SEQ_LEN = 10**9
USABLE_SHARE = 0.9
"""The share of a device's memory that training may fill; the rest goes to workspaces, fragments and
communication."""


class Phase(Frozen):
    """A share of the tokens at one context length."""

    seq_len: Annotated[int, Field(gt=0, le=LONGEST_SEQ_LEN)]
    share: Annotated[float, Field(gt=0, le=1, allow_inf_nan=False)]

    @classmethod
    def parse(cls, text: str) -> Self:
        """The phase that ``8192:0.9`` names.

        :raises SettingsError: on anything else.
        """
        try:
            length, share = text.split(":")
            return cls(seq_len=int(length), share=float(share))
        except ValueError as error:
            raise SettingsError(
                f"a phase of {text!r} cannot be read; write context length and share of the tokens "
                "like 8192:0.9"
            ) from error


class TimelineQuestion(Frozen):
    """What is to be trained, and with what."""

    tokens: Annotated[float, Field(gt=0, le=1e18, allow_inf_nan=False)]
    phases: tuple[Phase, ...]
    units: PositiveInt = 1
    efficiency: Annotated[float, Field(gt=0, le=1, allow_inf_nan=False)] = 1.0
    """The share of the units' added-up speed that is left when they work together."""
    device_gib: Amount = 128.0
    """Memory of one unit."""

    @model_validator(mode="after")
    def _shares_are_whole(self) -> Self:
        total = math.fsum(phase.share for phase in self.phases)
        if abs(total - 1) > 1e-6:
            raise ValueError(f"the phases' shares add up to {total:g}, not to 1; mend them")
        return self


class PhasePlan(Frozen):
    """One phase, worked out."""

    seq_len: PositiveInt
    share: float
    tokens: float
    flops_per_token: float
    tokens_per_s: float
    """Tokens a second of all units together."""
    days: float
    state_gib: float
    """Weights, gradients and optimizer state of the whole model."""
    activations_gib: float
    """What one sequence keeps for its backward pass."""
    parallelism: Parallelism
    devices: PositiveInt
    """The fewest that hold one copy of the model and one sequence."""
    splits: PositiveInt
    """Devices that share one sequence."""
    fits: bool
    """Whether there are so many units."""

    def needs(self) -> str:
        """In words."""
        if self.devices == 1:
            return self.parallelism
        split = f", a sequence over {self.splits}" if self.splits > 1 else ""
        short = "" if self.fits else ": more than there are"
        return f"sharded over {self.devices}{split}{short}"


@dataclass(frozen=True, slots=True)
class TrainedModel:
    """What of a model its days and its memory depend on."""

    params: float
    product_flops_per_token: float
    attention_flops_per_token: float
    """Causal, for each token of context."""
    state_bytes: float
    block_bytes_per_token: float
    """Activations of the blocks."""
    logits_bytes_per_token: float

    @classmethod
    def of(cls, target: TargetArchitecture) -> TrainedModel:
        config, vocab = plain_config(target), target.vocab_size
        flops = TrainingFlops.of(target, vocab_size=vocab, seq_len=target.seq_len)
        parts = _memory(vocab).parts(config)
        blocks = _memory(0).parts(config).per_token_bytes
        return cls(
            params=target.total_params,
            product_flops_per_token=flops.products,
            attention_flops_per_token=(flops.causal_per_token - flops.products) / target.seq_len,
            state_bytes=STATE_BYTES * target.total_params,
            block_bytes_per_token=blocks,
            logits_bytes_per_token=parts.per_token_bytes - blocks,
        )

    def scaled(self, params: float) -> TrainedModel:
        """As deep to its width, with other parameters: depth and width grow with the cube root."""
        growth = (params / self.params) ** (1 / 3)
        return TrainedModel(
            params=params,
            product_flops_per_token=self.product_flops_per_token * params / self.params,
            attention_flops_per_token=self.attention_flops_per_token * growth**2,
            state_bytes=self.state_bytes * params / self.params,
            block_bytes_per_token=self.block_bytes_per_token * growth**2,
            logits_bytes_per_token=self.logits_bytes_per_token,
        )

    def flops_per_token(self, seq_len: int) -> float:
        """To train on it, forward and backward."""
        return self.product_flops_per_token + self.attention_flops_per_token * seq_len

    def activations_gib(self, seq_len: int) -> float:
        """What one sequence keeps for its backward pass."""
        return (self.block_bytes_per_token + self.logits_bytes_per_token) * seq_len / GIB


@dataclass(frozen=True, slots=True)
class Timeline:
    """Each phase of training one model at one speed."""

    target: str
    model: TrainedModel
    speed: MeasuredSpeed
    asked: TimelineQuestion
    phases: tuple[PhasePlan, ...]

    @classmethod
    def of(
        cls, target: str, model: TrainedModel, speed: MeasuredSpeed, asked: TimelineQuestion
    ) -> Timeline:
        plans = tuple(_plan(phase, model, speed, asked) for phase in asked.phases)
        return cls(target=target, model=model, speed=speed, asked=asked, phases=plans)

    @property
    def days(self) -> float:
        """Days that all phases take, one after the other."""
        return sum(plan.days for plan in self.phases)

    def as_json(self) -> dict[str, Any]:
        return {
            "target": self.target,
            "params": self.model.params,
            "asked": self.asked.model_dump(mode="json"),
            "speed": self.speed.model_dump() | {"tflops": self.speed.tflops},
            "phases": [plan.model_dump() for plan in self.phases],
            "days": self.days,
        }


def question(**values: object) -> TimelineQuestion:
    """A TimelineQuestion.

    :raises SettingsError: naming what makes no sense.
    """
    try:
        return TimelineQuestion.model_validate(values)
    except ValidationError as error:
        raise SettingsError(f"no such timeline can be worked out: {explain(error)}") from error


def default_tokens(target: TargetArchitecture, model: TrainedModel) -> float:
    """The target's budget, in proportion where the model has been given other parameters."""
    return target.tokens * model.params / target.total_params


def assumptions(asked: TimelineQuestion, speed: MeasuredSpeed) -> list[str]:
    """What was not measured."""
    stated = [
        "the FLOP/s of the measured model stand for those of the target; larger matrices are "
        "usually faster, long contexts slower",
        f"{USABLE_SHARE:.0%} of a unit's memory can be used, and a batch has one sequence at least",
        "activations could also be computed anew, for about a third more time",
    ]
    if asked.units > 1 and asked.efficiency == 1:
        stated.append("the units are taken to scale perfectly, which flatters them")
    if speed is PUBLISHED_SPEED:
        stated.append("the speed is a published one: measure yours, and give --campaign")
    return stated


def _plan(
    phase: Phase, model: TrainedModel, speed: MeasuredSpeed, asked: TimelineQuestion
) -> PhasePlan:
    flops = model.flops_per_token(phase.seq_len)
    tokens_per_s = asked.units * asked.efficiency * speed.tflops * 1e12 / flops
    tokens = asked.tokens * phase.share
    state_gib = model.state_bytes / GIB
    activations_gib = model.activations_gib(phase.seq_len)
    devices, splits = fewest_devices(state_gib, activations_gib, asked.device_gib * USABLE_SHARE)
    return PhasePlan(
        seq_len=phase.seq_len,
        share=phase.share,
        tokens=tokens,
        flops_per_token=flops,
        tokens_per_s=tokens_per_s,
        days=tokens / tokens_per_s / SECONDS_PER_DAY,
        state_gib=state_gib,
        activations_gib=activations_gib,
        parallelism=_parallelism(devices, splits),
        devices=devices,
        splits=splits,
        fits=devices <= asked.units,
    )


def fewest_devices(state_gib: float, activations_gib: float, usable_gib: float) -> tuple[int, int]:
    """The fewest devices, and of those the fewest splits of a sequence, that fit."""
    devices = 1
    while True:
        splits = 1
        while splits <= devices:
            if state_gib / devices + activations_gib / splits <= usable_gib:
                return devices, splits
            splits *= 2
        devices *= 2


def _parallelism(devices: int, splits: int) -> Parallelism:
    if devices == 1:
        return "data parallel"
    return "sharded" if splits == 1 else "sharded, sequence split"


def _memory(vocab_size: int) -> AnalyticMemory:
    return AnalyticMemory(vocab_size=vocab_size, backend="megatron", device="cuda", limit_gib=1)
