"""Declare the costs of our own kernels.

Accounting runs a training step on tensors of the meta device, which have shapes and no memory, and
sees every operator of torch there. A kernel that torch knows nothing of, a Triton one say, cannot
run on them. So the function that launches it is declared here, once, where it is written:

    def _like(x_ND: Tensor, residual_ND: Tensor, gain_D: Tensor) -> tuple[Tensor, Tensor]:
        return torch.empty_like(x_ND), torch.empty_like(x_ND)

    @declared(outputs=_like)
    def add_norm(x_ND: Tensor, residual_ND: Tensor, gain_D: Tensor) -> tuple[Tensor, Tensor]:
        ...  # allocates, launches, returns

On a real device the call is what it was. While a step is counted ``outputs`` is called in its place
with the same arguments, and makes what the kernel returns (in-place kernels return what they were
given). Its cost is what a fused kernel is written to reach, every tensor argument read once, every
result written once, one launch and no matrix product, unless ``cost`` says otherwise. What a
backward pass keeps needs no declaring: the counter sees which tensors stay alive.

Code that chooses kernels by device asks :func:`has_gpu_kernels` of it, true of CUDA and of the meta
device, and counts a kernel's compiler as there while :func:`counting`.

This module imports none of the backends, so any of them may import it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import ParamSpec, TypeAlias, TypeVar

import torch
from torch import Tensor

from trainer.accounting.work import Kind

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")


@dataclass(frozen=True, slots=True)
class Cost:
    """Work of one call on the device."""

    read_bytes: int
    written_bytes: int
    kernels: int = 1
    flops: int = 0
    """FLOPs of matrix products and attention; those of elementwise work are hidden by its bytes."""
    kind: Kind = "other"
    """Kind of work that the FLOPs belong to."""


Listener: TypeAlias = Callable[[str, Cost, object, object], None]
"""Counts a call of a declared kernel, given its name, cost, arguments and result."""

_listeners: list[Listener] = []


def counting() -> bool:
    """Return whether a step is being counted, not run."""
    return bool(_listeners)


@contextmanager
def listening(listener: Listener) -> Iterator[None]:
    """Report every declared kernel to ``listener``; none of them runs meanwhile."""
    _listeners.append(listener)
    try:
        yield
    finally:
        _listeners.remove(listener)


def has_gpu_kernels(device: torch.device) -> bool:
    """Return whether GPU kernels run there: on CUDA, and on the meta device, which represents a GPU
    while a step is counted."""
    return device.type in {"cuda", "meta"}


def declared(
    *, outputs: Callable[_Arguments, _Result], cost: Callable[_Arguments, Cost] | None = None
) -> Callable[[Callable[_Arguments, _Result]], Callable[_Arguments, _Result]]:
    """Declare the function that launches a kernel; see the module.

    :param outputs: makes its results, of the right shapes and dtypes, from its arguments.
    :param cost: the work of a call; by default that of a kernel that reads and writes everything
        once.
    """

    def declare(launch: Callable[_Arguments, _Result]) -> Callable[_Arguments, _Result]:
        @functools.wraps(launch)
        def call(*args: _Arguments.args, **kwargs: _Arguments.kwargs) -> _Result:
            if not _listeners:
                return launch(*args, **kwargs)
            result = outputs(*args, **kwargs)
            if cost:
                done = cost(*args, **kwargs)
            else:
                read = sum(map(touched_bytes, tensors_in((args, kwargs))))
                done = Cost(read, sum(map(touched_bytes, tensors_in(result))))
            for listener in _listeners:
                listener(launch.__name__, done, (args, kwargs), result)
            return result

        return call

    return declare


def touched_bytes(tensor: Tensor) -> int:
    """Return the bytes of memory behind the tensor's elements, repeated ones counted once."""
    sizes = (
        size for size, stride in zip(tensor.shape, tensor.stride(), strict=True) if stride != 0
    )
    return functools.reduce(lambda left, right: left * right, sizes, tensor.element_size())


def tensors_in(values: object) -> list[Tensor]:
    """Return all tensors of nested lists, tuples and dicts."""
    if isinstance(values, Tensor):
        return [values]
    if isinstance(values, dict):
        values = list(values.values())
    if not isinstance(values, (list, tuple)):
        return []
    return [tensor for value in values for tensor in tensors_in(value)]
