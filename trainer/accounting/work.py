"""What was counted: the pieces of work of a step, and their sums."""

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
    """The sizes of a matrix product ``[m, k] × [k, n]``, ``batch`` of them; for attention m counts
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
    """torch's name without its overload, or the function's that launches the kernel."""
    kind: Kind
    read_bytes: int
    written_bytes: int
    kernels: int
    flops: int = 0
    dtype: str = ""
    """The type of a product's operands: float32, bfloat16, float8_e4m3fn."""
    shape: Shape | None = None
    """The sizes of a product; None for all other work."""
    misaligned: tuple[str, ...] = ()
    """The product's matrices whose rows do not all start at multiples of 16 bytes, in words."""

    @property
    def moved_bytes(self) -> int:
        """Through the device's memory, nothing being kept in a cache from one kernel to the
        next."""
        return self.read_bytes + self.written_bytes


@dataclass(frozen=True)
class StepCounts:
    """One training step."""

    calls: Mapping[Work, int]
    """How often each piece of work is done, in the order of the first."""
    peak_bytes: Mapping[Phase, int]
    """Most memory held at once in each phase, what is held always included."""
    held_bytes: int
    """Between steps: weights and their copies, AdamW's moments, the batch."""

    def total(self, value: Callable[[Work], int]) -> int:
        """The sum of something over all calls."""
        return sum(calls * value(work) for work, calls in self.calls.items())

    @cached_property
    def moved_bytes(self) -> int:
        """Read and written by all kernels."""
        return self.total(lambda work: work.moved_bytes)

    @cached_property
    def kernels(self) -> int:
        """Launched."""
        return self.total(lambda work: work.kernels)

    @cached_property
    def flops(self) -> int:
        """FLOPs of products and attention as they are executed: of a causal mask's squares the
        lower half, and what is computed again twice."""
        return self.total(lambda work: work.flops)

    @cached_property
    def elementwise_bytes(self) -> int:
        """Moved by what is neither product nor attention nor the optimizer: norms, activations,
        the loss, casts, additions. It is what fusing kernels can spare."""
        return self.total(
            lambda work: work.moved_bytes if work.kind == "other" and work.phase != "update" else 0
        )

    def flops_of(self, kind: Kind) -> int:
        """FLOPs of the work of one kind."""
        return self.total(lambda work: work.flops if work.kind == kind else 0)

    @property
    def peak(self) -> int:
        """Bytes held at once, at most."""
        return max(self.peak_bytes.values())

    @property
    def misaligned(self) -> Mapping[Work, int]:
        """Products of which a matrix has rows that are not aligned to 16 bytes."""
        return {work: calls for work, calls in self.calls.items() if work.misaligned}
