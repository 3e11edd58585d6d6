"""Install the wheel into an empty environment away from the checkout: without torch, and with."""

import json
import os
import shutil
import sys
import time
from pathlib import Path

import pytest

from agent.settings.campaign import DEFAULT_MENU
from tests.support.commands import script
from tests.support.own_menus import OWN_MENU
from tests.support.places import NIGHT, ROOT
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


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the wheel."""
    folder = tmp_path_factory.mktemp("wheels")
    run(sys.executable, "-m", "build", "--wheel", "--outdir", folder, ROOT, cwd=folder)
    (wheel,) = folder.glob("*.whl")
    return wheel


def environment(away: Path, wheel: Path, extras: str) -> Path:
    """Install the wheel into an empty environment in ``away`` and return its programs' folder."""
    away.mkdir()
    run(sys.executable, "-m", "venv", "env", cwd=away)
    pip = (away / "env" / "bin" / "python", "-m", "pip", "install", "--quiet", "--no-compile")
    probe = finished(*pip, "--no-deps", "--dry-run", "annotated-doc==0.0.7")
    if probe.returncode != 0:
        pytest.skip(f"no package index can be reached: {probe.stderr.strip()[-200:]}")
    run(*pip, "-c", ROOT / "constraints.txt", f"{wheel}{extras}", cwd=away)
    return away / "env" / "bin"


def iterations(campaign: Path) -> list[int]:
    lines = (campaign / "trajectory.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in lines]
    return [row["iter"] for row in rows if row["kind"] == "iteration"]


TWO = ("--iters", "2", "--baseline-seeds", "2", "--no-confirm")


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_a_wheel_without_extras_shows_a_night_and_searches_a_script(
    wheel: Path, tmp_path: Path
) -> None:
    away = tmp_path / "away"
    programs = environment(away, wheel, "")
    command = programs / "autoresearch"
    (packages,) = (away / "env" / "lib").glob("python*/site-packages")
    sizes = [path.stat().st_size for path in packages.rglob("*") if path.is_file()]
    assert not (packages / "torch").exists()
    assert not list(packages.glob("nvidia_cu*"))
    megabytes = sum(sizes) / 1e6

    shutil.copytree(NIGHT, away / "night")
    began = time.monotonic()
    top = json.loads(run(command, "top", "--json", "--campaign", "night", cwd=away))
    print(f"{megabytes:.0f} MB, {time.monotonic() - began:.1f} s to the first top")
    assert megabytes < 500  # 390 MB of it with constraints.txt on Linux with x86-64
    assert top["configs"][0]["iter"] == 95
    run(command, "report", "--campaign", "night", cwd=away)

    refused = finished(command, "loop", "--iters", "1", cwd=away)
    assert (refused.returncode, "Traceback" in refused.stderr) == (1, False)
    assert f"{programs / 'python'} -m pip install 'torch" in refused.stderr

    script(away / "own", "import sys; print('loss', abs(float(sys.argv[1][5:]) - 0.3))")
    (away / "own" / "own.toml").write_text(OWN_MENU)
    run(command, "loop", "--menu", "own/own.toml", *TWO, cwd=away)
    assert iterations(away / "runs" / "own") == [1, 2]


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_a_wheel_in_an_empty_environment_runs_two_iterations(wheel: Path, tmp_path: Path) -> None:
    away = tmp_path / "away"
    programs = environment(away, wheel, "[train]")
    command = programs / "autoresearch"
    run(command, "loop", *TWO, cwd=away)
    assert iterations(away / "runs" / DEFAULT_MENU) == [1, 2]
    assert "spark-354m" in run(command, "menu", "list", cwd=away)

    # The prompts are packaged too: rendering one needs every shipped template.
    listing = (
        "import importlib.resources as r;"
        "print(sorted(p.name for p in r.files('proposer_prompts').iterdir()))"
    )
    names = run(programs / "python", "-c", listing, cwd=away)
    assert "system.md.j2" in names
    assert "user.md.j2" in names
