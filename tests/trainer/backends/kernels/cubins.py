"""Compile every kernel, as it is called, for a GPU that is not present:

    python -m tests.trainer.backends.kernels.cubins 90 121

It prints a line per kernel and compute capability. Triton's wheel includes LLVM and ptxas.
"""

import importlib
import sys
from collections.abc import Sequence
from typing import Any

import torch
import triton
from torch import Tensor
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.runtime.jit import JITFunction

from tests.support.kernels import calls

TYPES = {
    torch.bfloat16: "bf16",
    torch.float32: "fp32",
    torch.float64: "fp64",
    torch.int64: "i64",
}
KERNELS = ("norm", "heads", "activation", "cross_entropy")
OPTIONS = ("num_warps", "num_stages")


class Recorder:
    """Stand-in for a kernel launch that records its arguments."""

    def __init__(self) -> None:
        self.launched: dict[str, tuple[Any, ASTSource, dict[str, int]]] = {}

    def run(self, kernel: Any, *arguments: Any, **options: Any) -> None:
        chosen = {name: options.pop(name) for name in OPTIONS if name in options}
        named = dict(zip(kernel.arg_names, arguments, strict=False)) | {
            name: value for name, value in options.items() if name in kernel.arg_names
        }
        constant = {p.name for p in kernel.params if p.is_constexpr}
        signature, aligned = {}, {}
        for place, name in enumerate(kernel.arg_names):
            value = named[name]
            signature[name] = "constexpr" if name in constant else type_of(value)
            if isinstance(value, Tensor):
                aligned[(place,)] = [["tt.divisibility", 16]]
        constexprs = {(kernel.arg_names.index(name),): named[name] for name in constant}
        source = ASTSource(kernel, signature, constexprs, aligned)
        what = [f"{name}={named[name]}" for name in sorted(constant)]
        key = " ".join((kernel.__name__, *signature.values(), *what))
        self.launched[key] = kernel, source, chosen


def type_of(value: object) -> str:
    """Return a value's type as Triton's signatures write it."""
    if isinstance(value, Tensor):
        return "*" + TYPES[value.dtype]
    return "fp32" if isinstance(value, float) else "i32"


def main(*capabilities: str, kernels: Sequence[str] = KERNELS) -> None:
    """Compile the kernels for these capabilities, and print a line for each."""
    recorder = Recorder()

    def run(kernel: Any, *arguments: Any, grid: Any, warmup: bool, **options: Any) -> None:
        recorder.run(kernel, *arguments, **options)

    JITFunction.run = run
    for call in calls():
        if call.kernels in kernels:
            call.of(importlib.import_module(f"trainer.backends.kernels.triton_{call.kernels}"))
    for key, (_, source, options) in recorder.launched.items():
        for capability in capabilities:
            target = GPUTarget("cuda", int(capability), 32)
            compiled = triton.compile(source, target=target, options=options)
            print(f"sm_{capability} {len(compiled.asm['cubin'])} {key}")


if __name__ == "__main__":
    main(*sys.argv[1:])
