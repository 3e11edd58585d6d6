"""Check `propose` as a person runs it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.support.campaigns import installed
from tests.trajectory.live.server import simulated, write_campaign


def propose(directory: Path, *words: str) -> tuple[int, Any]:
    done = installed("propose", f"--campaign={directory}", "--json", *words)
    return done.returncode, json.loads(done.stdout) if done.stdout else None


def test_a_proposal_is_queued_listed_and_withdrawn_and_an_impossible_one_is_not(
    tmp_path: Path,
) -> None:
    directory = write_campaign(tmp_path / "c", simulated(6)).parent
    code, queued = propose(directory, "lr=0.00123", "--reason=a hunch", "--author=ada\x1b of X")
    assert (code, queued["author"]) == (0, "ada  of X")
    stored = json.loads((directory / "queue" / f"{queued['id']}.json").read_text())
    assert stored["proposal"]["changes"] == {"lr": 0.00123}

    before = sorted((directory / "queue").iterdir())
    for impossible in ("lr=fast", "no_such_knob=1"):
        assert propose(directory, impossible) == (1, None)
    assert sorted((directory / "queue").iterdir()) == before

    code, [listed] = propose(directory, "--list")
    assert (code, listed["id"], listed["state"]) == (0, queued["id"], "waiting")
    assert propose(directory, f"--withdraw={queued['id']}") == (0, {"withdrawn": queued["id"]})
    assert propose(directory, f"--withdraw={queued['id']}") == (1, None)
