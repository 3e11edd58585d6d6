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

from trainer.isolation.kernel.bpf import ARCHITECTURES, ERRNO, Condition, Rule, assemble
from trainer.isolation.kernel.libc import check, libc

_REFUSED = (
    # other processes
    "ptrace process_vm_readv process_vm_writev pidfd_getfd perf_event_open"
    # the kernel; io_uring would open sockets behind this filter's back
    " io_uring_setup bpf userfaultfd init_module finit_module kexec_load kexec_file_load syslog"
    # keys
    " add_key request_key keyctl"
    # namespaces and mounts
    " unshare setns chroot pivot_root mount umount2 fsopen fsconfig fsmount fspick open_tree"
    " open_tree_attr move_mount mount_setattr open_by_handle_at"
    # what goes on in closed directories
    " inotify_init inotify_init1 inotify_add_watch fanotify_init fanotify_mark"
    # memory that no process maps, or that outlives the trial
    " shmget shmat shmctl semget semop semtimedop semctl msgget msgsnd msgrcv msgctl mq_open"
    " mq_unlink vmsplice memfd_secret"
    # metadata of files
    " chmod fchmod fchmodat fchmodat2 chown lchown fchown fchownat setxattr lsetxattr fsetxattr"
    " setxattrat removexattr lremovexattr fremovexattr removexattrat file_setattr"
).split()

_NEW_NAMESPACES = 0x7E020000
"""CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET of <linux/sched.h>; a time
namespace can be asked of clone3 and unshare alone."""
_SHARED_ANONYMOUS = 0x21
"""MAP_SHARED and MAP_ANONYMOUS of <linux/mman.h>."""
_SET_PIPE_SIZE = 1031
"""F_SETPIPE_SZ of <linux/fcntl.h>."""
_PRIO_PROCESS, _IOPRIO_WHO_PROCESS = 0, 1

_SET_MODE_FILTER = 1
_GET_ACTION_AVAIL = 2
_FLAG_SPEC_ALLOW = 4  # keep speculation: the mitigation costs the trial and protects nobody here


def rules(device: str) -> Iterator[Rule]:
    """Yield what a trial on ``device`` may not do, frequent calls first."""
    on_gpu = device.startswith("cuda")
    if not on_gpu:
        shared = Condition(3, _SHARED_ANONYMOUS, mask=_SHARED_ANONYMOUS, differs=True)
        yield Rule("mmap", errno.EPERM, unless=(shared,))
        yield Rule("memfd_create", errno.EPERM)
    yield from (Rule(call, errno.EPERM) for call in _REFUSED)
    # sockets
    yield Rule("connect", errno.ECONNREFUSED)
    named = () if on_gpu else ("bind", "listen", "accept", "accept4")
    yield from (Rule(call, errno.EACCES) for call in (*named, "sendmsg", "sendmmsg"))
    no_address = Condition(4, 0), Condition(4, 0, high=True)
    yield Rule("sendto", errno.EACCES, unless=no_address)
    local = (Condition(0, int(socket.AF_UNIX)),) if on_gpu else ()
    yield Rule("socket", errno.EACCES, unless=local)
    yield Rule("socketpair", errno.EACCES, unless=local)
    # other processes
    oneself = (Condition(0, 0),)
    calls = "prlimit64 sched_setaffinity sched_setattr sched_setparam sched_setscheduler".split()
    yield from (Rule(call, errno.EPERM, unless=oneself) for call in calls)
    for call, kind in (("setpriority", _PRIO_PROCESS), ("ioprio_set", _IOPRIO_WHO_PROCESS)):
        yield Rule(call, errno.EPERM, unless=(Condition(0, kind), Condition(1, 0)))
    yield Rule("clone", errno.EPERM, unless=(Condition(0, 0, mask=_NEW_NAMESPACES),))
    yield Rule("clone3", errno.ENOSYS)
    # pipes and files
    yield Rule("fcntl", errno.EPERM, unless=(Condition(1, _SET_PIPE_SIZE, differs=True),))
    yield Rule("fallocate", errno.EOPNOTSUPP, unless=(Condition(1, 0),))


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
        _program(device)


def install(device: str) -> None:
    """Filter this thread and all that it starts, permanently. PR_SET_NO_NEW_PRIVS must be set.

    :raises OSError: where the kernel refuses.
    """
    program = _program("cuda" if device.startswith("cuda") else "cpu")
    seccomp = ARCHITECTURES[platform.machine()].number("seccomp")
    returned = libc().syscall(seccomp, _SET_MODE_FILTER, _FLAG_SPEC_ALLOW, ctypes.byref(program))
    check(returned, "seccomp")


@cache
def _program(device: str) -> _Program:
    instructions = assemble(rules(device), ARCHITECTURES[platform.machine()])
    packed = b"".join(struct.pack("HBBI", *each) for each in instructions)
    return _Program(len(instructions), packed)
