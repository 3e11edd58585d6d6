import json
import os
import signal
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agent.search.iterations import PendingFiles, PendingIteration
from agent.search.stopping import Goal
from autoresearch.errors import CampaignError
from tests.support.configs import config
from tests.support.nights import work
from trajectory.proposals import Proposal, ProposerRecord, Verdict
from trajectory.queue import add, queued_in, withdraw

PROCESSES, EACH, KILLS = 10, 20, 50


def in_child(work: Callable[[], object]) -> int:
    """Run it in a forked process and return how that ended."""
    child = os.fork()
    if not child:
        try:
            work()
        finally:
            os._exit(1 if sys.exc_info()[0] else 0)
    return os.waitpid(child, 0)[1]


def killed_at(operation: int, directory: Path, work: Callable[[], object]) -> int:
    """Run it in a process that is killed at its n-th operation on a file of the directory."""

    def killed() -> None:
        seen = 0

        def count(event: str, arguments: tuple[Any, ...]) -> None:
            nonlocal seen
            if event in {"open", "os.rename", "os.remove", "os.mkdir"}:
                seen += str(arguments[0]).startswith(str(directory))
                if seen == operation:
                    os.kill(os.getpid(), signal.SIGKILL)

        sys.addaudithook(count)
        work()

    return in_child(killed)


def proposal(number: int) -> Proposal:
    """Return the n-th of many different edits."""
    return Proposal(changes={"lr": 1e-4 * 1.02**number}, reason=f"number {number}")


def rows(directory: Path) -> list[dict[str, Any]]:
    lines = (directory / "campaign" / "trajectory.jsonl").read_bytes().splitlines()
    found = [json.loads(line) for line in lines]
    return [row for row in found if row["kind"] == "iteration"]


@pytest.mark.slow
def test_each_proposal_of_ten_processes_is_taken_once_across_50_kills(tmp_path: Path) -> None:
    work(tmp_path, Goal(iterations=1), baseline_seeds=2)
    campaign = tmp_path / "campaign"

    def propose(process: int) -> None:
        for number in range(EACH):
            add(campaign, proposal(process * EACH + number), f"process {process}")

    children = []
    for process in range(PROCESSES):
        child = os.fork()
        if not child:
            try:
                propose(process)
            finally:
                os._exit(1 if sys.exc_info()[0] else 0)
        children.append(child)
    goal = Goal(iterations=1 + PROCESSES * EACH + 3)
    kills = 0
    for kill in range(KILLS):
        # Each place in the sequence of an iteration's files is met: 29 shares no factor with it.
        ended = killed_at(
            60 + kill * 29 % 97, campaign, lambda: work(tmp_path, goal, baseline_seeds=2)
        )
        kills += os.WIFSIGNALED(ended) and os.WTERMSIG(ended) == signal.SIGKILL
    for child in children:
        assert os.waitpid(child, 0)[1] == 0
    work(tmp_path, goal, baseline_seeds=2)

    found = rows(tmp_path)
    taken = Counter(row["proposer"].get("queue_id") for row in found)
    assert kills == KILLS
    assert taken.pop(None) == 4, "the proposer's own: one before and three after"
    assert (len(taken), set(taken.values())) == (PROCESSES * EACH, {1})
    authors = Counter(row["proposer"].get("author") for row in found)
    assert all(authors[f"process {number}"] == EACH for number in range(PROCESSES))
    assert sorted(row["iter"] for row in found) == list(range(1, goal.iterations + 1))
    assert queued_in(campaign) == []


def test_only_what_is_queued_and_legible_is_taken_and_a_refusal_has_a_row(tmp_path: Path) -> None:
    work(tmp_path, Goal(iterations=1), baseline_seeds=2)
    campaign = tmp_path / "campaign"
    first = add(campaign, proposal(1), "ada")
    damaged = add(campaign, proposal(2), "ada")
    (campaign / "queue" / f"{damaged.id}.json").write_text("{")
    refused = add(campaign, Proposal(changes={"no_such_knob": 1}, reason=""), "ada")
    twice = [add(campaign, proposal(3), "ada") for _ in range(2)]
    loud = add(campaign, proposal(4), "ada")
    text = json.loads((campaign / "queue" / f"{loud.id}.json").read_text())
    text["proposal"]["reason"] = "w" * 100_000
    (campaign / "queue" / f"{loud.id}.json").write_text(json.dumps(text))
    withdraw(campaign, first.id)
    with pytest.raises(CampaignError):
        withdraw(campaign, first.id)
    for name in ("../campaign.toml", "", "*"):
        with pytest.raises(CampaignError):
            withdraw(campaign, name)
    work(tmp_path, Goal(iterations=6), baseline_seeds=2)
    by_id = {row["proposer"].get("queue_id"): row for row in rows(tmp_path)}
    assert by_id.keys() == {None, refused.id, *(one.id for one in twice), loud.id}
    verdicts = [by_id[one.id]["verdict"] for one in (refused, *twice, loud)]
    assert [one["allowed"] for one in verdicts] == [False, True, False, False]
    assert [one["rail"] for one in verdicts] == ["menu", None, "novelty", "schema"]
    with pytest.raises(CampaignError):
        withdraw(campaign, twice[0].id)


def test_lanes_take_proposals_too(tmp_path: Path) -> None:
    work(tmp_path, Goal(iterations=1), lanes=3, baseline_seeds=2)
    queued = [add(tmp_path / "campaign", proposal(number), "ada").id for number in range(6)]
    work(tmp_path, Goal(iterations=8), lanes=3, baseline_seeds=2)
    taken = Counter(row["proposer"].get("queue_id") for row in rows(tmp_path))
    assert taken == {None: 2, **dict.fromkeys(queued, 1)}


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


def test_each_legible_file_under_its_own_number_is_in_flight(tmp_path: Path) -> None:
    files, folder = PendingFiles(tmp_path), tmp_path / "in_flight"
    assert files.read() == {}
    for number in (9, 7, 1_000_000):
        files.write(TURN.model_copy(update={"iter": number}))
    assert list(files.read()) == [7, 9, 1_000_000]
    for number, text in enumerate(("", "{", "[]", '{"iter": 13}'), start=10):
        (folder / f"{number:06d}.json").write_text(text, "utf-8")
    (folder / "000020.json").write_bytes((folder / "000007.json").read_bytes())
    for _ in range(2):
        files.clear(9)
    assert list(files.read()) == [7, 1_000_000]
