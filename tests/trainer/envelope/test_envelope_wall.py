"""If the GPU shares the machine's memory, a sweep stops before a config that would not fit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.support.envelopes import GB10_VOCAB, failed, gb10_base, point, settings
from tests.trainer.envelope.test_envelope import Machine, Watched
from trainer.envelope import Cell, EnvelopeSettings, Wall, cells, sweep


def unified_settings(**changes: Any) -> EnvelopeSettings:
    """Return the settings of the published GB10 envelope."""
    named = {"menu": "spark-354m", "base": gb10_base(), "vocab_size": GB10_VOCAB}
    return settings(**{**named, "backend": "megatron", "device": "cuda", **changes})


def test_a_sweep_stops_at_the_last_point_before_the_wall(tmp_path: Path) -> None:
    """On a machine of 30 GiB the published GB10 points up to 25.65 GiB fit, and 49.24 does not."""
    grid, machine = cells([2, 4, 8, 16], [2048], ["bf16"]), Machine()
    wall = Wall(unified_settings(), limit_gib=30)
    points = sweep(unified_settings(), grid, tmp_path, machine, Watched(), wall=wall)
    assert [p.status for p in points] == ["ok", "ok", "ok", "beyond"]
    assert len(machine.specs) == 3, "the last was not run"
    assert "GiB are predicted and 30.0 are available" in points[-1].message
    # Without a wall it runs past the limit.
    points = sweep(unified_settings(), grid, tmp_path, machine, Watched())
    assert [p.status for p in points] == ["ok", "ok", "ok", "ok"]
    assert len(machine.specs) == 4


def test_the_wall_is_where_the_measured_line_says_if_that_is_nearer() -> None:
    """A backend may take more than the estimate, as a first version of a new one may."""
    near, far = Cell("bf16", 1024, 8), Cell("bf16", 1024, 4)
    wall = Wall(unified_settings(), limit_gib=30)
    assert wall.why_beyond(near, ()) is None
    measured = [
        point(batch_size=b, seq_len=1024, precision="bf16", peak_mem_gib=8.0 * b) for b in (1, 2)
    ]
    assert "64.0 GiB are predicted" in (wall.why_beyond(near, measured) or "")
    assert "32.0 GiB are predicted" in (wall.why_beyond(far, measured) or "")


def test_what_a_smaller_step_ran_out_of_a_larger_one_does_not_try() -> None:
    wall = Wall(unified_settings(), limit_gib=1000)
    ran_out = failed(batch_size=2, seq_len=1024, precision="bf16", status="oom")
    assert "ran out of memory already" in (wall.why_beyond(Cell("bf16", 1024, 4), [ran_out]) or "")
    assert wall.why_beyond(Cell("bf16", 512, 2), [ran_out]) is None
    assert wall.why_beyond(Cell("fp8", 1024, 4), [ran_out]) is None, "of another precision"


def test_a_trial_of_the_sweep_keeps_the_reserve_that_was_asked_for(tmp_path: Path) -> None:
    machine = Machine()
    sweep(settings(), cells([1], [16], ["fp32"]), tmp_path, machine, Watched(), reserve_gib=3)
    assert [spec.limits.reserve_gib for spec in machine.specs] == [3]


def test_compiled_blocks_meet_the_wall_earlier_than_the_backends_own_kernels() -> None:
    cell = Cell("bf16", 1024, 16)
    eager, compiled = (
        Wall(unified_settings(backend="torch", compile=compiles), limit_gib=15)
        for compiles in (False, True)
    )
    assert eager.why_beyond(cell, ()) is None
    assert "GiB are predicted" in (compiled.why_beyond(cell, ()) or "")
