"""Interpret the seccomp programs of :mod:`trainer.isolation.kernel.bpf` as the kernel does."""

import struct
from collections.abc import Sequence

from trainer.isolation.kernel import bpf


def run(
    program: Sequence[bpf.Instruction], *, audit: int, number: int, arguments: Sequence[int]
) -> int:
    """Return the program's result for a system call; arguments are 64-bit, 0 if omitted."""
    padded = [*arguments, *[0] * (6 - len(arguments))]
    data = struct.pack("<IIQ6Q", number, audit, 0, *(value % 2**64 for value in padded))
    accumulator = at = 0
    while True:
        code, if_true, if_false, operand = program[at]
        at += 1
        if code == bpf.LOAD:
            (accumulator,) = struct.unpack_from("<I", data, operand)
        elif code == bpf.AND:
            accumulator &= operand
        elif code == bpf.IF_EQUAL:
            at += if_true if accumulator == operand else if_false
        elif code == bpf.IF_AT_LEAST:
            at += if_true if accumulator >= operand else if_false
        else:
            assert code == bpf.RETURN, f"instruction {code:#x}"
            return operand
