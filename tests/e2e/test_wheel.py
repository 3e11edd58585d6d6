"""Install the wheel into an empty environment away from the checkout, and run a loop."""

import json
import os
import sys
from pathlib import Path

import pytest

from agent.settings.campaign import DEFAULT_MENU
from tests.support.places import ROOT
from tests.support.programs import finished


def run(*command: str | Path, cwd: Path, **environment: str) -> str:
    kept = {
        name: value
        for name, value in os.environ.items()
        # The machine decides where pip finds packages; everything else starts from nothing.
        if name.startswith("PIP_") or name.lower().endswith("_proxy") or name == "PATH"
    }
    done = finished(*command, cwd=cwd, env={**kept, "HOME": str(cwd), **environment})
    assert done.returncode == 0, f"{command}: {done.stdout[-2000:]}{done.stderr[-2000:]}"
    return done.stdout


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_a_wheel_in_an_empty_environment_runs_two_iterations(tmp_path: Path) -> None:
    wheels = tmp_path / "wheels"
    run(sys.executable, "-m", "build", "--wheel", "--outdir", wheels, ROOT, cwd=tmp_path)
    (wheel,) = wheels.glob("*.whl")
    away = tmp_path / "away"
    away.mkdir()
    run(sys.executable, "-m", "venv", "env", cwd=away)
    python = away / "env" / "bin" / "python"
    constraints = ROOT / "constraints.txt"
    pip = (python, "-m", "pip", "install", "--quiet", "--no-compile")
    run(*pip, "-c", constraints, wheel, cwd=away)

    command = away / "env" / "bin" / "autoresearch"
    run(command, "loop", "--iters", "2", "--baseline-seeds", "2", "--no-confirm", cwd=away)
    rows = [
        json.loads(line)
        for line in (away / "runs" / DEFAULT_MENU / "trajectory.jsonl").read_text().splitlines()
    ]
    assert [row["iter"] for row in rows if row["kind"] == "iteration"] == [1, 2]
    assert "spark-354m" in run(command, "menu", "list", cwd=away)

    # The prompts are packaged too: rendering one needs every shipped template.
    script = (
        "import importlib.resources as r;"
        "print(sorted(p.name for p in r.files('proposer_prompts').iterdir()))"
    )
    names = run(python, "-c", script, cwd=away)
    assert "system.md.j2" in names
    assert "user.md.j2" in names
