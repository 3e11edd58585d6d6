"""Assemble classic BPF programs for seccomp(2) from rules about system calls and arguments.

A program sees the call's number and its six arguments as 64-bit register values, not what pointers
among them point to. It reads 32 bits at a time, so a condition is about one half of an argument.

libseccomp is not used because its Python bindings need an installed shared library, and an old one
knows only the system calls of its time. Tests run the programs of both processors in an
interpreter, and compare the calls' numbers with the headers of the machine.

Sources: <linux/bpf_common.h>, <linux/seccomp.h>, Documentation/userspace-api/seccomp_filter.rst,
and for the numbers arch/x86/entry/syscalls/syscall_64.tbl and include/uapi/asm-generic/unistd.h.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias

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
    """Condition that one half of an argument, masked, equals a value, or differs from it."""

    argument: int
    value: int
    or_one_of: tuple[int, ...] = ()
    """Further values that it may equal."""
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
        to_end = range(len(self.or_one_of), 0, -1)
        others = [(IF_EQUAL, n, 0, one) for n, one in zip(to_end, self.or_one_of, strict=True)]
        return [load, *masked, *others, (IF_EQUAL, *jumps, self.value)]


@dataclass(frozen=True, slots=True)
class SyscallRule:
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


def assemble(rules: Iterable[SyscallRule], architecture: CpuArchitecture) -> list[Instruction]:
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


NUMBERS: dict[str, tuple[int | None, int | None]] = {
    # name: on x86_64, on AArch64; None if the processor lacks the older form
    "accept": (43, 202),
    "accept4": (288, 242),
    "add_key": (248, 217),
    "bind": (49, 200),
    "bpf": (321, 280),
    "chmod": (90, None),
    "chown": (92, None),
    "chroot": (161, 51),
    "clone": (56, 220),
    "clone3": (435, 435),
    "connect": (42, 203),
    "fallocate": (285, 47),
    "fanotify_init": (300, 262),
    "fanotify_mark": (301, 263),
    "fchmod": (91, 52),
    "fchmodat": (268, 53),
    "fchmodat2": (452, 452),
    "fchown": (93, 55),
    "fchownat": (260, 54),
    "file_setattr": (469, 469),
    "finit_module": (313, 273),
    "fremovexattr": (199, 16),
    "fsconfig": (431, 431),
    "fsetxattr": (190, 7),
    "fsmount": (432, 432),
    "fsopen": (430, 430),
    "fspick": (433, 433),
    "init_module": (175, 105),
    "inotify_add_watch": (254, 27),
    "inotify_init": (253, None),
    "inotify_init1": (294, 26),
    "io_uring_setup": (425, 425),
    "ioprio_set": (251, 30),
    "kexec_file_load": (320, 294),
    "kexec_load": (246, 104),
    "keyctl": (250, 219),
    "lchown": (94, None),
    "listen": (50, 201),
    "lremovexattr": (198, 15),
    "lsetxattr": (189, 6),
    "memfd_create": (319, 279),
    "memfd_secret": (447, 447),
    "mmap": (9, 222),
    "mount": (165, 40),
    "mount_setattr": (442, 442),
    "move_mount": (429, 429),
    "mq_open": (240, 180),
    "mq_unlink": (241, 181),
    "msgctl": (71, 187),
    "msgget": (68, 186),
    "msgrcv": (70, 188),
    "msgsnd": (69, 189),
    "open_by_handle_at": (304, 265),
    "open_tree": (428, 428),
    "open_tree_attr": (467, 467),
    "perf_event_open": (298, 241),
    "pidfd_getfd": (438, 438),
    "pivot_root": (155, 41),
    "prlimit64": (302, 261),
    "fcntl": (72, 25),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "ptrace": (101, 117),
    "removexattr": (197, 14),
    "removexattrat": (466, 466),
    "request_key": (249, 218),
    "sched_setaffinity": (203, 122),
    "sched_setattr": (314, 274),
    "sched_setparam": (142, 118),
    "sched_setscheduler": (144, 119),
    "seccomp": (317, 277),
    "semctl": (66, 191),
    "semget": (64, 190),
    "semop": (65, 193),
    "semtimedop": (220, 192),
    "sendmmsg": (307, 269),
    "sendmsg": (46, 211),
    "sendto": (44, 206),
    "setns": (308, 268),
    "setpriority": (141, 140),
    "setxattr": (188, 5),
    "setxattrat": (463, 463),
    "shmat": (30, 196),
    "shmctl": (31, 195),
    "shmget": (29, 194),
    "socket": (41, 198),
    "socketpair": (53, 199),
    "syslog": (103, 116),
    "umount2": (166, 39),
    "unshare": (272, 97),
    "userfaultfd": (323, 282),
    "vmsplice": (278, 75),
}


@dataclass(frozen=True, slots=True)
class CpuArchitecture:
    """Facts about a processor that a system call filter needs."""

    name: str
    """Name from :func:`platform.machine`."""
    audit: int
    """AUDIT_ARCH_* of <linux/audit.h>."""
    column: int
    x32_bit: int | None = None
    """Set in the numbers of a second table that the same processor serves."""

    def number(self, call: str) -> int | None:
        """Return the number of a system call in this table; None if the processor lacks it."""
        return NUMBERS[call][self.column]


ARCHITECTURES = {
    "x86_64": CpuArchitecture("x86_64", 0xC000003E, 0, x32_bit=0x40000000),
    "aarch64": CpuArchitecture("aarch64", 0xC00000B7, 1),
}
"""Supported processors by name."""
