"""A system call filter for what Landlock leaves open: sockets, kernel interfaces, other processes.

Landlock before ABI 10 restricts only TCP of the network, and no version of it protects the mode of
a file or the limits of another process. So a classic BPF program
(:mod:`trainer.isolation.kernel.bpf`), installed with seccomp(2), refuses:

* ``socket()`` with EACCES: every family but AF_UNIX (IPv4, IPv6, packet, vsock, netlink, …), and on
  a CPU that too, since nothing there needs it and the supervisor does not count its buffers;
* ``connect()`` with ECONNREFUSED, as if nothing listened. Otherwise a trial could reach the user's
  session bus or a container daemon through its socket file. (CUDA's multi-process service, which
  needs ``connect()``, is not available to trials.);
* datagrams with an address, and messages, whose address a filter cannot see, with EACCES;
  ``send()`` on a socket pair stays allowed. Abstract names stay allowed on a GPU, because CUDA's
  driver takes one when it starts; Landlock keeps sockets out of files;
* limits, priorities, schedulers and processors of any but the calling thread with EPERM, since the
  kernel grants these by user, not by ancestry. The C library sets another thread's processors by
  that thread's id, so OpenMP cannot bind its threads
  (:mod:`trainer.isolation.kernel.sandbox` does not ask it to);
* new namespaces, which would bring every capability with them, with EPERM; ``clone3``, whose flags
  a filter cannot see, with ENOSYS, after which the C library uses ``clone``;
* space beyond the end of a file, which the limit on a file's size does not count, with EOPNOTSUPP;
* pipes that hold more than the usual 64 KiB, which no process shows as its memory, with EPERM;
* changes of mode, owner and extended attributes with EPERM, since they need no open file;
* memory that is resident in no process, and memory that outlives the process that made it, with
  EPERM: System V objects, message queues, pages lent to a pipe, and on a CPU memfds and shared
  anonymous mappings, which CUDA needs;
* other interfaces to the kernel and to other processes with EPERM.

A command has pairs of sockets on a CPU, too, and a change of mode does nothing and succeeds.

In a world of its own (:mod:`trainer.isolation.kernel.world`) nothing outside can be named, so a
command is refused only what a namespace does not separate: modes that make a program run as its
owner, families of sockets that reach other machines or the host of a virtual one, new namespaces,
mounts, keyrings, and the kernel's other interfaces as above. On a CPU ``memfd_create`` is missing
(ENOSYS) there too: one that is on its way through a socket is open in no process that could be
asked for its size.

Linux checks the filter's constant answers once and caches them in a bitmap, so the allowed calls of
a training run cost nothing measurable.
"""

import ctypes
import errno
import platform
import socket
import struct
import sys
from collections.abc import Iterator
from functools import cache
from typing import Literal, TypeAlias, get_args

from trainer.isolation.kernel.bpf import ARCHITECTURES, ERRNO, Condition, SyscallRule, assemble
from trainer.isolation.kernel.libc import check, libc

Role: TypeAlias = Literal["trainer", "command", "world"]
"""The confined process: the built-in trainer, a command, or one in a world of its own."""

_CLOSED_TO_ALL = (
    # the kernel; io_uring would open sockets behind this filter's back
    "perf_event_open io_uring_setup bpf userfaultfd init_module finit_module kexec_load"
    " kexec_file_load syslog"
    # keys
    " add_key request_key keyctl"
    # namespaces and mounts
    " unshare setns chroot pivot_root mount umount2 fsopen fsconfig fsmount fspick open_tree"
    " open_tree_attr move_mount mount_setattr open_by_handle_at"
    # what goes on on a whole file system
    " fanotify_init fanotify_mark"
    # memory that no process maps, or that outlives the trial
    " shmget shmat shmctl semget semop semtimedop semctl msgget msgsnd msgrcv msgctl mq_open"
    " mq_unlink vmsplice memfd_secret"
).split()
_CLOSED_OUTSIDE_A_WORLD = (
    # other processes
    "ptrace process_vm_readv process_vm_writev pidfd_getfd"
    # what goes on in closed directories
    " inotify_init inotify_init1 inotify_add_watch"
    # metadata of files
    " chown lchown fchown fchownat setxattr lsetxattr fsetxattr setxattrat removexattr"
    " lremovexattr fremovexattr removexattrat file_setattr"
).split()
_MODES = {"chmod": 1, "fchmod": 1, "fchmodat": 2, "fchmodat2": 2}
"""Calls that change the mode of a file, and which argument the mode is."""
_SET_ID = 0o6000
"""Bits of a mode with which a program runs as its owner, whoever starts it."""

_NEW_NAMESPACES = 0x7E020000
"""CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET of <linux/sched.h>; a time
namespace can be asked of clone3 and unshare alone."""
_SHARED_ANONYMOUS = 0x21
"""MAP_SHARED and MAP_ANONYMOUS of <linux/mman.h>."""
_SET_PIPE_SIZE = 1031
"""F_SETPIPE_SZ of <linux/fcntl.h>."""
_PRIO_PROCESS, _IOPRIO_WHO_PROCESS = 0, 1
_OWN_NETWORK = Condition(0, 1, or_one_of=(2, 10, 16))
"""AF_UNIX, AF_INET, AF_INET6 and AF_NETLINK: the families that a network namespace separates."""
_USUAL_PROTOCOL = Condition(2, 0, or_one_of=(6, 17))
"""The default, TCP and UDP; of netlink the list of interfaces, and nothing about devices."""
_NO_DATAGRAMS = Condition(1, int(socket.SOCK_DGRAM), mask=0xF, differs=True)

