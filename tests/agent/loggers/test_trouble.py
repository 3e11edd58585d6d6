"""Check that a tracker that fails midway causes one note and prints nothing of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

START = """
import os, sys, time
from pathlib import Path
import psutil
from agent.loggers.base import CampaignFacts
from agent.loggers.background import LogTarget
from tests.support.rows import Simulator
from trajectory.rows import IterationRow

rows = [row for row in Simulator().rows(30) if isinstance(row, IterationRow)]
here = Path(sys.argv[1])
logger = LogTarget.parse(sys.argv[2]).started(CampaignFacts(here, "c", {}))
logger.log(rows[0])
while not ready():
    time.sleep(0.1)
break_it()
for row in rows[1:]:
    logger.log(row)
    time.sleep(0.1)
logger.close(30)
print(logger.trouble)
"""
BROKEN = {
    "wandb, while it is set up": """
import wandb

init = wandb.init

def dying(*arguments, **settings):
    init(*arguments, **settings)
    for child in psutil.Process().children(recursive=True):
        child.kill()
    raise wandb.errors.CommError("its process is gone")

wandb.init = dying

def ready():
    return True

def break_it():
    pass
""",
    "mlflow": """
def ready():
    return database().exists() and b"autoresearch.campaign_id" in database().read_bytes()

def database():
    return here / "mlflow.sqlite"

def break_it():
    time.sleep(1)
    database().unlink()
""",
}


@pytest.mark.slow
@pytest.mark.parametrize("how", BROKEN)
def test_a_tracker_that_dies_is_one_note(tmp_path: Path, how: str) -> None:
    name, _, _ = how.partition(",")
    pytest.importorskip(name)
    done = subprocess.run(
        [sys.executable, "-c", BROKEN[how] + START, tmp_path, name],
        env=os.environ | {"WANDB_MODE": "offline", "MLFLOW_DISABLE_TELEMETRY": "true"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("\n") == 1
    assert "Traceback" not in done.stderr
