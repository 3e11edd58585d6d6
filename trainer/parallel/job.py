"""Define the inputs and outputs of ranks: JSON files in one scratch directory."""

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
    """Distribution of a model and its batch over ranks."""

    name: str
    tensor: PositiveInt = 1
    """Ranks that share each matrix of a block."""
    pipeline: Annotated[int, Field(ge=1, le=2)] = 1
    """Ranks that share the layers; a tied head's gradient is shared by the two ends."""
    data: PositiveInt = 1
    """Ranks that share the batch."""
    sharded: bool = False
    """Whether the ``data`` ranks use FSDP (``fully_shard``) rather than DDP."""
    averaged: bool = True
    """False: the ``data`` ranks keep their own gradients, which is wrong. This is a control that
    shows that a comparison would notice."""

    @model_validator(mode="after")
    def _is_possible(self) -> Self:
        if self.data > 1 and not self.sharded and self.tensor * self.pipeline > 1:
            # DDP supports no DTensors, and fails on a pipeline's micro-batches (torch 2.13:
            # "rebuilt parameter indices size is not same as original").
            raise ValueError(
                f"{self.name}: DDP cannot be combined with other parallelism; shard instead"
            )
        if not self.averaged and (self.data == 1 or self.sharded):
            raise ValueError(f"{self.name}: only plain DDP can be kept from averaging")
        return self

    @property
    def world_size(self) -> int:
        return self.tensor * self.pipeline * self.data


SINGLE = Layout(name="single process")


class ParallelJob(Frozen):
    """A few steps of one recipe, under several layouts of one world size in turn."""

    config: Config
    """Config in fp32: the comparison is of sums in another order only."""
    vocab_size: PositiveInt
    seed: NonNegativeInt
    """Seeds the weights and the batches."""
    steps: PositiveInt
    device: DeviceKind
    layouts: tuple[Layout, ...]
    deadline_s: Positive
    """Seconds after which a rank ends itself, even if others still wait for it."""

    @model_validator(mode="after")
    def _is_whole(self) -> Self:
        if self.config.precision != "fp32":
            raise ValueError(f"precision {self.config.precision} would hide differences; use fp32")
        if len({layout.world_size for layout in self.layouts}) != 1:
            raise ValueError("the layouts of one job need as many ranks each")
        for layout in self.layouts:
            _refuse_indivisible(self.config, layout)
        return self

    @property
    def world_size(self) -> int:
        return self.layouts[0].world_size


class LayoutLosses(Frozen):
    """Training curve of a layout, over all its ranks."""

    name: str
    losses: tuple[Finite, ...]
    """Nats per token over the global batch, of each step before its update."""
    grad_norms: tuple[NonNegative, ...]
    """Gradient norm over all parameters, before clipping."""


class RankFailure(Frozen):
    """Failure of one rank."""

    rank: NonNegativeInt
    message: str
    """One line."""
    at_s: float
    """Time on the ranks' shared monotonic clock: read the first to fail."""


def failure_file(scratch: Path, rank: int) -> Path:
    return scratch / f"failed-{rank}.json"


def _refuse_indivisible(config: Config, layout: Layout) -> None:
    if config.code:
        raise ValueError(f"the ranks cannot run {', '.join(config.code)}; leave them empty")
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
