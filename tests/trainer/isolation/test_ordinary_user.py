"""An ordinary user lacks the capabilities that exempt root. Containers run as a user that no file
names."""

import errno
import json
import os
import pwd
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.support import hostile
from tests.support.campaigns import Toy
from tests.support.doors import IN_A_WORLD, TRAINER, unreachable
from tests.support.kernel_attacks import on_a_process
from tests.support.places import ROOT
from trainer.isolation.kernel.sandbox import Layers

BECOME = """
import os, sys
from tests.support.ordinary_user import become
become(int(sys.argv[1]))
os.execv(sys.argv[2], sys.argv[2:])
"""
MASK = "mount -t tmpfs none /proc/irq"
NAMES = {"on_the_user", *on_a_process(0)}

pytestmark = pytest.mark.skipif(
    not hasattr(os, "geteuid") or os.geteuid() != 0 or not Layers.detect().seccomp,
    reason="only root can become another user",
)


@pytest.fixture
def nobody() -> int:
    named = {entry.pw_uid for entry in pwd.getpwall()}
    return next(uid for uid in range(54321, 55000) if uid not in named)


@pytest.fixture
def trials() -> Iterator[Path]:
    """Yield a directory that every user may enter; pytest's own directories are closed to
    others."""
    with tempfile.TemporaryDirectory(dir="/tmp") as directory:
        Path(directory).chmod(0o755)
        (Path(directory) / "trials").mkdir()
        yield Path(directory) / "trials"


def attacked(uid: int, trials: Path, how: str, door: str = TRAINER) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.ordinary_user", str(uid), str(trials), how, door],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    told: dict[str, Any] = json.loads(done.stdout)
    return told


def is_unharmed(told: dict[str, Any]) -> bool:
    """Return whether another process of the user has the priorities that it had."""
    del told["slow_the_user_down"]
    usual = [os.getpriority(os.PRIO_PROCESS, 0), int(psutil.Process().ionice().ioclass)]
    return bool(told.pop("priorities") == usual)


def test_a_user_in_no_file_runs_trials_that_cannot_harm(nobody: int, trials: Path) -> None:
    told = attacked(nobody, trials, "confined")
    assert told.pop("ask_for_capabilities")["Seccomp"] == "2"
    assert hostile.refused(told.pop("tell_processes"))
    assert is_unharmed(told)
    assert told.keys() == NAMES
    assert {loot["errno"] for loot in told.values()} == {errno.EPERM}


ASK = """
import os, sys
from tests.support.ordinary_user import become
from trainer.isolation.kernel import world
become(int(sys.argv[1]))
print(world.refusal() or "none")
"""


@pytest.mark.skipif(not Layers.detect().world, reason="this machine allows no namespaces")
@pytest.mark.parametrize("masked", [False, True])
def test_a_user_finds_out_whether_a_world_can_be_had(nobody: int, masked: bool) -> None:
    """Containers hide parts of /proc, and then no ordinary user may mount another."""
    words = [sys.executable, "-c", ASK, str(nobody)]
    if masked:
        words = ["unshare", "--mount", "sh", "-c", f"{MASK} && exec {shlex.join(words)}"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.stdout.strip() == "none") != masked, done.stderr
    assert done.stdout.strip()


@pytest.mark.skipif(not Layers.detect().world, reason="this machine allows no namespaces")
def test_a_command_of_theirs_has_a_world(nobody: int, trials: Path) -> None:
    """There it may change the priority of all processes of the user: those of the world."""
    told = attacked(nobody, trials, "confined", IN_A_WORLD)
    capabilities = told.pop("ask_for_capabilities")
    assert (capabilities["NoNewPrivs"], capabilities["Seccomp"]) == ("1", "2")
    assert int(capabilities["CapEff"], 16) & ~0b110 == 0
    assert told.pop("tell_processes") == [1, 2]
    assert [loot for loot in told.pop("in_its_world") if not unreachable(loot)] == []
    # Of its own: the first has capabilities that the command lost.
    assert told.pop("on_the_user")["errno"] == errno.EPERM
    assert is_unharmed(told)
    assert {loot["errno"] for loot in told.values()} == {errno.ESRCH}


@pytest.mark.slow
def test_unconfined_they_could(nobody: int, trials: Path) -> None:
    told = attacked(nobody, trials, "unconfined")
    assert len(told.pop("tell_processes")) > 2
    assert not is_unharmed(told)
    assert [name for name in NAMES if isinstance(told[name], dict)] == []


def as_user(uid: int, toy: Toy, *command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", BECOME, str(uid), *command],
        cwd=toy.home,
        env={**toy.environment, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.slow
def test_a_night_of_a_user_whom_no_file_names(nobody: int, trials: Path) -> None:
    toy = Toy(trials)
    for path in (trials, *trials.rglob("*")):
        os.chown(path, nobody, nobody)
    done = as_user(nobody, toy, *toy.arguments(1))
    assert done.returncode == 0, done.stderr
    assert len(toy.iterations()) == 1
    assert {
        row["trial"]["result"]["status"] for row in toy.rows() if row["kind"] == "baseline"
    } == {"ok"}


@pytest.mark.slow
def test_without_a_home_the_place_for_corpora_is_asked_for(nobody: int, trials: Path) -> None:
    toy = Toy(trials)
    del toy.environment["AUTORESEARCH_DATA_DIR"]
    done = as_user(nobody, toy, *toy.arguments(1)[:1], "doctor")
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
