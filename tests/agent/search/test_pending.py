"""Check that iterations in flight are read back after a stop as far as they are still valid."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from agent.search.iterations import PendingFiles, PendingIteration
from tests.support.configs import config
from trajectory.proposals import Proposal, ProposerRecord, Verdict

TURN = PendingIteration(
    iter=7,
    reference_hash=config().config_hash,
    proposer=ProposerRecord(kind="sampler"),
    proposal=Proposal(changes={"lr": 2e-3}, reason="faster"),
    verdict=Verdict(allowed=True),
    config=config(lr=2e-3),
    wall_s=1.5,
    until=100,
    began=12.25,
)


def test_another_sitting_reads_all_of_it_but_the_clock_it_began_by(tmp_path: Path) -> None:
    PendingFiles(tmp_path).write(TURN)
    assert PendingFiles(tmp_path).read() == {7: TURN.model_copy(update={"began": None})}
    assert "began" not in json.loads((tmp_path / "in_flight" / "000007.json").read_text("utf-8"))


@pytest.mark.parametrize("text", ["", "{", "[]", '{"iter": 7}'])
def test_what_cannot_be_read_was_not_in_flight(text: str, tmp_path: Path) -> None:
    files = PendingFiles(tmp_path)
    files.write(TURN.model_copy(update={"iter": 8}))
    (tmp_path / "in_flight" / "000007.json").write_text(text, "utf-8")
    assert list(files.read()) == [8]


def test_a_file_under_another_number_was_not_in_flight(tmp_path: Path) -> None:
    files = PendingFiles(tmp_path)
    files.write(TURN)
    folder = tmp_path / "in_flight"
    (folder / "000009.json").write_bytes((folder / "000007.json").read_bytes())
    assert list(files.read()) == [7]


def test_each_has_its_own_file_until_it_ended(tmp_path: Path) -> None:
    files = PendingFiles(tmp_path)
    assert files.read() == {}
    for number in (9, 7, 1_000_000):
        files.write(TURN.model_copy(update={"iter": number}))
    assert list(files.read()) == [7, 9, 1_000_000]
    files.clear(9)
    files.clear(9)
    assert list(files.read()) == [7, 1_000_000]
