"""What was in flight is read back as far as it holds after a stop."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from agent.search.pending import PendingFile, PendingIteration
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
    """That clock is of the process that is gone, so the energy since then cannot be known."""
    PendingFile(tmp_path).write(TURN)
    assert PendingFile(tmp_path).read(7) == TURN.model_copy(update={"began": None})
    assert "began" not in json.loads((tmp_path / "in_flight.json").read_text("utf-8"))


@pytest.mark.parametrize("text", ["", "{", "[]", '{"iter": 7}'])
def test_what_cannot_be_read_was_not_in_flight(text: str, tmp_path: Path) -> None:
    (tmp_path / "in_flight.json").write_text(text, "utf-8")
    assert PendingFile(tmp_path).read(7) is None


def test_another_iteration_was_not_in_flight_and_neither_was_one_that_ended(tmp_path: Path) -> None:
    file = PendingFile(tmp_path)
    file.write(TURN)
    assert file.read(8) is None
    file.clear()
    file.clear()
    assert file.read(7) is None