_SET_MODE_FILTER = 1
_GET_ACTION_AVAIL = 2
_FLAG_SPEC_ALLOW = 4  # keep speculation: the mitigation costs the trial and protects nobody here


def rules(device: str, role: Role = "trainer") -> Iterator[SyscallRule]:
    """Yield what a trial on ``device`` may not do, frequent calls first."""
    if role == "world":
        yield from _in_a_world(on_gpu=device.startswith("cuda"))
    else:
        yield from _outside_a_world(on_gpu=device.startswith("cuda"), is_command=role == "command")
    yield from (SyscallRule(call, errno.EPERM) for call in _CLOSED_TO_ALL)
    yield SyscallRule("clone", errno.EPERM, unless=(Condition(0, 0, mask=_NEW_NAMESPACES),))
    yield SyscallRule("clone3", errno.ENOSYS)
    # pipes and files
    yield SyscallRule("fcntl", errno.EPERM, unless=(Condition(1, _SET_PIPE_SIZE, differs=True),))
    yield SyscallRule("fallocate", errno.EOPNOTSUPP, unless=(Condition(1, 0),))


def _in_a_world(*, on_gpu: bool) -> Iterator[SyscallRule]:
    """Yield what namespaces do not separate: modes that last outside, other networks, memory."""
    if not on_gpu:
        yield SyscallRule("memfd_create", errno.ENOSYS)
    for call, argument in _MODES.items():
        yield SyscallRule(call, errno.EPERM, unless=(Condition(argument, 0, mask=_SET_ID),))
    yield SyscallRule("socket", errno.EACCES, unless=(_OWN_NETWORK, _USUAL_PROTOCOL))


def _outside_a_world(*, on_gpu: bool, is_command: bool) -> Iterator[SyscallRule]:
    if not on_gpu:
        shared = Condition(3, _SHARED_ANONYMOUS, mask=_SHARED_ANONYMOUS, differs=True)
        yield SyscallRule("mmap", errno.EPERM, unless=(shared,))
        yield SyscallRule("memfd_create", errno.EPERM)
    yield from (SyscallRule(call, errno.EPERM) for call in _CLOSED_OUTSIDE_A_WORLD)
    # For a command it seems to work, since a copy of a file sets its mode last.
    yield from (SyscallRule(call, 0 if is_command else errno.EPERM) for call in _MODES)
    # sockets
    yield SyscallRule("connect", errno.ECONNREFUSED)
    named = () if on_gpu else ("bind", "listen", "accept", "accept4")
    yield from (SyscallRule(call, errno.EACCES) for call in named)
    yield from _messages(on_gpu=on_gpu, is_command=is_command)
    # other processes
    oneself = (Condition(0, 0),)
    calls = "prlimit64 sched_setaffinity sched_setattr sched_setparam sched_setscheduler".split()
    yield from (SyscallRule(call, errno.EPERM, unless=oneself) for call in calls)
    for call, kind in (("setpriority", _PRIO_PROCESS), ("ioprio_set", _IOPRIO_WHO_PROCESS)):
        yield SyscallRule(call, errno.EPERM, unless=(Condition(0, kind), Condition(1, 0)))


def _messages(*, on_gpu: bool, is_command: bool) -> Iterator[SyscallRule]:
    """Yield what sockets may not do: lead to another process than one of the trial's own."""
    no_address = Condition(4, 0), Condition(4, 0, high=True)
    yield SyscallRule("sendto", errno.EACCES, unless=no_address)
    local = Condition(0, int(socket.AF_UNIX))
    if not on_gpu and is_command:
        # Pairs are all it has. Those that keep their other end ignore a message's address.
        yield SyscallRule("socket", errno.EACCES)
        yield SyscallRule("socketpair", errno.EACCES, unless=(local, _NO_DATAGRAMS))
        return
    yield from (SyscallRule(call, errno.EACCES) for call in ("sendmsg", "sendmmsg"))
    for call in ("socket", "socketpair"):
        yield SyscallRule(call, errno.EACCES, unless=(local,) if on_gpu else ())


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_uint16), ("filter", ctypes.c_char_p))


def available() -> bool:
    """Whether this kernel and architecture can take the filter."""
    architecture = ARCHITECTURES.get(platform.machine())
    if architecture is None or sys.maxsize < 2**32:
        return False
    action = ctypes.c_uint32(ERRNO)
    seccomp = architecture.number("seccomp")
    return int(libc().syscall(seccomp, _GET_ACTION_AVAIL, 0, ctypes.byref(action))) == 0


def prepare() -> None:
    """Put the programs together, so that no trial's start pays for it."""
    for device in ("cpu", "cuda"):
        for role in get_args(Role):
            _program(device, role)


def install(device: str, role: Role = "trainer") -> None:
    """Filter this thread and all that it starts, permanently. PR_SET_NO_NEW_PRIVS must be set.

    :raises OSError: where the kernel refuses.
    """
    program = _program("cuda" if device.startswith("cuda") else "cpu", role)
    seccomp = ARCHITECTURES[platform.machine()].number("seccomp")
    returned = libc().syscall(seccomp, _SET_MODE_FILTER, _FLAG_SPEC_ALLOW, ctypes.byref(program))
    check(returned, "seccomp")


@cache
def _program(device: str, role: Role) -> _Program:
    instructions = assemble(rules(device, role), ARCHITECTURES[platform.machine()])
    packed = b"".join(struct.pack("HBBI", *each) for each in instructions)
    return _Program(len(instructions), packed)
