"""Measure a device's best speed: its fastest large matrix product, and copying.

Utilization relative to a data sheet says as much about the data sheet as about the trainer. So the
ceiling is measured on the machine, with matrices of normal random numbers: products of zeros draw
less power and run faster than any training does.

:func:`measure_ceiling` runs ``python -m trainer.machine.ceiling DEVICE DTYPE`` in its own process,
    so that its caller never holds a CUDA context. Nothing is cached: a ceiling depends on present
    clocks and temperature.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from statistics import median
from typing import TYPE_CHECKING, Literal

from autoresearch.errors import MachineryError
from autoresearch.values import Frozen, Positive, PositiveInt
from trainer.machine.gpu import NoAnswer, ask, reply

if TYPE_CHECKING:
    import torch

DTypeName = Literal["fp32", "bf16"]

CUDA_SIZES = (4096, 8192, 16384)
CPU_SIZES = (512, 1024)
REPETITIONS = 15
WARM_S = 0.5
"""Seconds of work before timing: clocks rise and libraries choose their kernels."""
PATIENCE_S = 180.0
"""Timeout in seconds; importing torch from a cold disk and starting CUDA take most of it at
worst."""
CUDA_COPY_BYTES = 2 << 30
CPU_COPY_BYTES = 256 << 20
"""More than a processor's caches hold."""


class Product(Frozen):
    """Timing of a product of two square matrices of ``size``."""

    size: PositiveInt
    tflops: Positive
    """``2 × size³`` over the median time."""


class Ceiling(Frozen):
    """Measured peak speed of one device."""

    device: str
    dtype: DTypeName
    products: tuple[Product, ...]
    copy_gb_per_s: Positive
    """10⁹ bytes per second of a copy within the device's memory, reads and writes counted."""

    @property
    def tflops(self) -> float:
        """Rate of the fastest size."""
        return max(product.tflops for product in self.products)

    def utilisation_pct(self, flops_per_token: float, tokens_per_s: float) -> float:
        """Return the percentage of the fastest product's rate that a training at this speed
        reaches."""
        return 100 * flops_per_token * tokens_per_s / (self.tflops * 1e12)


def measure_ceiling(
    device: str, dtype: DTypeName = "bf16", *, sizes: Sequence[int] = ()
) -> Ceiling:
    """Measure ``cpu``, ``cuda`` or ``cuda:N`` in a process of its own, in about ten seconds.

    :param sizes: of the square matrices; none: :data:`CUDA_SIZES` or :data:`CPU_SIZES`.
    :raises MachineryError: if there is no such device, or the process does not answer.
    """
    chosen = sizes or (CPU_SIZES if device == "cpu" else CUDA_SIZES)
    try:
        return ask(
            Ceiling,
            "trainer.machine.ceiling",
            device,
            dtype,
            *map(str, chosen),
            patience_s=PATIENCE_S,
        )
    except NoAnswer as why:
        raise MachineryError(
            f"the ceiling of {device} cannot be measured ({why}); check whether something else uses"
            " it, or run: autoresearch doctor"
        ) from why


# --- in a process of its own ---------------------------------------------------------------


def measure_here(device: str, dtype: DTypeName, sizes: Sequence[int]) -> Ceiling:
    """Measure in this process."""
    import torch  # noqa: PLC0415 (the caller needs only the types)

    number = torch.float32 if dtype == "fp32" else torch.bfloat16
    place = torch.device(device)
    products = []
    for size in sizes:
        left, right = (torch.randn(size, size, device=place).to(number) for _ in range(2))
        out = torch.empty_like(left)
        seconds = _median_s(place, partial(torch.mm, left, right, out=out))
        products.append(Product(size=size, tflops=2 * size**3 / seconds / 1e12))
    copied_bytes = CPU_COPY_BYTES if place.type == "cpu" else CUDA_COPY_BYTES
    source = torch.ones(copied_bytes // 4, device=place)
    target = torch.empty_like(source)
    copy_s = _median_s(place, lambda: target.copy_(source))
    copy_gb_per_s = 2 * copied_bytes / copy_s / 1e9
    return Ceiling(
        device=device, dtype=dtype, products=tuple(products), copy_gb_per_s=copy_gb_per_s
    )


def _median_s(device: torch.device, work: Callable[[], object]) -> float:
    """Return the median seconds of one ``work``, with a sync after each; work takes much longer."""
    import torch  # noqa: PLC0415

    def timed() -> float:
        began = time.perf_counter()
        work()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        return time.perf_counter() - began

    warm_until = time.perf_counter() + WARM_S
    timed()
    while time.perf_counter() < warm_until:
        timed()
    return median(timed() for _ in range(REPETITIONS))


def main(arguments: Sequence[str]) -> int:
    """Print the Ceiling for ``DEVICE DTYPE SIZE…`` as JSON."""
    device, dtype, *sizes = arguments
    number: DTypeName = "fp32" if dtype == "fp32" else "bf16"
    return reply(lambda: measure_here(device, number, [*map(int, sizes)]))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
