"""What the ranks are told, and what they tell. Files of JSON in one scratch directory."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, Self, TypeAlias

from pydantic import Field, model_validator

from autoresearch.values import Finite, Frozen, NonNegative, NonNegativeInt, Positive, PositiveInt
from trainer.spec import Config

JOB_FILE = "job.json"
LOSSES_FILE = "losses.jsonl"

DeviceKind: TypeAlias = Literal["cpu", "cuda"]


class Layout(Frozen):
    """How a model and its batch are spread over ranks."""

    name: str
    tensor: PositiveInt = 1
    """Ranks that share each matrix of a block."""
    pipeline: Annotated[int, Field(ge=1, le=2)] = 1
    """Ranks that share the layers; a tied head's gradient is shared by the two ends."""
    data: PositiveInt = 1
    """Ranks that share the batch."""
    sharded: bool = False
    """Over the ``data`` ranks: FSDP (``fully_shard``) rather than DDP."""
    averaged: bool = True
    """False: the ``data`` ranks keep their own gradients, which is wrong. For the control that
    proves that a comparison would notice."""

    @model_validator(mode="after")
    def _is_possible(self) -> Self:
        if self.data > 1 and not self.sharded and self.tensor * self.pipeline > 1:
            # DDP takes no DTensors, and fails on a pipeline's micro-batches (torch 2.13: "rebuilt
            # parameter indices size is not same as original").
            raise ValueError(f"{self.name}: DDP goes with no other parallelism; shard instead")
        if not self.averaged and (self.data == 1 or self.sharded):
            raise ValueError(f"{self.name}: only plain DDP can be kept from averaging")
        return self

    @property
    def world_size(self) -> int:
        return self.tensor * self.pipeline * self.data


SINGLE = Layout(name="single process")


class ParallelJob(Frozen):
    """A few steps of one recipe, under several layouts of one world size, one after the other."""

    config: Config
    """In fp32: what is compared are sums in another order, and nothing else."""
    vocab_size: PositiveInt
    seed: NonNegativeInt
    """Draws the weights and the batches."""
    steps: PositiveInt
    device: DeviceKind
    layouts: tuple[Layout, ...]
    deadline_s: Positive
    """After which a rank ends itself, whoever still watches."""

    @model_validator(mode="after")
    def _is_whole(self) -> Self:
        if self.config.precision != "fp32":
            raise ValueError(f"precision {self.config.precision} would hide differences; use fp32")
        if len({layout.world_size for layout in self.layouts}) != 1:
            raise ValueError("the layouts of one job need as many ranks each")
        for layout in self.layouts:
            _refuse_what_does_not_divide(self.config, layout)
        return self

    @property
    def world_size(self) -> int:
        return self.layouts[0].world_size


class LayoutLosses(Frozen):
    """What a layout's training looked like, to all its ranks together."""

    name: str
    losses: tuple[Finite, ...]
    """Nats per token over the global batch, of each step before its update."""
    grad_norms: tuple[NonNegative, ...]
    """Over all parameters, before clipping."""


class RankFailure(Frozen):
    """A rank's last words."""

    rank: NonNegativeInt
    layout: str
    message: str
    """One line."""
    at_s: float
    """By the monotonic clock that the ranks share: read the first to fail."""


def failure_file(scratch: Path, rank: int) -> Path:
    return scratch / f"failed-{rank}.json"


def _refuse_what_does_not_divide(config: Config, layout: Layout) -> None:
    shares = (
        ("n_head", config.n_head, "tensor", layout.tensor),
        ("n_kv_head", config.kv_heads, "tensor", layout.tensor),
        ("d_ff", config.d_ff, "tensor", layout.tensor),
        ("n_layer", config.n_layer, "pipeline", layout.pipeline),
        ("batch_size", config.batch_size, "data × pipeline", layout.data * layout.pipeline),
    )
    for what, amount, axis, ranks in shares:
        if amount % ranks:
            raise ValueError(f"{what} {amount} cannot be shared by {ranks} {axis} ranks")
