"""Repeats, knobs and times of other tools' loops agree with their published figures."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from agent.cli import app
from agent.menu.files import load_menu
from tests.support.published_loop import KEPT, write_published_loop
from trajectory.formats.foreign import ForeignRun
from trajectory.formats.imported import read_imported
from trajectory.formats.importing import import_campaign
from trajectory.formats.standings import Retold


def retold(path: Path, campaign: Path, knobs: list[str] | None = None) -> Retold:
    import_campaign(path, campaign)
    return Retold.of(read_imported(campaign).runs, knobs)


def test_the_published_night_is_told_as_it_was_published(tmp_path: Path) -> None:
    night = write_published_loop(tmp_path / "trajectory.jsonl")
    found = retold(night, tmp_path / "c", list(load_menu("spark-354m").knobs))
    assert found.repeats is not None
    assert found.repeats.model_dump() == {"proposals": 50, "repeats": 36, "distinct": 14}
    assert found.touched == {
        "d_model": 24,
        "n_head": 15,
        "d_ff": 5,
        "lr": 3,
        "beta2": 2,
        "beta1": 1,
    }
    assert set(found.untouched) == {
        "n_layer",
        "lr_warmup",
        "grad_clip",
        "weight_decay",
        "batch_size",
        "seq_len",
        "precision",
    }
    assert found.total_s == pytest.approx(73.4 * 60, abs=6)
    assert found.mean_s["iter_wall_s"] == pytest.approx(88.1, abs=0.05)
    assert found.mean_s["train_wall_s"] == pytest.approx(85.8, abs=0.05)
    assert found.mean_s["nim_latency_s"] == pytest.approx(1.2, abs=0.05)
    runs = read_imported(tmp_path / "c").runs
    assert tuple(run.iter for run in runs if run.action == "keep") == KEPT


def test_the_same_knob_at_another_value_is_no_repeat() -> None:
    def run(number: int, **changes: object) -> ForeignRun:
        return ForeignRun.model_validate(
            {"line": number, "iter": number, "status": "no proposal", "changes": changes}
        )

    found = Retold.of([run(1, lr=1), run(2, lr=2), run(3, lr=1), run(4, beta1=1)])
    assert found.repeats is not None
    assert (found.repeats.repeats, found.repeats.distinct) == (1, 3)
    assert found.total_s is None


def test_a_results_tsv_has_neither_and_that_is_said(tmp_path: Path) -> None:
    path = tmp_path / "results.tsv"
    path.write_text(
        "commit\tval_bpb\tmemory_gb\tstatus\tdescription\n"
        "a1b2c3d\t0.9979\t44.0\tkeep\tbaseline\n"
        "b2c3d4e\t0.9932\t44.2\tkeep\tincrease LR to 0.04\n"
    )
    done = CliRunner().invoke(app, ["import", str(path), "--campaign", str(tmp_path / "c")])
    assert done.exit_code == 0, done.output
    assert "time      unknown" in done.output
