"""Count the work of every operator of a step, and the memory held meanwhile.

A :class:`Counter` is a dispatch mode of torch. Below autograd it receives each operator that would
launch kernels, forward and backward. On the meta device the operators only compute shapes, so a
step of 354 M parameters is counted in seconds without memory.

**Memory** is what tensors hold. A storage counts from the operator that made it until the last
tensor on it is gone, rounded up to 512 bytes as by torch's CUDA allocator. Memory that libraries
use inside an operator counts only for attention's backward pass; cuBLAS's workspace (32 MiB on
Hopper), the context and fragmentation do not.

**Products of the head** are distinguished from the blocks' by their inputs: the head's weight or a
copy of it, or something of the logits' size made of the logits.
"""

from __future__ import annotations

import weakref
from collections import Counter as Tally
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from trainer.accounting import operators
from trainer.accounting.declared import Cost, listening, tensors_in
from trainer.accounting.operators import Call
from trainer.accounting.work import Kind, Phase, StepCounts, Work

_ROUNDING = 512

Family = Literal["weight", "logits"]


class Counter(TorchDispatchMode):
    """Counts operators within a :meth:`phase`, and tracks memory throughout."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._memory = _Memory()
        self._head = _Head()
        self._phase: Phase | None = None
        self._calls: Tally[Work] = Tally()
        self._peaks: dict[Phase, int] = {}
        self._held_bytes = 0

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Track every operator and every declared kernel in this block."""
        with listening(self.declared), self, GpuAttention():
            yield

    @contextmanager
    def phase(self, phase: Phase) -> Iterator[None]:
        """Count the work within this block."""
        if not self._peaks:
            self._held_bytes = self._memory.held_bytes
        self._memory.peak_bytes = self._memory.held_bytes
        self._phase = phase
        try:
            yield
        finally:
            self._phase = None
            self._peaks[phase] = max(self._peaks.get(phase, 0), self._memory.peak_bytes)

    def head_weight(self, weight: Tensor) -> None:
        """Set the weight that makes the logits."""
        self._head.add(weight, "weight")

    def counts(self) -> StepCounts:
        """Return the counts of all phases."""
        return StepCounts(dict(self._calls), dict(self._peaks), self._held_bytes)

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        options = dict(kwargs or {})
        # The meta device lacks this in-place operator, which returns nothing.
        has_no_meta = func.overloadpacket.__name__ == "_fused_adamw_"
        result = None if has_no_meta else func(*args, **options)
        call = Call(func, args, options, result)
        self._memory.hold(call.writes, operators.workspace_bytes(call))
        product = operators.multiplication(call)
        family_of = self._head.pass_on(call, is_product=product is not None)
        if self._phase is None or operators.is_free(call):
            return result
        if product is None:
            self._add(call.name, operators.cost(call))
            return result
        kind: Kind = "attention" if "attention" in call.name else family_of
        self._add(
            call.name,
            operators.cost(call),
            kind=kind,
            flops=product.flops,
            dtype=str(next(iter(product.matrices.values())).dtype).removeprefix("torch."),
            shape=product.shape,
            misaligned=product.misaligned,
        )
        return result

    def declared(self, name: str, cost: Cost, arguments: object, result: object) -> None:
        """See :class:`trainer.accounting.declared.Listener`."""
        self._memory.hold(tensors_in(result), 0)
        self._head.inherit(tensors_in(arguments), tensors_in(result))
        if self._phase is not None:
            self._add(name, cost, kind=cost.kind, flops=cost.flops)

    def _add(self, operator: str, cost: Cost, *, kind: Kind = "other", **more: Any) -> None:
        assert self._phase is not None
        work = Work(
            phase=self._phase,
            operator=operator,
            kind=kind,
            read_bytes=cost.read_bytes,
            written_bytes=cost.written_bytes,
            kernels=cost.kernels,
            **more,
        )
        self._calls[work] += 1


class _Memory:
    """Tracks which storages are alive."""

    def __init__(self) -> None:
        self.held_bytes = 0
        self.peak_bytes = 0
        self._alive: dict[int, weakref.ref[Any]] = {}

    def hold(self, tensors: list[Tensor], workspace_bytes: int) -> None:
        """Count the new storages among these until they are freed."""
        for tensor in tensors:
            storage = tensor.untyped_storage()
            key = storage._cdata
            if key not in self._alive:
                size = -(-storage.nbytes() // _ROUNDING) * _ROUNDING
                self._alive[key] = weakref.ref(storage, partial(self._let_go, key, size))
                self.held_bytes += size
        self.peak_bytes = max(self.peak_bytes, self.held_bytes + workspace_bytes)

    def _let_go(self, key: int, size: int, _: weakref.ref[Any]) -> None:
        del self._alive[key]
        self.held_bytes -= size


class _Head:
    """Tracks tensors derived from the head's weight and from the logits, by storage."""

    def __init__(self) -> None:
        self._families: dict[int, tuple[weakref.ref[Any], Family, int]] = {}

    def add(self, tensor: Tensor, family: Family) -> None:
        """Assign the tensor's storage to a family for as long as it lives."""
        storage = tensor.untyped_storage()
        key = storage._cdata
        gone = weakref.ref(storage, lambda _: self._families.pop(key, None))
        self._families[key] = gone, family, tensor.numel()

    def pass_on(self, call: Call, *, is_product: bool) -> Kind:
        """Record the sources of the call's results, and return the kind of a product."""
        arguments, results = call.reads, call.writes
        if not is_product:
            if not operators.is_free(call) and call.name not in {"embedding"}:
                self.inherit(arguments, results)
            return "other"
        families = [self._family(tensor) for tensor in arguments]
        if families.count("weight") and not families.count("logits"):
            for tensor in results:
                self.add(tensor, "logits")
        return "head" if any(families) else "block"

    def inherit(self, arguments: list[Tensor], results: list[Tensor]) -> None:
        """Let copies of the weight be of its family, and tensors as large as the logits made from
        them of theirs."""
        families = {self._family(tensor) for tensor in arguments}
        if families == {"weight"}:
            for tensor in results:
                self.add(tensor, "weight")
        elif "logits" in families:
            largest = max(t.numel() for t in arguments if self._family(t) == "logits")
            for tensor in results:
                if tensor.numel() >= largest:
                    self.add(tensor, "logits")

    def _family(self, tensor: Tensor) -> Family | None:
        found = self._families.get(tensor.untyped_storage()._cdata)
        return found[1] if found else None


class GpuAttention(TorchFunctionMode):
    """Makes ``scaled_dot_product_attention`` run as on CUDA; the meta device would use the many
    operators of the written-out form.

    That is FlashAttention in 16 bits, and torch's memory-efficient kernel in fp32.
    """

    def __torch_function__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        options = dict(kwargs or {})
        if func is not torch.nn.functional.scaled_dot_product_attention:
            return func(*args, **options)
        options.pop("enable_gqa", None)  # the kernel uses the shapes
        q, k, v = args
        if q.dtype is torch.float32:
            aten = torch.ops.aten._scaled_dot_product_efficient_attention
            return aten(q, k, v, None, True, 0.0, **options)[0]
        return torch.ops.aten._scaled_dot_product_flash_attention(q, k, v, 0.0, **options)[0]
