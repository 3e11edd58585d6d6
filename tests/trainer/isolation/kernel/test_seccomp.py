"""The filter's programs run for both processors, and its system call numbers match the headers."""

import errno
import re
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support import bpf_machine
from trainer.isolation.kernel.bpf import (
    ALLOW,
    ARCHITECTURES,
    ERRNO,
    KILL,
    NUMBERS,
    Condition,
    CpuArchitecture,
    SyscallRule,
    assemble,
)
from trainer.isolation.kernel.seccomp import Role, rules

MACHINES = [pytest.param(machine, id=machine.name) for machine in ARCHITECTURES.values()]
DEVICES = ("cpu", "cuda:1")
ROLES: tuple[Role, ...] = get_args(Role)


def answer(
    machine: CpuArchitecture, device: str, call: str, *arguments: int, role: Role = "trainer"
) -> int | None:
    """Return a call's errno, ``NOTHING`` if it is skipped and succeeds, or 0 if it is allowed; None
    if the machine has no such call."""
    number = machine.number(call)
    if number is None:
        return None
    program = assemble(rules(device, role), machine)
    returned = bpf_machine.run(program, audit=machine.audit, number=number, arguments=arguments)
    return 0 if returned == ALLOW else (returned & ~ERRNO or NOTHING)


NOTHING = -1
CASES: list[tuple[str, tuple[int, ...], int, int]] = [
    # call, arguments, errno on a CPU, errno on a GPU: of the built-in trainer
    ("prlimit64", (0, 7), 0, 0),
    ("prlimit64", (1, 7), errno.EPERM, errno.EPERM),
    ("prlimit64", (2**32, 7), 0, 0),  # the kernel takes the lower half: the process itself
    ("prlimit64", (2**32 + 5, 7), errno.EPERM, errno.EPERM),
    ("setpriority", (0, 0, 5), 0, 0),
    ("setpriority", (0, 77, 5), errno.EPERM, errno.EPERM),
    ("setpriority", (1, 0, 5), errno.EPERM, errno.EPERM),
    ("setpriority", (2, 0, 5), errno.EPERM, errno.EPERM),  # all processes of the user
    ("ioprio_set", (1, 0), 0, 0),
    ("ioprio_set", (1, 77), errno.EPERM, errno.EPERM),
    ("ioprio_set", (3, 0), errno.EPERM, errno.EPERM),
    *(
        (f"sched_set{what}", (pid,), error, error)
        for what in ("affinity", "attr", "param", "scheduler")
        for pid, error in ((0, 0), (77, errno.EPERM))
    ),
    ("clone", (17,), 0, 0),
    ("clone", (0x3D0F00,), 0, 0),  # a thread
    *(("clone", (17 | 1 << bit,), errno.EPERM, errno.EPERM) for bit in (17, *range(25, 31))),
    ("clone3", (), errno.ENOSYS, errno.ENOSYS),
    ("socket", (1, 1), errno.EACCES, 0),
    ("socket", (2**32 + 1, 1), errno.EACCES, 0),
    ("socket", (2, 1), errno.EACCES, errno.EACCES),
    ("socketpair", (1, 1), errno.EACCES, 0),
    ("socketpair", (30, 1), errno.EACCES, errno.EACCES),
    ("connect", (3,), errno.ECONNREFUSED, errno.ECONNREFUSED),
    ("bind", (3,), errno.EACCES, 0),  # CUDA's driver takes an abstract name
    ("sendto", (3, 1000, 5, 0, 0, 0), 0, 0),
    ("sendto", (3, 1000, 5, 0, 1000, 20), errno.EACCES, errno.EACCES),
    ("sendto", (3, 1000, 5, 0, 1 << 32, 20), errno.EACCES, errno.EACCES),
    ("sendmsg", (3,), errno.EACCES, errno.EACCES),
    ("fcntl", (3, 1031, 1 << 20), errno.EPERM, errno.EPERM),
    ("fcntl", (3, 1030), 0, 0),
    ("fallocate", (3, 0), 0, 0),
    ("fallocate", (3, 1), errno.EOPNOTSUPP, errno.EOPNOTSUPP),
    ("mmap", (0, 4096, 3, 0x22), 0, 0),  # private, anonymous
    ("mmap", (0, 4096, 3, 0x01), 0, 0),  # file-backed
    ("mmap", (0, 4096, 3, 0x21), errno.EPERM, 0),
    ("mmap", (0, 4096, 3, 0x4021), errno.EPERM, 0),
    ("memfd_create", (), errno.EPERM, 0),
]


