"""Assemble classic BPF programs for seccomp(2) from rules about system calls and arguments.

A program sees the call's number and its six arguments as 64-bit register values, not what pointers
among them point to. It reads 32 bits at a time, so a condition is about one half of an argument.

libseccomp is not used because its Python bindings need an installed shared library, and an old one
knows only the system calls of its time. Tests run the programs of both processors in an
interpreter.

Sources: <linux/bpf_common.h>, <linux/seccomp.h>, Documentation/userspace-api/seccomp_filter.rst.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias

from trainer.isolation.kernel.syscalls import Architecture

LOAD = 0x20  # BPF_LD | BPF_W | BPF_ABS
AND = 0x54  # BPF_ALU | BPF_AND | BPF_K
IF_EQUAL = 0x15  # BPF_JMP | BPF_JEQ | BPF_K
IF_AT_LEAST = 0x35  # BPF_JMP | BPF_JGE | BPF_K
RETURN = 0x06  # BPF_RET | BPF_K

KILL = 0x80000000
ERRNO = 0x00050000
ALLOW = 0x7FFF0000

# struct seccomp_data: nr, arch, instruction pointer, six 64-bit arguments (both little-endian).
NR, ARCH, ARGUMENTS = 0, 4, 16

Instruction: TypeAlias = tuple[int, int, int, int]
"""Code, jump if true, jump if false, operand; a jump skips that many instructions."""
_ALL_BITS = 0xFFFFFFFF


@dataclass(frozen=True, slots=True)
class Condition:
    """Condition that one half of an argument, masked, equals ``value``, or differs from it."""

    argument: int
    value: int
    mask: int = _ALL_BITS
    high: bool = False
    """Upper half of the 64 bits. The kernel reads only the lower half of an int."""
    differs: bool = False

    def instructions(self, to_refusal: int) -> list[Instruction]:
        """Return instructions that fall through if the condition holds, and else jump
        ``to_refusal`` further."""
        load = (LOAD, 0, 0, ARGUMENTS + 8 * self.argument + 4 * self.high)
        masked = [] if self.mask == _ALL_BITS else [(AND, 0, 0, self.mask)]
        jumps = (to_refusal, 0) if self.differs else (0, to_refusal)
        return [load, *masked, (IF_EQUAL, *jumps, self.value)]


@dataclass(frozen=True, slots=True)
class Rule:
    """One system call, refused unless all conditions hold."""

    call: str
    error: int
    """The errno of the refusal."""
    unless: tuple[Condition, ...] = ()
    """Empty: always refused."""

    def instructions(self, number: int) -> list[Instruction]:
        """Return instructions for the number in the accumulator; they fall through for other
        numbers."""
        refuse: Instruction = (RETURN, 0, 0, ERRNO | self.error)
        body = [refuse]
        if self.unless:
            body = [(RETURN, 0, 0, ALLOW), refuse]
        for condition in reversed(self.unless):
            body = [*condition.instructions(len(body) - 1), *body]
        return [(IF_EQUAL, 0, len(body), number), *body]


def assemble(rules: Iterable[Rule], architecture: Architecture) -> list[Instruction]:
    """Return the program that enforces ``rules`` and allows everything else.

    System calls by another processor's table, x32's included, kill the process.
    """
    program: list[Instruction] = [
        (LOAD, 0, 0, ARCH),
        (IF_EQUAL, 1, 0, architecture.audit),
        (RETURN, 0, 0, KILL),
        (LOAD, 0, 0, NR),
    ]
    if architecture.x32_bit is not None:
        program += [(IF_AT_LEAST, 0, 1, architecture.x32_bit), (RETURN, 0, 0, KILL)]
    for rule in rules:
        number = architecture.number(rule.call)
        if number is not None:
            program += rule.instructions(number)
    return [*program, (RETURN, 0, 0, ALLOW)]
