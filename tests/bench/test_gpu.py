"""Test ``python -m bench.gpu``: its rehearsal on a CPU, and its refusals."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from agent.menu.files import load_menu
from agent.settings.campaign import CampaignSettings
from bench.gpu import main
from bench.gpu_figures import figures, standings
from bench.gpu_race import DEFAULT, Lap, Start, Task, candidates
from bench.gpu_session import Session, cpu_plan, gpu_plan
from tests.support.places import ROOT
from tests.support.trials import trial_ok, trial_spec
from trainer.corpus.prepare import random_corpus
from trainer.machine.ceiling import Ceiling, Product

AGENT_ALONE = "typer rich optuna httpx2 sqlalchemy tenacity jinja2 matplotlib pydantic_settings"


@pytest.mark.slow
def test_a_rehearsal_runs_every_line_without_the_agents_packages(tmp_path: Path) -> None:
    code = f"""
import sys
sys.modules.update(dict.fromkeys({AGENT_ALONE.split()!r}))
from bench.gpu import main
sys.exit(main(["--rehearse", "--out", {str(tmp_path)!r}]))
"""
    ended = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    said = ended.stdout
    assert "torch bf16, cold:" in said
    assert "torch bf16, warm:" in said
    assert "reference, cold:" in said
    assert "not run: megatron bf16: the megatron backend trains on CUDA devices only" in said
    assert "not run: megatron fp8: the megatron backend trains on CUDA devices only" in said
    goals = [line for line in said.splitlines() if "not judged" in line]
    assert len(goals) == 5, "a rehearsal meets no goal and misses none"

    (folder,) = (path for path in tmp_path.iterdir() if path.name != "corpora")
    kept = (folder / "figures.md").read_text("utf-8")
    assert "a rehearsal on the CPU" in kept
    laps = [
        Lap.model_validate_json(line)
        for line in (folder / "laps.jsonl").read_text("utf-8").splitlines()
    ]
    by_hand = next(lap.result for lap in laps if lap.candidate == "reference")
    ours = next(lap.result for lap in laps if lap.candidate == "torch bf16")
    assert by_hand.val_bpb == pytest.approx(ours.val_bpb, rel=2e-3), "the same task"


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device to measure")
def test_without_a_gpu_it_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--out", str(tmp_path / "out")]) == 1
    said = capsys.readouterr().err
    assert said.startswith("error: torch ")
    assert "--rehearse" in said
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_time_that_is_up_starts_no_lap(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    session = Session(cpu_plan(1), tmp_path, limit_s=5)
    session.run()
    assert session.laps == []
    late = [name for name, why in session.not_run.items() if "were left" in why]
    assert len(late) == len(candidates()) == 4
    assert "not run: reference: a lap takes perhaps 10 s" in capsys.readouterr().out


def ceiling() -> Ceiling:
    products = (Product(size=8192, tflops=800),)
    return Ceiling(device="cuda", dtype="bf16", products=products, copy_gb_per_s=4000)


def lap(candidate: str, start: Start, wall_s: float, step_ms: float, peak_gib: float) -> Lap:
    spec = trial_spec(config=gpu_plan("cuda", 1).config)
    backend = "reference" if candidate == "reference" else "torch"
    result = trial_ok(spec, step_ms=step_ms, peak_mem_gib=peak_gib, backend=backend)
    return Lap(candidate=candidate, start=start, wall_s=wall_s, result=result)


@pytest.fixture
def task(tmp_path: Path) -> Task:
    corpus = random_corpus(tmp_path / "corpora", vocab_size=50257, longest_seq_len=1024)
    return Task(gpu_plan("cuda", 1).config, corpus, "cuda", 60, tmp_path)


@pytest.mark.parametrize(
    ("step_ms", "peak_gib", "warm_s", "verdicts"),
    [
        (88.0, 14.0, 12.0, [True, True, True, True, False]),
        (120.0, 20.0, 14.0, [False, True, False, True, False]),
        (140.0, 14.0, 15.0, [False, False, True, True, False]),
    ],
)
def test_goals_are_judged_by_medians(
    task: Task, step_ms: float, peak_gib: float, warm_s: float, verdicts: list[bool]
) -> None:
    laps = [
        lap("torch bf16", "cold", 90.0, step_ms * 3, peak_gib),
        lap("torch bf16", "warm", warm_s, step_ms, peak_gib),
        lap("torch bf16", "warm", warm_s, step_ms, peak_gib),
        lap("reference", "cold", 24.0, 200.0, 30.0),
        lap("megatron bf16", "warm", 18.0, 100.0, 15.0),
    ]
    ranks = standings(laps, task, ceiling())
    found = figures(ranks, task, ceiling())
    assert [figure.met for figure in found if figure.goal] == verdicts
    named = {figure.name: figure for figure in found}
    cold = named["spec to val_bpb, the reference over torch bf16, both cold"]
    assert cold.value == pytest.approx(24 / 90)
    other = named["megatron bf16 over torch bf16"]
    assert other.value == pytest.approx(step_ms / 100)
    assert "over the reference 2.00 × tokens/s, 0.50 × peak, 1.33 ×" in other.note


def test_the_goals_are_about_what_a_campaign_runs_by_default(task: Task) -> None:
    laps = [
        lap("megatron bf16", "warm", 10.0, 50.0, 10.0),
        lap("torch bf16", "warm", 18.0, 100.0, 16.0),
        lap("reference", "cold", 24.0, 200.0, 30.0),
    ]
    found = figures(standings(laps, task, ceiling()), task, ceiling())
    assert all("torch bf16" in figure.name for figure in found if figure.goal)
    assert [figure.met for figure in found if figure.goal] == [False, True, False, False]


def test_the_default_is_the_menus_and_the_settings() -> None:
    menu = load_menu("spark-354m")
    settings = CampaignSettings.model_fields
    backend = settings["backend"].default
    assert f"{backend} {menu.baseline.precision}" == DEFAULT
    assert DEFAULT in {one.name for one in candidates() if one.is_judged}
