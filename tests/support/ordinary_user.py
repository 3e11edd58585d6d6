"""Run a supervisor as an unprivileged user: ``ordinary_user UID TRIALS HOW [DOOR]``.

No file of the system names the user. The module runs each attack on the scheduling and the limits
of another process, which is this one, and prints the loot of each, as JSON, with the priorities
that another process of the user has in the end. Root starts it. The door is one of
:mod:`tests.support.doors`.
"""

import ctypes
import json
import os
import stat
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil

from tests.support import hostile, kernel_attacks, world_attacks
from tests.support.doors import IN_A_WORLD, TRAINER
from tests.support.trials import by_command, trial_spec
from trainer.executors.local import LocalExecutor
from trainer.isolation.kernel import world
from trainer.isolation.kernel.libc import check, libc
from trainer.isolation.kernel.sandbox import Layers

_PR_SET_KEEPCAPS, _PR_CAP_AMBIENT, _RAISE = 8, 47, 2
_CAP_DAC_READ_SEARCH = 2


def become(uid: int) -> None:
    """Become that user, who may read what root may: Python itself may lie in root's home.

    That right ends in a user namespace, so the way to Python is opened to all in this process's own
    mount namespace.
    """
    _open_way_to_python()
    check(libc().prctl(_PR_SET_KEEPCAPS, 1, 0, 0, 0), "PR_SET_KEEPCAPS")
    os.setgroups([])
    os.setgid(uid)
    os.setuid(uid)
    os.environ.pop("HOME", None)
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)
    bit = 1 << _CAP_DAC_READ_SEARCH
    sets = (ctypes.c_uint32 * 6)(bit, bit, bit)  # effective, permitted, inheritable
    check(libc().capset(header, sets), "capset")
    raised = libc().prctl(_PR_CAP_AMBIENT, _RAISE, _CAP_DAC_READ_SEARCH, 0, 0)
    check(raised, "PR_CAP_AMBIENT")


def _open_way_to_python() -> None:
    python = Path(sys.base_prefix).resolve()
    closed = [path for path in reversed(python.parents) if not path.stat().st_mode & stat.S_IXOTH]
    if not closed:
        return
    check(libc().unshare(world._MOUNT), "unshare")
    check(libc().mount(b"none", b"/", None, world._PRIVATE, None), "mount")
    tree = world._clone(str(python), 0, below=True)
    world._mount("tmpfs", str(closed[0]), 0, "mode=755")
    python.mkdir(parents=True)
    world._attach(tree, str(python))


def main() -> None:
    uid, trials = int(sys.argv[1]), Path(sys.argv[2])
    os.chown(trials, uid, uid)
    become(uid)
    door = (*sys.argv[4:], TRAINER)[0]
    layers = Layers.detect() if sys.argv[3] == "confined" else Layers(0, seccomp=False)
    layers = replace(layers, world=layers.world and door == IN_A_WORLD)
    got: dict[str, Any] = {}
    bystander = [sys.executable, "-m", "tests.support.bystander"]
    with (
        LocalExecutor(
            entry=kernel_attacks.ENTRY, layers=layers, allow_unsandboxed=True
        ) as executor,
        subprocess.Popen(bystander, stdout=subprocess.PIPE, env=dict(os.environ)) as victim,
    ):
        assert victim.stdout is not None
        victim.stdout.readline()
        # The first attack comes while all priorities are equal, since none may be raised.
        attacks: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
            "on_the_user": kernel_attacks.on_the_user(),
            "ask_for_capabilities": (hostile.ask_for_capabilities, {}),
            "tell_processes": (kernel_attacks.tell_processes, {}),
            **kernel_attacks.on_a_process(os.getpid()),
            "slow_the_user_down": (kernel_attacks.slow_the_user_down, {}),
        }
        if layers.world:
            attacks["in_its_world"] = hostile.several, hostile.in_turn(*world_attacks.on_a_world())
        for name, (attack, arguments) in attacks.items():
            trial_dir = hostile.arm(trials / name, attack, **arguments)
            spec = trial_spec()
            executor.run(spec if door == TRAINER else by_command(spec), trial_dir)
            got[name] = hostile.loot(trial_dir)
        process = psutil.Process(victim.pid)
        got["priorities"] = [process.nice(), int(process.ionice().ioclass)]
        victim.kill()
    print(json.dumps(got))


if __name__ == "__main__":
    main()
