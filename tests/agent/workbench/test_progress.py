"""Check that the screen reports slow trials once, and is silent otherwise."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from agent.search.stopping import Goal
from agent.workbench.progress import Pace, Progress
from tests.support.configs import config
from tests.support.rows import iteration_row, ok, trial
from trajectory.evidence import Tally
from trajectory.rows import TrialRecord


def record(step_ms: float, lr: float = 1e-3, **changes: Any) -> TrialRecord:
    return trial(1, config(lr=lr), 0, ok(4.2, step_ms=step_ms, **changes))


def test_slow_trials_of_one_config_are_told_of_once() -> None:
    pace = Pace()
    assert [pace.ended(record(ms)) for ms in (40, 45, 100, 130)] == [None] * 4
    told = pace.ended(record(200))
    assert told is not None
    assert told.startswith("trials take 5.0 times as long as before (200 ms a step, 40 before): ")
    assert "--threads 1" in told
    assert "load" in told
    assert pace.ended(record(300)) is None
    assert pace.ended(record(50)) is None
    assert pace.ended(record(300)) is None
    assert pace.ended(record(300)) is not None, "slow again"


def test_another_config_may_take_longer_by_its_size() -> None:
    pace = Pace()
    pace.ended(record(40, params=1_000_000))
    for number in range(5):
        larger = record(40 * 20, lr=1e-4 * (1 + number), params=10_000_000)
        assert pace.ended(larger) is None, "twice as slow for its size"
    told = [pace.ended(record(400, lr=2e-3 + n * 1e-4, params=1_000_000)) for n in range(2)]
    assert told[0] is None
    assert told[1] is not None


def test_a_refused_proposal_amid_long_races_does_not_hide_them() -> None:
    campaign: Any = SimpleNamespace(evidence=SimpleNamespace(tally=Tally(iterations=5)))
    progress = Progress(campaign, Goal(hours=1.0))
    assert "an hour" not in progress.line()
    for number, (at, wall_s) in enumerate([("00:59", 1.0), *[("01:00", 60.0)] * 4], start=1):
        row = iteration_row(number, config(lr=1e-3 * number), ())
        changes = {"at": f"2026-01-01T00:{at}.000+00:00", "wall_s": wall_s, "lanes": 4}
        progress.ended(row.model_copy(update=changes))
    assert "· 300 an hour" in progress.line(), "5 in a minute"
