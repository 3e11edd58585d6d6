"""Test the lines that a screen shows about lanes."""

from __future__ import annotations

import pytest

from agent.workbench.lane_board import LaneBoard
from tests.support.trials import trial_spec
from trainer.spec import Place


def test_the_board_says_what_runs_where_and_how_much_of_the_time() -> None:
    clock = [100.0]
    board = LaneBoard(lambda: clock[0])
    assert not board.has_several
    for number in (1, 2, 3):
        board.started(trial_spec(trial_id=f"t{number:06d}"), "candidate")
    board.placed("t000001", Place(lane="0"))
    board.placed("t000002", Place(lane="10"))
    assert board.waiting == 1
    clock[0] = 110.0
    assert board.utilisation == pytest.approx(1.0)
    board.left("t000001", 10.0)
    clock[0] = 120.0
    assert board.utilisation == pytest.approx((10 + 20) / 40)
    assert [(lane, shown is not None) for lane, shown in board.by_lane()] == [
        ("0", False),
        ("10", True),
    ]
    assert board.summary() == "2 lanes, 75% in use for 20 s, 1 waiting"
    board.left("t000003")
    assert board.waiting == 0
