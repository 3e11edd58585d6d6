"""Run the isolation's tests in a kernel that delegates a cgroup: Debian's User Mode Linux.

It boots in a second as a program, sees this machine's files and stands in for a desktop machine
under systemd. It has no Landlock and is slow, so the tests cover what the kernel counts and ends.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.places import ROOT

UML = "linux.uml"
TESTS = ("test_delegated_cgroup.py", "test_supervisor.py", "test_weighing.py")
LEFT_OUT = "page_tables or keeps_fleeing"
"""Tests excluded there: it maps no 120 GiB, and forks too slowly for a process to flee twice in a
fifth of a second."""
MACHINE = "mem=3000M rootfstype=hostfs root=/ rw con=null con0=fd:0,fd:1"
INIT = """#!/bin/bash
mount -t proc proc /proc
mount -t sysfs sys /sys
mkdir -p /dev/shm
for place in /run /dev/shm; do mount -t tmpfs none "$place"; done
mount -t cgroup2 none /sys/fs/cgroup
echo "+memory +pids" > /sys/fs/cgroup/cgroup.subtree_control
mkdir /sys/fs/cgroup/lab
echo $$ > /sys/fs/cgroup/lab/cgroup.procs
ip link set lo up
export PATH=/usr/bin:/bin:/usr/sbin HOME=/dev/shm TMPDIR=/dev/shm
cd {root}
{python} -m pytest -p no:cacheprovider --color=no -q -rs -k "not {left_out}" {tests}
echo "ended with $?."
echo o > /proc/sysrq-trigger
sleep 10
"""

pytestmark = [pytest.mark.containers, pytest.mark.timeout(1200)]


@pytest.mark.skipif(shutil.which(UML) is None, reason="needs Debian's package user-mode-linux")
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_trials_are_counted_and_ended_by_the_kernel(tmp_path: Path) -> None:
    tests = " ".join(str(Path(__file__).with_name(name).relative_to(ROOT)) for name in TESTS)
    init = tmp_path / "init"
    init.write_text(INIT.format(root=ROOT, python=sys.executable, left_out=LEFT_OUT, tests=tests))
    init.chmod(0o755)
    booted = subprocess.run(
        [UML, *MACHINE.split(), f"init={init}"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=1100,
        check=False,
    )
    said = booted.stdout[booted.stdout.find("Run ") :]
    assert "ended with 0." in said, said[-6000:]
    assert "no cgroup is delegated" not in said, said[-6000:]
