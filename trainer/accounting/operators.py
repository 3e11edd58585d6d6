"""What one call of each of torch's operators does on a GPU: bytes, kernels, FLOPs.

Bytes are the least that the operator's own kernels move: every tensor it is given read once, every
result written once, nothing found in a cache. So the sum over a step is what its kernels as written
must move, and a GPU moves no less unless an operand is still in its cache (50 MB on an H200) from
the kernel before. Products of large matrices read operands more than once, out of that cache.

Where an operator does otherwise on CUDA, a rule below says so:

- views cost nothing, allocations launch nothing;
- an embedding reads the rows that it looks up;
- LayerNorm's and RMSNorm's backward passes are two kernels, one for the input's gradient and one
  for the gain's, and each reads both tensors;
- attention is FlashAttention 2 (Dao 2023, arXiv 2307.08691): it writes the output and one fp32
  number a row, and its backward pass adds up the queries' gradient in fp32;
- multi-tensor kernels launch once for every 320 chunks of 65,536 elements (``MultiTensorApply.cuh``
  of torch), and the fused AdamW writes the gradients back where it has scaled them.

Of FLOPs only products' and attention's count, an addition and a multiplication being two.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from trainer.accounting.declared import Cost, tensors_in, touched_bytes
from trainer.accounting.work import Shape

ALIGNMENT = 16
"""Bytes: what tensor cores' fast loads want rows to start at multiples of (cuBLAS's documentation,
"Tensor Core Usage")."""

_aten = torch.ops.aten


@dataclass(frozen=True, slots=True)
class Call:
    """An operator, what it was given and what it returned."""

    operator: Any
    """A ``torch._ops.OpOverload``."""
    args: tuple[Any, ...]
    options: Mapping[str, Any]
    """Given by name, ``out`` among them."""
    result: Any

    @property
    def reads(self) -> list[Tensor]:
        """The tensors whose values it looks at."""
        first = 1 if self.name in _OVERWRITES else 0
        named = [value for name, value in self.options.items() if name != "out"]
        return tensors_in((self.args[first:], named))

    @property
    def writes(self) -> list[Tensor]:
        """The tensors whose values it makes."""
        return tensors_in(self.result)

    @property
    def name(self) -> str:
        """Without the namespace and the overload."""
        return str(self.operator.overloadpacket.__name__)


@dataclass(frozen=True, slots=True)
class Multiplication:
    """The matrices of a product."""

    shape: Shape
    flops: int
    matrices: Mapping[str, Tensor]

    @property
    def misaligned(self) -> tuple[str, ...]:
        """Which of them have rows that do not all start at multiples of 16 bytes."""
        rows = {name: _row_bytes(matrix) for name, matrix in self.matrices.items()}
        return tuple(
            f"{name} of rows of {size} bytes" for name, size in rows.items() if size % ALIGNMENT
        )


def is_free(call: Call) -> bool:
    """Whether the call launches nothing: a view, or memory that nobody has written yet."""
    if call.operator.is_view or call.name in _ALLOCATES or call.name in _VIEWS:
        return True
    return not call.writes and call.name not in _IN_PLACE


def cost(call: Call) -> Cost:
    """What the call does."""
    rule = _RULES.get(call.name, _once)
    return rule(call)


def multiplication(call: Call) -> Multiplication | None:
    """The product that the call is; None where it is none."""
    find = _PRODUCTS.get(call.name)
    return find(call) if find else None


# --- bytes and kernels --------------------------------------------------------------------------

_ALLOCATES = {"empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided"}
_VIEWS = {"_unsafe_view", "_reshape_alias", "lift_fresh"}
_OVERWRITES = {"copy_", "fill_", "zero_", "normal_", "uniform_"}
"""Write their first argument without having read it."""
_IN_PLACE = {"_foreach_add_", "_foreach_mul_", "_foreach_copy_", "_fused_adamw_"}
"""That return nothing."""

Rule = Callable[[Call], Cost]


def _once(call: Call) -> Cost:
    """One kernel that reads all it is given, and writes all it returns."""
    return Cost(_bytes(call.reads), _bytes(call.writes))


def _bytes(tensors: Sequence[Tensor]) -> int:
    return sum(map(touched_bytes, tensors))


def _writes(call: Call) -> Cost:
    return Cost(0, _bytes(call.writes))


def _looks_up(call: Call) -> Cost:
    """``(table, indices)`` or ``(table, dimension, indices)``: as much read as is written."""
    rows, (_, indices, *_) = _bytes(call.writes), call.reads
    return Cost(rows + touched_bytes(indices), rows)


def _nll(call: Call) -> Cost:
    """One entry of each row is read."""
    log_p, targets, *_ = call.reads
    entries = targets.numel() * log_p.element_size()
    return Cost(touched_bytes(targets) + entries, _bytes(call.writes))


def _nll_backward(call: Call) -> Cost:
    """All is cleared, then one entry of each row is written."""
    _, log_p, targets, *_ = call.reads
    entries = targets.numel() * log_p.element_size()
    return Cost(touched_bytes(targets), _bytes(call.writes) + entries, 2)


def _embedding_backward(call: Call) -> Cost:
    """The table's gradient is cleared and the rows are added to it, sorted by their index; the
    kernels are those of the sort, which moves next to nothing."""
    gradient, indices, *_ = call.reads
    sorting_kernels = 10
    table = _bytes(call.writes)
    rows = touched_bytes(gradient)
    return Cost(rows + touched_bytes(indices) + rows, table + rows, 2 + sorting_kernels)


def _pads_with_zeros(call: Call) -> Cost:
    once = _once(call)
    return Cost(once.read_bytes, once.written_bytes + once.read_bytes, 2)


def _norm_backward(call: Call) -> Cost:
    gradient, x, *_ = call.reads
    once = _once(call)
    again = touched_bytes(gradient) + touched_bytes(x)
    return Cost(once.read_bytes + again, once.written_bytes, 2)


def _attention_backward(call: Call) -> Cost:
    once = _once(call)
    sums = _attention_sums_bytes(call)
    # Cleared; the rows' sums of output × gradient; the pass itself; the sums rounded to bf16.
    return Cost(once.read_bytes + 2 * sums, once.written_bytes + 2 * sums, 4)


def _multi_tensor(call: Call) -> Cost:
    """Lists of tensors, each element read and written back."""
    return Cost(_bytes(call.reads), _bytes(call.reads), _launches(tensors_in(call.args[0])))


def _fused_adamw(call: Call) -> Cost:
    parameters, gradients, first_moments, second_moments, *_ = call.args
    written = [*parameters, *first_moments, *second_moments]
    if call.options.get("grad_scale") is not None:
        written += gradients
    return Cost(_bytes(call.reads), _bytes(written), _launches(parameters))


def _foreach_norm(call: Call) -> Cost:
    """And a kernel that adds up what those of each launch found."""
    return Cost(_bytes(call.reads), _bytes(call.writes), _launches(call.reads) + 1)


def _launches(tensors: Sequence[Tensor]) -> int:
    chunks = sum(math.ceil(t.numel() / _MULTI_TENSOR_CHUNK) for t in tensors)
    return max(1, math.ceil(chunks / _MULTI_TENSOR_BLOCKS))


_MULTI_TENSOR_CHUNK = 65_536
_MULTI_TENSOR_BLOCKS = 320

_RULES: Mapping[str, Rule] = {
    "zeros": _writes,
    "zeros_like": _writes,
    "ones": _writes,
    "ones_like": _writes,
    "full": _writes,
    "full_like": _writes,
    "new_zeros": _writes,
    "embedding": _looks_up,
    "gather": _looks_up,
    "index_select": _looks_up,
    "nll_loss_forward": _nll,
    "nll_loss_backward": _nll_backward,
    "embedding_dense_backward": _embedding_backward,
    "slice_backward": _pads_with_zeros,
    "select_backward": _pads_with_zeros,
    "native_layer_norm_backward": _norm_backward,
    "_fused_rms_norm_backward": _norm_backward,
    "_scaled_dot_product_flash_attention_backward": _attention_backward,
    "_scaled_dot_product_efficient_attention_backward": _attention_backward,
    "_foreach_norm": _foreach_norm,
    "_foreach_add_": _multi_tensor,
    "_foreach_mul_": _multi_tensor,
    "_fused_adamw_": _fused_adamw,
}


def workspace_bytes(call: Call) -> int:
    """Memory that the call takes and gives back, large enough to matter."""
    if call.name.endswith("attention_backward"):
        return _attention_sums_bytes(call)
    return 0


def _attention_sums_bytes(call: Call) -> int:
    queries = call.reads[1]
    return 4 * queries.numel()


# --- products -----------------------------------------------------------------------------------


def _mm(call: Call, first: int = 0) -> Multiplication:
    """``[m, k] × [k, n]``, or a batch of them."""
    left, right = call.args[first], call.args[first + 1]
    *batch, m, k = left.shape
    n = right.shape[-1]
    shape = Shape(m, k, n, math.prod(batch))
    (result, *_) = call.writes
    matrices = {"left": left, "right": right, "result": result}
    return Multiplication(shape, 2 * shape.batch * m * k * n, matrices)


def _attention(call: Call, products: int) -> Multiplication:
    """Causal attention as the lower half of its squares, in ``products`` products."""
    backward = products > 2
    q, k, v = call.args[1:4] if backward else call.args[:3]
    batch, heads, queries, head_dim = q.shape
    shape = Shape(queries, head_dim, k.shape[2], batch * heads)
    flops = products * shape.batch * queries * shape.n * head_dim
    return Multiplication(shape, flops, {"queries": q, "keys": k, "values": v})


_PRODUCTS: Mapping[str, Callable[[Call], Multiplication]] = {
    "mm": _mm,
    "bmm": _mm,
    "_scaled_mm": _mm,
    "addmm": lambda call: _mm(call, 1),
    "addmm_": lambda call: _mm(call, 1),
    "baddbmm": lambda call: _mm(call, 1),
    "_scaled_dot_product_flash_attention": lambda call: _attention(call, 2),
    "_scaled_dot_product_flash_attention_backward": lambda call: _attention(call, 5),
    "_scaled_dot_product_efficient_attention": lambda call: _attention(call, 2),
    "_scaled_dot_product_efficient_attention_backward": lambda call: _attention(call, 5),
}


def _row_bytes(matrix: Tensor) -> int:
    """The bytes from a row (or column, as it is laid out) to the next, or their largest common
    divisor with the other strides and the offset of the first: what all rows are aligned to."""
    size = matrix.element_size()
    strides = [
        stride * size
        for stride, length in zip(matrix.stride(), matrix.shape, strict=True)
        if stride != 1 and length > 1
    ]
    return math.gcd(*strides, matrix.storage_offset() * size)
