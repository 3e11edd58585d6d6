"""The filter's programs run for both processors, and its system call numbers match the headers."""

import errno
import re
from pathlib import Path

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
    Architecture,
    Condition,
    Rule,
    assemble,
)
from trainer.isolation.kernel.seccomp import rules

MACHINES = [pytest.param(machine, id=machine.name) for machine in ARCHITECTURES.values()]
DEVICES = ["cpu", "cuda:1"]


def answer(machine: Architecture, device: str, call: str, *arguments: int) -> int:
    """Return a call's errno, or 0 if it is allowed."""
    number = machine.number(call)
    assert number is not None
    program = assemble(rules(device), machine)
    returned = bpf_machine.run(program, audit=machine.audit, number=number, arguments=arguments)
    return 0 if returned == ALLOW else returned & ~ERRNO


CASES: list[tuple[str, tuple[int, ...], int, int]] = [
    # call, arguments, errno on a CPU, errno on a GPU
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
def test_arguments_decide(machine: Architecture) -> None:
    for call, arguments, on_cpu, on_cuda in CASES:
        found = tuple(answer(machine, device, call, *arguments) for device in ("cpu", "cuda"))
        assert found == (on_cpu, on_cuda), (call, arguments)


@pytest.mark.parametrize("machine", MACHINES)
def test_what_has_no_rule_is_allowed_and_every_other_table_kills(machine: Architecture) -> None:
    program = assemble(rules("cpu"), machine)
    named = {machine.number(name) for name in NUMBERS}

    def returned(number: int, audit: int = machine.audit) -> int:
        return bpf_machine.run(program, audit=audit, number=number, arguments=[1] * 6)

    unnamed = set(range(500)) - named
    assert {returned(number) for number in unnamed} == {ALLOW}
    others = [each.audit for each in ARCHITECTURES.values() if each is not machine]
    assert {returned(number, audit) for number in unnamed for audit in others} == {KILL}
    if machine.x32_bit is not None:
        assert {returned(number | machine.x32_bit) for number in range(500)} == {KILL}


def test_every_number_of_the_table_is_ruled_on() -> None:
    assert {rule.call for rule in rules("cpu")} == NUMBERS.keys() - {"seccomp"}


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
        ),
        max_size=4,
    ),
)
def test_all_conditions_must_hold(arguments: tuple[int, ...], conditions: list[Condition]) -> None:
    """The program agrees with the rule's definition, on arguments that sometimes match the
    values."""
    machine = ARCHITECTURES["aarch64"]
    arguments = tuple(value & 0x0000000300000003 for value in arguments)
    program = assemble([Rule("mmap", 5, tuple(conditions)), Rule("clone", 6)], machine)

    def holds(condition: Condition) -> bool:
        half = arguments[condition.argument] >> (32 * condition.high) & 0xFFFFFFFF
        return ((half & condition.mask) == condition.value) != condition.differs

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
def test_the_numbers_are_those_of_the_kernels_headers(machine: Architecture) -> None:
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
