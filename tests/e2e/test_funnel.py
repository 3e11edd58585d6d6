"""Run the documented walk through the whole funnel, in its short form."""

import json
import os
import sys
from pathlib import Path

import pytest

from tests.support.places import ROOT
from tests.support.programs import finished

SCRIPT = ROOT / "docs" / "funnel.sh"


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_the_documented_walk_ends_with_a_plan(tmp_path: Path) -> None:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    short = {"ITERS": "2", "STEPS": "80", "TOP": "2", "SPREAD": "1", "SEEDS": "1"}
    short["LOOP"] = "--baseline-seeds 2 --set max_runs=2 --no-confirm"
    # No ladder: the machine's pace decides how small a ladder fits, and the ladder has its own
    # test.
    short["RUNGS"] = "0"
    environment = {**os.environ, **short, "PATH": path, "XDG_CACHE_HOME": str(tmp_path / "cache")}
    done = finished("bash", SCRIPT, cwd=tmp_path, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "handoff" / "launch_megatron.sh").exists()
    plan = json.loads((tmp_path / "handoff" / "plan.json").read_text("utf-8"))
    assert plan["forecast"] is None
