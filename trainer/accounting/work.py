"""Define the counted work of a step, and predict its time on a device described by its rates.

A kernel takes at least the time of its FLOPs at the device's rate, and at least that of its bytes;
the larger is its roofline (Williams et al. 2009). A step's time is the sum over its kernels, one
after the other. The rates are those that good kernels *reach*, not a data sheet's: no measurement
could falsify a prediction from peaks that nothing reaches.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import Literal

from pydantic import ValidationError

from autoresearch.errors import SpecError
from autoresearch.values import Frozen, NonNegative, Positive, explain

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


class DeviceDescription(Frozen):
    """Facts about a GPU that a prediction needs."""

    name: str
    bf16_tflops: Positive
    """Rate of large bf16 products within a training step; all rates are in 10¹² FLOP/s."""
    fp8_tflops: Positive
    fp32_tflops: Positive
    attention_tflops: Positive
    """Rate of causal attention in bf16, for executed FLOPs."""
    bandwidth_gb_per_s: Positive
    """10⁹ bytes per second of device memory, reads and writes together."""
    ceiling_tflops: Positive
    """Rate of the fastest single large bf16 product, the base of utilizations."""
    memory_gib: Positive
    misaligned_slowdown: Positive = 3.0
    """Slow-down of a product whose rows are not aligned to 16 bytes."""
    launch_us: NonNegative = 2.0
    """Least time of a kernel, however little it does."""
    source: str
    """Source of the rates, and which are assumed."""

    def seconds(self, counts: StepCounts) -> float:
        """Return the time of one step at these rates."""
        return sum(calls * self._of(work) for work, calls in counts.calls.items())

    def _of(self, work: Work) -> float:
        computing = work.flops / (1e12 * self._tflops(work))
        if work.misaligned and work.kind != "attention":
            computing *= self.misaligned_slowdown
        moving = work.moved_bytes / (1e9 * self.bandwidth_gb_per_s)
        return max(computing, moving, 1e-6 * self.launch_us * work.kernels)

    def _tflops(self, work: Work) -> float:
        if work.dtype == "float32":
            return self.fp32_tflops
        if work.kind == "attention":
            return self.attention_tflops
        return self.fp8_tflops if work.dtype.startswith("float8") else self.bf16_tflops


DEVICES: Mapping[str, DeviceDescription] = MappingProxyType(
    {
        "h100": DeviceDescription(
            name="H100",
            bf16_tflops=765,
            fp8_tflops=1290,
            fp32_tflops=50,
            attention_tflops=175,
            bandwidth_gb_per_s=2580,
            ceiling_tflops=679,
            memory_gib=75,
            source="measured within steps of the 354 M shape on an H100 80GB HBM3 with torch 2.11"
            " (bench/RESULTS.md); fp32 assumed, 50 of the data sheet's 67. Its fastest square"
            " product is slower than a step's, since it meets the power limit",
        ),
        "gb10": DeviceDescription(
            name="GB10",
            bf16_tflops=75,
            fp8_tflops=110,
            fp32_tflops=20,
            attention_tflops=40,
            bandwidth_gb_per_s=200,
            ceiling_tflops=92,
            memory_gib=119,
            source="published for a DGX Spark: 92 TFLOP/s in bf16 and 218 GB/s, of which 75 and"
            " 200 are assumed in a step; fp8, fp32 and attention assumed",
        ),
    }
)


def describe(text: str) -> DeviceDescription:
    """Return one of :data:`DEVICES`, with some of its numbers changed.

    :param text: a name, such as ``gb10``, or ``gb10,bf16_tflops=75,bandwidth_gb_per_s=210``.
    :raises SpecError: on an unknown name or field, or an invalid value.
    """
    name, _, rates = text.partition(",")
    if name.lower() not in DEVICES:
        raise SpecError(
            f"no device is described as {name!r}; choose {' or '.join(DEVICES)}, and change its"
            " numbers like gb10,bf16_tflops=75"
        )
    known = DEVICES[name.lower()]
    if not rates:
        return known
    fields = [name for name in DeviceDescription.model_fields if name not in {"name", "source"}]
    changes: dict[str, str] = {}
    for word in rates.split(","):
        field, _, value = (part.strip() for part in word.partition("="))
        if field not in fields or not value:
            raise SpecError(
                f"{word.strip()!r} is not a rate of a device; write FIELD=NUMBER, where FIELD is "
                f"one of {', '.join(fields)}"
            )
        changes[field] = value
    source = f"{known.source}; changed: {', '.join(f'{f} {v}' for f, v in changes.items())}"
    try:
        return DeviceDescription.model_validate({**known.model_dump(), **changes, "source": source})
    except ValidationError as error:
        raise SpecError(f"no device can be as given: {explain(error)}") from error
