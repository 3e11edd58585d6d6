"""Check that each prediction in the results' table is the accounting's current value."""

from __future__ import annotations

import pytest

from bench.gpu_predictions import HEADING, RESULTS, lines, table, with_table


@pytest.mark.slow
def test_the_results_hold_the_predictions_of_today() -> None:
    results = RESULTS.read_text("utf-8")
    assert results.count(HEADING) == 1
    assert with_table(results, table()) == results


def test_every_goal_has_a_prediction_that_a_measurement_can_falsify() -> None:
    by_goal = {line.goal: line.prediction for line in lines()}
    goals = [goal for goal in by_goal if "≥" in goal or "≤" in goal]
    assert len(goals) == 4
    assert all(any(sign.isdigit() for sign in by_goal[goal]) for goal in goals)


def test_only_the_sections_own_table_is_replaced() -> None:
    results = f"# Results\n\n{HEADING}\n\nWords.\n\n| goal | old |\n| x |\n\n## After\n\nkept\n"
    assert with_table(results, "| goal | new |\n") == (
        f"# Results\n\n{HEADING}\n\nWords.\n\n| goal | new |\n\n## After\n\nkept\n"
    )
