"""A report on another tool's measurements states no more than its file does."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.reports import HOSTILE
from trajectory.formats.imported import read_imported
from trajectory.formats.importing import import_campaign
from trajectory.report.figures.coverage import coverage
from trajectory.report.figures.knob_effects import knob_effects
from trajectory.report.figures.progress import believed_steps
from trajectory.report.figures.time_and_energy import time_and_energy
from trajectory.report.findings import Findings
from trajectory.report.proposers import Proposers
from trajectory.report.reading.foreign_campaign import read_foreign_campaign
from trajectory.report.report import changed_text, write_report

BASE = {"lr": 3e-4, "n_layer": 24, "precision": "fp8"}


def line(number: int, stage: str, **more: Any) -> dict[str, Any]:
    proposal = {"knob": "lr", "new_value": 1e-3, "reason": HOSTILE[number % len(HOSTILE)]}
    return {
        "iter": number,
        "ts": "2026-01-05T22:00:00Z",
        "stage": stage,
        "proposal": proposal,
        **more,
    }


def measured(number: int, score: float, decision: str, **changes: Any) -> dict[str, Any]:
    return line(
        number,
        "evaluated",
        candidate_cfg={**BASE, **changes},
        eval_metrics={"val_bpb": score},
        val_bpb=score,
        decision=decision,
    )


LINES = [
    {"baseline_val_bpb": 5.2, "baseline_cfg": BASE, "accept_delta_frac": 0.005},
    measured(1, 5.10, "keep", lr=1e-3),
    measured(2, 5.16, "revert", lr=1e-3),
    line(3, "blocked", rail=HOSTILE[0], reason=HOSTILE[1]),
    line(4, "eval_failed", candidate_cfg={**BASE, "n_layer": 48}, reason="out of memory"),
    measured(5, 5.30, "revert", n_layer=12),
]


TABLE = (
    "commit\tval_bpb\tmemory_gb\tstatus\tdescription\n"
    "a1b2c3d\t0.997\t44.0\tkeep\tbaseline\n"
    "b2c3d4e\t0.990\t44.2\tkeep\tmore <b>heads</b>\n"
    "c3d4e5f\t0.000\t0.0\tcrash\ttoo wide\n"
)


def imported(folder: Path, text: str, name: str) -> Findings:
    file = folder / name
    file.write_text(text, "utf-8")
    import_campaign(file, folder / "campaign")
    return read_foreign_campaign(read_imported(folder / "campaign"))


@pytest.fixture
def found(tmp_path: Path) -> Findings:
    text = "".join(json.dumps(one) + "\n" for one in LINES)
    return imported(tmp_path, text, "trajectory.jsonl")


def test_scores_keep_the_name_of_what_they_are(found: Findings) -> None:
    assert found.about.measure == "val_bits_per_token"
    assert found.about.unit == "bits per token"
    assert [iteration.outcome for iteration in found.iterations] == [
        "keep",
        "discard",
        "refused",
        "failed",
        "discard",
    ]
    assert [iteration.mean for iteration in found.iterations] == [5.10, 5.16, None, None, 5.30]


def test_repeated_runs_give_the_noise_and_the_incumbent_is_not_its_luckiest_run(
    found: Findings,
) -> None:
    assert found.noise is not None
    assert found.noise.dof == 1
    assert believed_steps(found)[-1][1] == pytest.approx(5.13)
    assert found.stops.repeats == 1


def test_knobs_are_those_that_differ(found: Findings) -> None:
    assert [knob.name for knob in coverage(found).values] == ["lr", "n_layer"]
    lr = knob_effects(found).values["lr"]
    assert [value.label for value in lr] == ["0.0003", "0.001"]
    assert [value.is_default for value in lr] == [True, False]


def test_nothing_is_claimed_of_time_money_and_proposers(found: Findings, tmp_path: Path) -> None:
    assert time_and_energy(found) is None
    assert Proposers.of(found) is None
    page = write_report(found, tmp_path / "report").page.read_text("utf-8")
    assert "bits per token" in page
    assert "bits per byte" not in page
    assert "Another tool measured this" in page
    assert "<b>novelty" not in page
    assert 'onerror="' not in page


def test_a_table_without_configs_is_enough(tmp_path: Path) -> None:
    found = imported(tmp_path, TABLE, "results.tsv")
    page = write_report(found, tmp_path / "report").page.read_text("utf-8")
    assert found.about.measure == "val_bpb"
    assert "b2c3d4e" in page
    assert "<b>heads</b>" not in page
    assert [changed_text(iteration) for iteration in found.iterations] == [
        "a1b2c3d baseline",
        "b2c3d4e more <b>heads</b>",
        "c3d4e5f too wide",
    ]
    assert found.best[0].name == "b2c3d4e more <b>heads</b>"
