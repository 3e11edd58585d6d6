"""Find a matrix's largest magnitude in one pass; write its fp8 form in another.

A pass writes the form by rows or the one by columns, and a matrix that products need in both takes
two. A kernel that stored both would read the matrix once less. But NVIDIA's assembler 12.9, which
Triton 3.6 to 3.8 use for Hopper, gets the second store wrong (Triton issue 11111): on an H100, one
number in eight was another.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from trainer.backends.kernels import FLOAT8_SMALLEST

_PROGRAMS = 1024
"""Programs of the first pass, at most; each of the second reads all of their results (4 kB)."""
_BLOCK = 4096
_TILE = 64


@triton.jit
def _largest(x_ptr, largest_ptr, size, BLOCK: tl.constexpr):
    largest = tl.zeros([BLOCK], tl.float32)
    nothing = tl.zeros([BLOCK], tl.float32)
    program, programs = tl.program_id(0).to(tl.int64), tl.num_programs(0)
    for chunk in range(tl.cdiv(size, programs * BLOCK)):
        place = (program + chunk * programs) * BLOCK + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + place, mask=place < size, other=0.0).to(tl.float32)
        largest = tl.maximum(largest, tl.abs(x))
        nothing += x - x
    # A maximum ignores NaN; adding x - x keeps it, so that a run that diverged is noticed.
    tl.store(largest_ptr + tl.program_id(0), tl.max(largest, 0) + tl.sum(nothing, 0))


@triton.jit(do_not_specialize=["programs"])  # else each small tensor size would compile it again
def _cast(
    x_ptr, largest_ptr, out_ptr, scale_ptr, rows, columns, programs, greatest, smallest,
    BY_COLUMNS: tl.constexpr, PROGRAMS: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    each = tl.arange(0, PROGRAMS)
    found = tl.load(largest_ptr + each, mask=each < programs, other=0.0)
    largest = tl.max(found, 0) + tl.sum(found - found, 0)
    scale = tl.where(largest < smallest, smallest, largest) / greatest
    row = tl.program_id(0).to(tl.int64) * TILE + tl.arange(0, TILE)
    column = tl.program_id(1).to(tl.int64) * TILE + tl.arange(0, TILE)
    inside = (row < rows)[:, None] & (column < columns)[None, :]
    x = tl.load(x_ptr + row[:, None] * columns + column[None, :], mask=inside, other=0.0).to(
        tl.float32
    )
    scaled = x / scale
    bounded = tl.minimum(tl.maximum(scaled, -greatest), greatest)
    if BY_COLUMNS:
        turned = tl.trans(bounded).to(out_ptr.dtype.element_ty)
        place = column[:, None] * rows + row[None, :]
        tl.store(out_ptr + place, turned, mask=tl.trans(inside))
    else:
        x8 = bounded.to(out_ptr.dtype.element_ty)
        tl.store(out_ptr + row[:, None] * columns + column[None, :], x8, mask=inside)
    if (tl.program_id(0) == 0) & (tl.program_id(1) == 0):
        tl.store(scale_ptr, scale)


def quantise(
    x: Tensor, dtype: torch.dtype, rows: bool, columns: bool
) -> tuple[Tensor | None, Tensor | None, Tensor]:
    height, width = x.shape
    programs = min(_PROGRAMS, triton.cdiv(x.numel(), _BLOCK))
    largest_P = torch.empty(programs, dtype=torch.float32, device=x.device)
    _largest[(programs,)](x, largest_P, x.numel(), BLOCK=_BLOCK, num_warps=8)
    scale = torch.empty((), dtype=torch.float32, device=x.device)
    by_rows = torch.empty_like(x, dtype=dtype) if rows else None
    by_columns = x.new_empty((width, height), dtype=dtype) if columns else None
    grid = triton.cdiv(height, _TILE), triton.cdiv(width, _TILE)
    for out, is_by_columns in ((by_rows, False), (by_columns, True)):
        if out is not None:
            _cast[grid](
                x, largest_P, out, scale, height, width, programs,
                torch.finfo(dtype).max, FLOAT8_SMALLEST,
                BY_COLUMNS=is_by_columns, PROGRAMS=_PROGRAMS, TILE=_TILE,
            )  # fmt: skip
    return by_rows, by_columns, scale