@pytest.mark.parametrize("machine", MACHINES)
def test_arguments_decide(machine: CpuArchitecture) -> None:
    for call, arguments, on_cpu, on_cuda in CASES:
        found = tuple(answer(machine, device, call, *arguments) for device in DEVICES)
        assert found == (on_cpu, on_cuda), (call, arguments)


EACCES, EPERM = errno.EACCES, errno.EPERM
COMMANDS: list[tuple[str, tuple[int, ...], int, int, int]] = [
    # call, arguments, errno of a command on a CPU, on a GPU, and in a world on either
    *((call, (1000, 0o755), NOTHING, NOTHING, 0) for call in ("chmod", "fchmod")),
    *((call, (1000, 0o1777), NOTHING, NOTHING, 0) for call in ("chmod", "fchmod")),
    *((call, (1000, bits | 0o755), NOTHING, NOTHING, EPERM)
      for call in ("chmod", "fchmod") for bits in (0o4000, 0o2000, 0o6000, 1 << 32 | 0o4000)),
    *((call, (3, 1000, 0o755), NOTHING, NOTHING, 0) for call in ("fchmodat", "fchmodat2")),
    # Not the mode: a folder's descriptor, an address, flags.
    *((call, (0o6000, 0o6000, 0o755, 0o6000), NOTHING, NOTHING, 0)
      for call in ("fchmodat", "fchmodat2")),
    *((call, (3, 1000, bits | 0o755), NOTHING, NOTHING, EPERM)
      for call in ("fchmodat", "fchmodat2") for bits in (0o4000, 0o2000, 0o6000)),
    # families of sockets: Unix, IPv4, IPv6, netlink
    ("socket", (1, 1, 0), EACCES, 0, 0),
    ("socket", (2**32 + 1, 1, 0), EACCES, 0, 0),
    *(("socket", (family, kind, 0), EACCES, EACCES, 0)
      for family in (2, 10, 16) for kind in (1, 2, 3, 0x80801)),
    *(("socket", (family, 1, protocol), EACCES, EACCES, 0)
      for family in (2, 10) for protocol in (6, 17)),
    # raw and other protocols of theirs, and netlink's about devices, audits and firewalls
    *(("socket", (family, 3, protocol), EACCES, EACCES, EACCES)
      for family in (2, 10) for protocol in (1, 58, 132, 255)),
    *(("socket", (16, 3, protocol), EACCES, EACCES, EACCES) for protocol in (9, 12, 15, 16, 21)),
    # AX25, packet, RDS, CAN, Bluetooth, ALG, NFC, vsock, KCM, SMC, XDP
    *(("socket", (family, 1, 0), EACCES, EACCES, EACCES)
      for family in (0, 3, 17, 21, 29, 31, 38, 39, 40, 41, 43, 44, 255)),
    ("socketpair", (1, 1, 0), 0, 0, 0),
    ("socketpair", (1, 0x80001, 0), 0, 0, 0),
    ("socketpair", (1, 5, 0), 0, 0, 0),
    ("socketpair", (1, 2, 0), EACCES, 0, 0),  # a datagram may have an address
    ("socketpair", (1, 0x80002, 0), EACCES, 0, 0),
    ("socketpair", (30, 1, 0), EACCES, EACCES, 0),
    ("connect", (3,), errno.ECONNREFUSED, errno.ECONNREFUSED, 0),
    *((call, (3,), EACCES, 0, 0) for call in ("bind", "listen", "accept", "accept4")),
    ("sendto", (3, 1000, 5, 0, 0, 0), 0, 0, 0),
    ("sendto", (3, 1000, 5, 0, 1 << 32, 20), EACCES, EACCES, 0),
    *((call, (3, 1000), 0, EACCES, 0) for call in ("sendmsg", "sendmmsg")),
    # other processes
    *((call, (77,), EPERM, EPERM, 0)
      for call in ("prlimit64", "sched_setaffinity", "sched_setattr", "sched_setparam",
                   "sched_setscheduler", "ptrace", "process_vm_readv", "process_vm_writev",
                   "pidfd_getfd")),
    *((call, (which, 0), EPERM, EPERM, 0)
      for call, which in (("setpriority", 2), ("ioprio_set", 3))),
    # memory and files
    ("mmap", (0, 4096, 3, 0x21), EPERM, 0, 0),
    ("mmap", (0, 4096, 3, 0x22), 0, 0, 0),
    *((call, (), EPERM, EPERM, 0)
      for call in ("inotify_add_watch", "inotify_init1", "chown", "fchownat", "setxattr",
                   "fremovexattr", "file_setattr")),
    # what no role may do
    *(("clone", (17 | 1 << bit,), EPERM, EPERM, EPERM) for bit in (17, *range(25, 31))),
    ("clone", (17,), 0, 0, 0),
    ("clone3", (), errno.ENOSYS, errno.ENOSYS, errno.ENOSYS),
    ("fcntl", (3, 1031, 1 << 20), EPERM, EPERM, EPERM),
    ("fallocate", (3, 1), errno.EOPNOTSUPP, errno.EOPNOTSUPP, errno.EOPNOTSUPP),
    ("fallocate", (3, 0), 0, 0, 0),
    *((call, (), EPERM, EPERM, EPERM)
      for call in ("unshare", "setns", "mount", "umount2", "pivot_root", "chroot", "move_mount",
                   "open_tree", "open_tree_attr", "mount_setattr", "fsopen", "fsmount", "fsconfig",
                   "fspick", "open_by_handle_at", "fanotify_init", "io_uring_setup", "bpf",
                   "perf_event_open", "userfaultfd", "init_module", "finit_module", "kexec_load",
                   "kexec_file_load", "syslog", "add_key", "request_key", "keyctl", "shmget",
                   "semget", "msgget", "mq_open", "vmsplice", "memfd_secret")),
]  # fmt: skip


