"""A small system call filter for what Landlock leaves open: sockets, kernel interfaces, metadata.

Landlock before ABI 10 knows TCP and nothing else of the network, and no version of it guards the
mode, owner or extended attributes of a file. So a classic BPF program over the system call number,
installed with seccomp(2), answers

* ``socket()`` of any family but AF_UNIX (IPv4, IPv6, packet, vsock, netlink, …) with EACCES, and
  ``connect()`` with ECONNREFUSED, as if nobody listened: without the second a trial could talk to
  the user's session bus or to a container daemon through its socket file (CUDA's multi-process
  service, which needs it, is not available to trials);
* changes of mode, owner and extended attributes with EPERM, since they need no open file;
* the doors into the kernel and into other processes (:data:`_REFUSED`) with EPERM.

A filter sees register values, not what pointers point to, so a datagram sent through ``sendmsg``
to a Unix socket's path is not seen here. System calls of another architecture, x32's included,
kill the process. Linux checks the filter's constant answers once and caches them in a bitmap, so
the allowed calls of a training run pay nothing measurable.

Sources: Documentation/userspace-api/seccomp_filter.rst; the numbers are those of
arch/x86/entry/syscalls/syscall_64.tbl and include/uapi/asm-generic/unistd.h.
"""

from __future__ import annotations

import ctypes
import errno
import platform
import socket
import sys
from dataclasses import dataclass

from trainer.libc import check, libc


@dataclass(frozen=True, slots=True)
class _Architecture:
    audit: int
    """AUDIT_ARCH_* of <linux/audit.h>."""
    column: int
    """Of the numbers in the tables below."""
    seccomp: int
    socket: int
    connect: int


_ARCHITECTURES = {
    "x86_64": _Architecture(0xC000003E, 0, seccomp=317, socket=41, connect=42),
    "aarch64": _Architecture(0xC00000B7, 1, seccomp=277, socket=198, connect=203),
}

_X32_BIT = 0x40000000

_REFUSED: dict[str, tuple[int | None, int | None]] = {
    # other processes
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "pidfd_getfd": (438, 438),
    "perf_event_open": (298, 241),
    # the kernel; io_uring would open sockets behind this filter's back
    "io_uring_setup": (425, 425),
    "bpf": (321, 280),
    "userfaultfd": (323, 282),
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "kexec_load": (246, 104),
    "kexec_file_load": (320, 294),
    # keys
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    # namespaces and mounts
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "unshare": (272, 97),
    "setns": (308, 268),
    "open_by_handle_at": (304, 265),
    # metadata of files; AArch64 has only the fd-relative forms
    "chmod": (90, None),
    "fchmod": (91, 52),
    "fchmodat": (268, 53),
    "fchmodat2": (452, 452),
    "chown": (92, None),
    "lchown": (94, None),
    "fchown": (93, 55),
    "fchownat": (260, 54),
    "setxattr": (188, 5),
    "lsetxattr": (189, 6),
    "fsetxattr": (190, 7),
    "setxattrat": (463, 463),
    "removexattr": (197, 14),
    "lremovexattr": (198, 15),
    "fremovexattr": (199, 16),
    "removexattrat": (466, 466),
    "file_setattr": (469, 469),
}

# Classic BPF, <linux/bpf_common.h>, and what it returns, <linux/seccomp.h>.
_LOAD = 0x20  # BPF_LD | BPF_W | BPF_ABS
_IF_EQUAL = 0x15  # BPF_JMP | BPF_JEQ | BPF_K
_IF_AT_LEAST = 0x35  # BPF_JMP | BPF_JGE | BPF_K
_RETURN = 0x06  # BPF_RET | BPF_K
_KILL = 0x80000000
_ERRNO = 0x00050000
_ALLOW = 0x7FFF0000
# struct seccomp_data: nr, arch, instruction pointer, six 64-bit arguments (both little-endian).
_NR, _ARCH, _FIRST_ARGUMENT = 0, 4, 16

_SET_MODE_FILTER = 1
_GET_ACTION_AVAIL = 2
_FLAG_SPEC_ALLOW = 4  # keep speculation: the mitigation costs the trial and protects nobody here


class _Instruction(ctypes.Structure):
    _fields_ = (
        ("code", ctypes.c_uint16),
        ("if_true", ctypes.c_uint8),
        ("if_false", ctypes.c_uint8),
        ("k", ctypes.c_uint32),
    )


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_uint16), ("filter", ctypes.POINTER(_Instruction)))


def available() -> bool:
    """Whether this kernel and architecture can take the filter."""
    architecture = _ARCHITECTURES.get(platform.machine())
    if sys.platform != "linux" or architecture is None or sys.maxsize < 2**32:
        return False
    action = ctypes.c_uint32(_ERRNO)
    returned = libc().syscall(architecture.seccomp, _GET_ACTION_AVAIL, 0, ctypes.byref(action))
    return int(returned) == 0


def install() -> None:
    """Filter this thread and all it will start, for good. PR_SET_NO_NEW_PRIVS must be set.

    :raises OSError: where the kernel refuses.
    """
    architecture = _ARCHITECTURES[platform.machine()]
    instructions = [_Instruction(*fields) for fields in _instructions(architecture)]
    array = (_Instruction * len(instructions))(*instructions)
    program = _Program(len(instructions), array)
    returned = libc().syscall(
        architecture.seccomp, _SET_MODE_FILTER, _FLAG_SPEC_ALLOW, ctypes.byref(program)
    )
    check(returned, "seccomp")


def _instructions(architecture: _Architecture) -> list[tuple[int, int, int, int]]:
    """Each as (code, jump if true, jump if false, operand); jumps skip that many instructions."""
    program = [
        (_LOAD, 0, 0, _ARCH),
        (_IF_EQUAL, 1, 0, architecture.audit),
        (_RETURN, 0, 0, _KILL),
        (_LOAD, 0, 0, _NR),
    ]
    if architecture.column == 0:
        program += [(_IF_AT_LEAST, 0, 1, _X32_BIT), (_RETURN, 0, 0, _KILL)]
    answers = [(architecture.connect, errno.ECONNREFUSED)]
    for numbers in _REFUSED.values():
        number = numbers[architecture.column]
        if number is not None:
            answers.append((number, errno.EPERM))
    for number, answer in answers:
        program += [(_IF_EQUAL, 0, 1, number), (_RETURN, 0, 0, _ERRNO | answer)]
    program += [
        (_IF_EQUAL, 1, 0, architecture.socket),
        (_RETURN, 0, 0, _ALLOW),
        (_LOAD, 0, 0, _FIRST_ARGUMENT),
        (_IF_EQUAL, 0, 1, int(socket.AF_UNIX)),
        (_RETURN, 0, 0, _ALLOW),
        (_RETURN, 0, 0, _ERRNO | errno.EACCES),
    ]
    return program
