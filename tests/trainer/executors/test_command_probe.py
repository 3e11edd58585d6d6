"""CUDA is tried as trials of a command will start it, before a campaign counts on it."""

import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.campaigns import COMMAND
from tests.support.commands import command, script
from tests.support.own_menus import OWN_MENU
from tests.support.stub_cuda import StubMachine
from trainer.executors.command_probe import CommandProbe, probe_command
from trainer.executors.local import COMMAND_ENTRY, LocalExecutor
from trainer.isolation.kernel.sandbox import Layers

HERE = Layers.detect()

pytestmark = pytest.mark.skipif(
    HERE.landlock_abi < 5 or not HERE.world, reason="this machine cannot keep all promises"
)


def probed(
    machine: StubMachine, place: Path, *, world: bool, program: str, **told: str
) -> CommandProbe:
    given = command(argv=(program, "train.py"), directory=str(script(place / "own", "")))
    with LocalExecutor(
        entry=COMMAND_ENTRY,
        environ=machine.environ(**told),
        root=machine.root,
        layers=replace(HERE, world=world),
    ) as executor:
        return probe_command(executor, given, "cuda")


@pytest.mark.parametrize(
    ("world", "program", "told", "state"),
    [
        (True, sys.executable, {}, "good"),
        (True, "/bin/bash", {}, "good"),
        (True, sys.executable, {"ends": "803"}, "bad"),
        (True, sys.executable, {"ends": "segv"}, "bad"),
        # Without namespaces only the command itself starts it: a program that is no Python
        # starts the script, which then finds no GPU.
        (False, sys.executable, {}, "note"),
        (False, "/bin/bash", {}, "bad"),
    ],
)
def test_what_is_tried_is_what_the_command_will_do(
    gpu_machine: StubMachine,
    tmp_path: Path,
    world: bool,
    program: str,
    told: dict[str, str],
    state: str,
) -> None:
    assert probed(gpu_machine, tmp_path, world=world, program=program, **told).state == state


@pytest.mark.skipif(shutil.which("nvidia-smi") is not None, reason="the driver here would start")
def test_a_campaign_whose_gpu_does_not_start_stops_before_its_baseline(
    gpu_machine: StubMachine, tmp_path: Path
) -> None:
    """The stand-in's device nodes are not where trials of the installed command look for them."""
    script(tmp_path, "lr = 1.0")
    (tmp_path / "own.toml").write_text(OWN_MENU)
    data = {"AUTORESEARCH_DATA_DIR": str(tmp_path / "data")}
    environment = {**os.environ, **gpu_machine.environ(), **data}
    words = [str(COMMAND), "loop", "--menu", "own.toml", "--device", "cuda", "--iters", "1"]
    done = subprocess.run(
        words, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    journals = list(tmp_path.glob("runs/*/trajectory.jsonl"))
    rows = [json.loads(line) for one in journals for line in one.read_text().splitlines()]
    assert [row for row in rows if row["kind"] != "campaign"] == []
    words = [str(COMMAND), "doctor", "--menu", "own.toml", "--json"]
    done = subprocess.run(
        words, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    states = {check["name"]: check["state"] for check in json.loads(done.stdout)["checks"]}
    assert (done.returncode, states["cuda"]) == (1, "bad")