@pytest.mark.parametrize("machine", MACHINES)
def test_a_commands_role_decides(machine: CpuArchitecture) -> None:
    for call, arguments, *expected in COMMANDS:
        found = [
            *(answer(machine, device, call, *arguments, role="command") for device in DEVICES),
            *(answer(machine, device, call, *arguments, role="world") for device in DEVICES),
        ]
        wanted = [*expected, expected[-1]]
        assert found in (wanted, [None] * 4), (call, arguments)


@pytest.mark.parametrize("machine", MACHINES)
def test_a_command_has_memfds_on_a_gpu_alone(machine: CpuArchitecture) -> None:
    """In a world they are missing rather than refused, so that libraries take another way."""
    assert answer(machine, "cpu", "memfd_create", role="command") == EPERM
    assert answer(machine, "cpu", "memfd_create", role="world") == errno.ENOSYS
    for role in ("command", "world"):
        assert answer(machine, "cuda", "memfd_create", role=role) == 0


@pytest.mark.parametrize("machine", MACHINES)
def test_a_command_may_do_all_that_the_trainer_may(machine: CpuArchitecture) -> None:
    """The trainer is refused all that a command is refused, in a world or not."""
    cases = {(call, arguments) for call, arguments, *_ in (*CASES, *COMMANDS)}
    for device in DEVICES:
        refused: dict[Role, set[object]] = {
            role: {one for one in cases if answer(machine, device, *_flat(one), role=role)}
            for role in ROLES
        }
        assert refused["world"] <= refused["trainer"]
        assert refused["command"] - refused["trainer"] == set()


