"""Repeats, knobs and times of other tools' loops agree with their published figures."""

from __future__ import annotations

from pathlib import Path

import pytest

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
    assert len(found.untouched) == 7
    assert {"n_layer", "lr_warmup"} <= set(found.untouched)
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
