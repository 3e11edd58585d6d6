"""Define the counted work of a step, and its sums."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

Phase = Literal["forward", "backward", "update"]
Kind = Literal["block", "head", "attention", "other"]
"""Products of the blocks' weights, products of the head's weight, attention, everything else."""
KINDS: tuple[Kind, ...] = ("block", "head", "attention", "other")


@dataclass(frozen=True, slots=True)
class Shape:
    """Sizes of a matrix product ``[m, k] × [k, n]``, ``batch`` of them; for attention m counts
    queries, n keys, and k is head_dim."""

    m: int
    k: int
    n: int
    batch: int = 1

    def __str__(self) -> str:
        times = f"{self.batch} of " if self.batch > 1 else ""
        return f"{times}[{self.m}, {self.k}] × [{self.k}, {self.n}]"


@dataclass(frozen=True, slots=True)
class Work:
    """One call of an operator or of a declared kernel."""

    phase: Phase
    operator: str
    """torch's name without its overload, or the name of the function that launches the kernel."""
    kind: Kind
    read_bytes: int
    written_bytes: int
    kernels: int
    flops: int = 0
    dtype: str = ""
    """Type of a product's operands: float32, bfloat16, float8_e4m3fn."""
    shape: Shape | None = None
    """Sizes of a product; None for all other work."""
    misaligned: tuple[str, ...] = ()
    """The product's matrices whose rows do not all start at multiples of 16 bytes, in words."""

    @property
    def moved_bytes(self) -> int:
        """Bytes through the device's memory, with nothing cached between kernels."""
        return self.read_bytes + self.written_bytes


@dataclass(frozen=True)
class StepCounts:
    """Counts of one training step."""

    calls: Mapping[Work, int]
    """Number of calls of each piece of work, in the order of the first."""
    peak_bytes: Mapping[Phase, int]
    """Most memory held at once in each phase, permanent memory included."""
    held_bytes: int
    """Memory held between steps: weights and their copies, AdamW's moments, the batch."""

    def total(self, value: Callable[[Work], int]) -> int:
        """Return the sum of a value over all calls."""
        return sum(calls * value(work) for work, calls in self.calls.items())

    @cached_property
    def moved_bytes(self) -> int:
        """Bytes read and written by all kernels."""
        return self.total(lambda work: work.moved_bytes)

    @cached_property
    def kernels(self) -> int:
        """Number of kernels launched."""
        return self.total(lambda work: work.kernels)

    @cached_property
    def flops(self) -> int:
        """FLOPs of products and attention as executed: a causal mask's lower half only, and
        recomputed work twice."""
        return self.total(lambda work: work.flops)

    @cached_property
    def elementwise_bytes(self) -> int:
        """Bytes moved by norms, activations, the loss, casts and additions: what fusing kernels can
        save."""
        return self.total(
            lambda work: work.moved_bytes if work.kind == "other" and work.phase != "update" else 0
        )

    def flops_of(self, kind: Kind) -> int:
        """Return the FLOPs of the work of one kind."""
        return self.total(lambda work: work.flops if work.kind == kind else 0)

    @property
    def peak(self) -> int:
        """Most bytes held at once."""
        return max(self.peak_bytes.values())

    @property
    def misaligned(self) -> Mapping[Work, int]:
        """Products with a matrix whose rows are not aligned to 16 bytes."""
        return {work: calls for work, calls in self.calls.items() if work.misaligned}
