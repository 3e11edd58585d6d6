"""Run the documented walk through the whole funnel, in its short form."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.places import ROOT

SCRIPT = ROOT / "docs" / "funnel.sh"


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_the_documented_walk_ends_with_a_plan_and_a_larger_run_verified(tmp_path: Path) -> None:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    short = {"ITERS": "2", "STEPS": "80", "TOP": "2", "SPREAD": "1", "SEEDS": "1"}
    short["LOOP"] = "--baseline-seeds 2 --set max_runs=2 --no-confirm"
    # No ladder: the machine's pace decides how small a ladder fits, and the ladder has its own
    # test.
    short |= {"RUNGS": "0", "LARGER": "0.25"}
    done = subprocess.run(
        ["bash", SCRIPT],
        cwd=tmp_path,
        env={**os.environ, **short, "PATH": path, "XDG_CACHE_HOME": str(tmp_path / "cache")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "handoff" / "launch_megatron.sh").exists()
    for run in ("as-planned", "too-slow"):
        assert (tmp_path / run / "curve.jsonl").exists()
    planned, faulty = done.stdout.split("--log too-slow/curve.jsonl")
    assert "\nbroken: " not in planned
    assert "\nbroken: " in faulty
