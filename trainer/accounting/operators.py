"""Define the work of each of torch's operators on a GPU: bytes, kernels, FLOPs.

Bytes are the least that the operator's own kernels move: every input tensor read once, every result
written once, nothing cached. So the sum over a step is what its kernels as written must move. A GPU
moves no less unless an operand is still in its cache (50 MB on an H200) from the previous kernel.
Products of large matrices read operands more than once, from that cache.

Rules below describe operators that differ on CUDA:

- views cost nothing, allocations launch nothing;

- an embedding reads the selected rows;

- LayerNorm's and RMSNorm's backward passes are two kernels, one for the input's gradient and one
for the gain's, and each reads both tensors;

- attention is FlashAttention 2 (Dao 2023, arXiv 2307.08691): it writes the output and one fp32
number per row, and its backward pass sums the queries' gradient in fp32;

- multi-tensor kernels launch once for every 320 chunks of 65,536 elements (``MultiTensorApply.cuh``
of torch), and the fused AdamW writes the gradients back after scaling them.

Only products' and attention's FLOPs count, with an addition and a multiplication as two.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from trainer.accounting.declared import Cost, tensors_in, touched_bytes
from trainer.accounting.work import Shape

ALIGNMENT = 16
"""Bytes: tensor cores' fast loads need rows that start at multiples of this (cuBLAS's
documentation, "Tensor Core Usage")."""


@dataclass(frozen=True, slots=True)
class Call:
    """An operator, its inputs and its result."""

    operator: Any
    """A ``torch._ops.OpOverload``."""
    args: tuple[Any, ...]
    options: Mapping[str, Any]
    """Options by name, ``out`` included."""
    result: Any

    @property
    def reads(self) -> list[Tensor]:
        """Tensors whose values it reads."""
        first = 1 if self.name in _OVERWRITES else 0
        named = [value for name, value in self.options.items() if name != "out"]
        return tensors_in((self.args[first:], named))

    @property
    def writes(self) -> list[Tensor]:
        """Tensors whose values it writes."""
        return tensors_in(self.result)

    @property
    def name(self) -> str:
        """Name without the namespace and the overload."""
        return str(self.operator.overloadpacket.__name__)


@dataclass(frozen=True, slots=True)
class Multiplication:
    """The matrices of a product."""

    shape: Shape
    flops: int
    matrices: Mapping[str, Tensor]

    @property
    def misaligned(self) -> tuple[str, ...]:
        """Matrices whose rows do not all start at multiples of 16 bytes."""
        rows = {name: _row_bytes(matrix) for name, matrix in self.matrices.items()}
        return tuple(
            f"{name} of rows of {size} bytes" for name, size in rows.items() if size % ALIGNMENT
        )


def is_free(call: Call) -> bool:
    """Return whether the call launches nothing: a view, or uninitialized memory."""
    if call.operator.is_view or call.name in _ALLOCATES or call.name in _VIEWS:
        return True
    return not call.writes and call.name not in _IN_PLACE


def cost(call: Call) -> Cost:
    """Return the work of the call."""
    return _RULES.get(call.name, _once)(call)


def multiplication(call: Call) -> Multiplication | None:
    """Return the call's product; None if it is none."""
    find = _PRODUCTS.get(call.name)
    return find(call) if find else None


# --- bytes and kernels --------------------------------------------------------------------------

_ALLOCATES = {"empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided"}
_VIEWS = {"_unsafe_view", "_reshape_alias", "lift_fresh"}
_OVERWRITES = {"copy_", "fill_", "zero_", "normal_", "uniform_"}
"""Operators that write their first argument without reading it."""
_IN_PLACE = {"_foreach_add_", "_foreach_mul_", "_foreach_copy_", "_fused_adamw_"}
"""Operators that return nothing."""

Rule = Callable[[Call], Cost]


def _once(call: Call) -> Cost:
    """Return the work of one kernel that reads all inputs and writes all results."""
    return Cost(_bytes(call.reads), _bytes(call.writes))


def _bytes(tensors: Sequence[Tensor]) -> int:
    return sum(map(touched_bytes, tensors))


def _writes(call: Call) -> Cost:
    return Cost(0, _bytes(call.writes))


def _selects_rows(call: Call) -> Cost:
    """Return the work of ``(table, indices)`` or ``(table, dimension, indices)``: as much is read
    as written."""
    rows, (_, indices, *_) = _bytes(call.writes), call.reads
    return Cost(rows + touched_bytes(indices), rows)


def _nll(call: Call) -> Cost:
    """Return the work of reading one entry of each row."""
    log_p, targets, *_ = call.reads
    entries = targets.numel() * log_p.element_size()
    return Cost(touched_bytes(targets) + entries, _bytes(call.writes))


def _nll_backward(call: Call) -> Cost:
    """Return the work of clearing everything, then writing one entry of each row."""
    _, log_p, targets, *_ = call.reads
    entries = targets.numel() * log_p.element_size()
    return Cost(touched_bytes(targets), _bytes(call.writes) + entries, 2)


def _embedding_backward(call: Call) -> Cost:
    """Return the work of clearing the table's gradient and adding the rows, sorted by index; the
    sort's kernels move almost nothing."""
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
    # Clear; row sums of output × gradient; the pass itself; rounding the sums to bf16.
    return Cost(once.read_bytes + 2 * sums, once.written_bytes + 2 * sums, 4)


def _multi_tensor(call: Call) -> Cost:
    """Return the work on lists of tensors, each element read and written back."""
    return Cost(_bytes(call.reads), _bytes(call.reads), _launches(tensors_in(call.args[0])))


def _fused_adamw(call: Call) -> Cost:
    parameters, gradients, first_moments, second_moments, *_ = call.args
    written = [*parameters, *first_moments, *second_moments]
    if call.options.get("grad_scale") is not None:
        written += gradients
    return Cost(_bytes(call.reads), _bytes(written), _launches(parameters))


def _foreach_norm(call: Call) -> Cost:
    """Return the work of the norms, with a kernel that sums the partial results of each launch."""
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
    "embedding": _selects_rows,
    "gather": _selects_rows,
    "index_select": _selects_rows,
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
    """Return memory that the call allocates temporarily, if large enough to matter."""
    if call.name.endswith("attention_backward"):
        return _attention_sums_bytes(call)
    return 0


def _attention_sums_bytes(call: Call) -> int:
    queries = call.reads[1]
    return 4 * queries.numel()


# --- products -----------------------------------------------------------------------------------


def _mm(call: Call, first: int = 0) -> Multiplication:
    """Return the product ``[m, k] × [k, n]``, or a batch of them."""
    left, right = call.args[first], call.args[first + 1]
    *batch, m, k = left.shape
    n = right.shape[-1]
    shape = Shape(m, k, n, math.prod(batch))
    (result, *_) = call.writes
    matrices = {"left": left, "right": right, "result": result}
    return Multiplication(shape, 2 * shape.batch * m * k * n, matrices)


def _attention(call: Call, products: int) -> Multiplication:
    """Return causal attention as the lower half of its squares, in ``products`` products."""
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
    """Return the alignment of all rows: the greatest common divisor, in bytes, of the row (or
    column) stride, the other strides and the offset."""
    size = matrix.element_size()
    strides = [
        stride * size
        for stride, length in zip(matrix.stride(), matrix.shape, strict=True)
        if stride != 1 and length > 1
    ]
    return math.gcd(*strides, matrix.storage_offset() * size)
