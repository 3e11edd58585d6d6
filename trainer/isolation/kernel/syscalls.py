"""List the numbers of Linux's system calls on the supported processors.

Sources: arch/x86/entry/syscalls/syscall_64.tbl and include/uapi/asm-generic/unistd.h of Linux; a
test compares them with the headers of the machine it runs on.
"""

from __future__ import annotations

from dataclasses import dataclass

_NUMBERS: dict[str, tuple[int | None, int | None]] = {
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
class Architecture:
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
        return _NUMBERS[call][self.column]


ARCHITECTURES = {
    "x86_64": Architecture("x86_64", 0xC000003E, 0, x32_bit=0x40000000),
    "aarch64": Architecture("aarch64", 0xC00000B7, 1),
}
"""Supported processors by name."""

NAMES = frozenset(_NUMBERS)