def _flat(case: tuple[str, tuple[int, ...]]) -> tuple[Any, ...]:
    return case[0], *case[1]


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("machine", MACHINES)
def test_what_has_no_rule_is_allowed_and_every_other_table_kills(
    machine: CpuArchitecture, role: Role
) -> None:
    program = assemble(rules("cpu", role), machine)
    named = {machine.number(name) for name in NUMBERS}

    def returned(number: int, audit: int = machine.audit) -> int:
        return bpf_machine.run(program, audit=audit, number=number, arguments=[1] * 6)

    unnamed = set(range(500)) - named
    assert {returned(number) for number in unnamed} == {ALLOW}
    others = [each.audit for each in ARCHITECTURES.values() if each is not machine]
    assert {returned(number, audit) for number in unnamed for audit in others} == {KILL}
    if machine.x32_bit is not None:
        assert {returned(number | machine.x32_bit) for number in range(500)} == {KILL}


FOR_WORLDS = {"mount_setattr", "move_mount", "open_tree", "pivot_root"}
"""Calls that build a world before its filter refuses them."""


def test_every_number_of_the_table_is_ruled_on() -> None:
    assert {rule.call for rule in rules("cpu")} == NUMBERS.keys() - {"seccomp"}
    assert {rule.call for role in ROLES for rule in rules("cuda", role)} < NUMBERS.keys()
    assert all({rule.call for rule in rules("cpu", role)} >= FOR_WORLDS for role in ROLES)


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("device", DEVICES)
def test_no_call_has_two_rules(device: str, role: Role) -> None:
    """The first of two would decide alone."""
    calls = [rule.call for rule in rules(device, role)]
    assert len(calls) == len(set(calls))
    conditions = [one for rule in rules(device, role) for one in rule.unless]
    assert not any(one.differs and one.or_one_of for one in conditions), "undefined"


@given(
    st.tuples(*[st.integers(0, 2**64 - 1)] * 6),
    st.lists(
        st.builds(
            Condition,
            argument=st.integers(0, 5),
            value=st.integers(0, 3),
            mask=st.sampled_from([0x3, 0x1, 0xFFFFFFFF]),
            high=st.booleans(),
            differs=st.booleans(),
            or_one_of=st.lists(st.integers(0, 3), max_size=3).map(tuple),
        ).filter(lambda condition: not (condition.differs and condition.or_one_of)),
        max_size=4,
    ),
)
def test_all_conditions_must_hold(arguments: tuple[int, ...], conditions: list[Condition]) -> None:
    """The program agrees with the rule's definition, on arguments that sometimes match the
    values."""
    machine = ARCHITECTURES["aarch64"]
    arguments = tuple(value & 0x0000000300000003 for value in arguments)
    program = assemble(
        [SyscallRule("mmap", 5, tuple(conditions)), SyscallRule("clone", 6)], machine
    )

    def holds(condition: Condition) -> bool:
        half = arguments[condition.argument] >> (32 * condition.high) & 0xFFFFFFFF
        equals = half & condition.mask in {condition.value, *condition.or_one_of}
        return equals != condition.differs

    allowed = bool(conditions) and all(map(holds, conditions))
    for call, expected in (("mmap", ALLOW if allowed else ERRNO | 5), ("clone", ERRNO | 6)):
        number = machine.number(call) or 0
        assert expected == bpf_machine.run(
            program, audit=machine.audit, number=number, arguments=arguments
        )


HEADERS = {
    "x86_64": Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h"),
    "aarch64": Path("/usr/include/asm-generic/unistd.h"),
}
_DEFINE = re.compile(r"#define __NR(?:3264)?_(\w+)\s+(\d+)")


@pytest.mark.parametrize("machine", MACHINES)
def test_the_numbers_are_those_of_the_kernels_headers(machine: CpuArchitecture) -> None:
    header = HEADERS[machine.name]
    if not header.exists():
        pytest.skip(f"{header} is not installed")
    theirs = {name: int(number) for name, number in _DEFINE.findall(header.read_text())}
    ours = {name: machine.number(name) for name in NUMBERS.keys() & theirs.keys()}
    assert len(ours) > 80
    assert ours == {name: theirs[name] for name in ours}
    if machine.name == "x86_64":  # the generic header keeps numbers that no 64-bit machine has
        missing = NUMBERS.keys() - theirs.keys()
        assert all((machine.number(name) or 451) > 450 for name in missing), "newer than it"
