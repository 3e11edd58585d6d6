import json

import pytest

from tests.support.campaigns import Toy
from trajectory.journal import read_rows
from trajectory.rows import ConfirmRow


@pytest.mark.slow
def test_a_search_ends_with_its_confirmation(toy: Toy) -> None:
    toy.begun(6)
    top = ("top", "--k=50", f"--campaign={toy.campaign}")
    before = toy.answer(*top)
    assert before["confirmed"] is None
    done = toy.loop(6, "--confirm", "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)["confirmed"]
    rows = read_rows(toy.campaign / "trajectory.jsonl")
    runs = [row for row in rows if isinstance(row, ConfirmRow)]
    assert len(runs) == 6 * (len(found["configs"]) + 1)
    used = {seed for entry in before["configs"] for seed in entry["seeds"]}
    assert {row.trial.seed for row in runs} == set(found["seeds"])
    assert not used & set(found["seeds"])
    assert {(row.trial.role, row.seeds) for row in runs} == {("confirm", 6)}
    for row in runs:
        result = row.trial.result
        assert result.status == "ok"
        assert [text.sha256 for text in result.texts] == [found["texts"][0]["sha256"]]
    # The mean paired difference on the search's own text, computed by hand.
    by = {(row.config_hash, row.trial.seed): row.trial.objective or 0.0 for row in runs}
    hashes = {bool(e["vs_baseline"]): e["config_hash"] for e in reversed(before["configs"])}
    chosen = found["configs"][0]
    assert chosen["config_hash"] == hashes[True]
    differences = [by[hashes[True], seed] - by[hashes[False], seed] for seed in found["seeds"]]
    assert chosen["gains"][0]["delta"] == pytest.approx(sum(differences) / 6)

    # The confirmation counts in no ranking, and the search's claim is shown beside it.
    after = toy.answer(*top)
    assert after["confirmed"] == found
    shown = {entry["config_hash"]: entry.pop("confirmed") for entry in after["configs"]}
    assert [entry | {"confirmed": None} for entry in after["configs"]] == before["configs"]
    claimed = shown[chosen["config_hash"]]["claimed"]
    assert claimed == before["configs"][0]["delta_vs_baseline"]
