"""Run a supervisor as an unprivileged user: ``ordinary_user UID TRIALS confined|unconfined``.

No file of the system names the user. The module runs each attack on the scheduling and the limits
of another process, which is this one, and prints the loot of each, as JSON. Root starts it.
"""

import ctypes
import json
import os
import sys
from pathlib import Path
from typing import Any

from tests.support import hostile, kernel_attacks
from tests.support.trials import trial_spec
from trainer.executors.local import LocalExecutor
from trainer.isolation.kernel.libc import check, libc
from trainer.isolation.kernel.sandbox import Layers

_PR_SET_KEEPCAPS, _PR_CAP_AMBIENT, _RAISE = 8, 47, 2
_CAP_DAC_READ_SEARCH = 2


def become(uid: int) -> None:
    """Become that user, who may read what root may: Python itself may lie in root's home."""
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


def main() -> None:
    uid, trials = int(sys.argv[1]), Path(sys.argv[2])
    os.chown(trials, uid, uid)
    become(uid)
    layers = Layers.detect() if sys.argv[3] == "confined" else Layers(0, seccomp=False)
    got: dict[str, Any] = {}
    with LocalExecutor(
        entry=kernel_attacks.ENTRY, layers=layers, allow_unsandboxed=True
    ) as executor:
        # The first attack comes while all priorities are equal, since none may be raised.
        attacks = {
            "on_the_user": kernel_attacks.on_the_user(),
            "ask_for_capabilities": (hostile.ask_for_capabilities, {}),
            **kernel_attacks.on_a_process(os.getpid()),
        }
        for name, (attack, arguments) in attacks.items():
            trial_dir = hostile.arm(trials / name, attack, **arguments)
            executor.run(trial_spec(), trial_dir)
            got[name] = hostile.loot(trial_dir)
    print(json.dumps(got))


if __name__ == "__main__":
    main()
