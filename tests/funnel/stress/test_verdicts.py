"""Verdicts on a command's runs, whose curve is what the command prints."""

from __future__ import annotations

import pytest

from funnel.stress.detectors import judge_run
from trainer.spec import CommandOk, CurvePoint


@pytest.mark.parametrize(
    ("printed", "ended_elsewhere"),
    [
        (range(0, 201, 10), False),
        (range(0, 200, 30), False),
        (range(200), False),
        (range(0, 61, 10), True),
        (range(0, 401, 10), True),
        ([], False),
    ],
)
def test_a_script_that_ignores_the_requested_length_fails(
    printed: range, *, ended_elsewhere: bool
) -> None:
    curve = [CurvePoint(step=step, loss=2 - step / 1000, elapsed_s=1.0) for step in printed]
    result = CommandOk(
        score=1.0, direction="minimise", steps=None, train_s=1.0, setup_s=0.1, peak_mem_gib=0.1
    )
    verdict = judge_run(curve, result, steps=200, warmup=0)
    assert (verdict.outcome == "failed") is ended_elsewhere
