"""Check that a campaign on one lane writes the rows it wrote before lanes existed."""

from __future__ import annotations

import json
from pathlib import Path

from tests.support.nights import rows_of
from trajectory.rules import Rules

BEFORE = Path(__file__).parent / "fixtures" / "one_lane.jsonl"
"""Rows written by the last version without lanes, without their clocks."""


def test_the_rows_are_those_of_before_to_the_last_bit(tmp_path: Path) -> None:
    before = [json.loads(line) for line in BEFORE.read_text("utf-8").splitlines()]
    rows = rows_of(
        tmp_path, 30, rules=Rules(z_drop=1.0, early_stopping_threshold=0.35)
    )  # as shipped then
    assert rows[0].pop("z_drop") == 1.0, "older first rows do not say it"
    for first in (rows[0], before[0]):  # the shipped menu has named its device since then
        del first["menu_toml"], first["menu_sha256"]
    assert [row["kind"] for row in rows] == [row["kind"] for row in before]
    for ours, theirs in zip(rows, before, strict=True):
        assert ours == theirs
    decided = [row["decision"] for row in before if row["kind"] == "iteration"]
    assert {one["action"] for one in decided} == {"keep", "discard"}
    assert {one["pairs"] for one in decided} == {1, 2, 3, 4}, "races of every length are among them"
