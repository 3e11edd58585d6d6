"""The page of a campaign that maximizes its score."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from tests.support.reports import findings, simulated
from trainer.spec import Measure
from trajectory.report.report import render


def test_no_score_is_shown_negated_and_a_gain_is_positive(tmp_path: Path) -> None:
    found = findings(tmp_path, simulated(30))
    scoring = Measure(unit="accuracy", direction="maximise")
    # The measured 2.5, negated: as if the command had printed minus 2.5.
    about = replace(found.about, measure="accuracy", scoring=scoring)
    page = render(replace(found, about=about), (), (), datetime.now(UTC))
    best = found.best[0]
    assert f"<b>\N{MINUS SIGN}{best.objective:.4f}</b>" in page
    assert best.delta is not None
    assert f"<b>+{-best.delta:.4f}</b>" in page or best.delta >= 0
    assert "positive is better" in page
    assert "negative is better" not in page
    assert not re.search("minus accuracy", page)
