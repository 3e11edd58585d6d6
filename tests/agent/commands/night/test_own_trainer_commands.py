import json
from pathlib import Path

import pytest

from tests.support.in_process import run_here
from tests.support.simulated.commands import SimulatedOwn


@pytest.mark.slow
def test_what_the_record_is_asked_for_works_on_it(tmp_path: Path) -> None:
    own = SimulatedOwn(tmp_path)
    own.loop(8)
    here = f"--campaign={own.campaign}"
    assert own.rows("confirmed")
    shown = json.loads(own("report", here, "--json"))["summary"]["best"]
    assert 0 < shown["score_lo"] < shown["score"] < shown["score_hi"]
    page = (own.campaign / "report" / "report.html").read_text()
    assert "nats per point" in page
    assert "bits per byte" not in page
    own("stress", here, "--top=1", "--steps=200", "--seeds=1")
    # What needs the shape of a GPT is refused.
    own("handoff", here, "--target=llama-7b", code=1)
    for words in (("ladder", "--hours=1"), ("cost",), ("calibrate", "--fidelity")):
        refused = run_here((*words, here), own.checkout, own.env)
        assert (refused.returncode, refused.stderr.count("\n")) == (1, 1)
    for name in ("envelope", "compare"):
        own(name, "--menu=own.toml", code=1)
    own("attribute", here, "--seeds=1", "--steps=150")
    own("export", here, "--to=csv", "--out=t.csv")
    head, *lines = (own.checkout / "t.csv").read_text().splitlines()
    assert {"score", "config.lr", "config.l2"} <= set(head.split(","))
    assert len(lines) > 8
    own("export", here, "--to=jsonl", "--out=t.jsonl")
    own("import", "t.jsonl", "--campaign=runs/again")
    again = json.loads(own("top", "--campaign=runs/again", "--json"))
    assert again["configs"] == json.loads(own("top", here, "--json"))["configs"]
    own("reindex", here)
    own("calibrate", here, "--seeds=3")
    assert len(own.rows("baseline")) == 3


def test_what_is_to_grow_grows(tmp_path: Path) -> None:
    own = SimulatedOwn(tmp_path, what="accuracy", unit="accuracy")
    own.loop(6)
    best = json.loads(own("top", "--json"))["configs"]
    assert best[0]["objective"] <= best[-1]["objective"] < 0  # objectives: the sign is flipped
    assert 0 < best[0]["score_lo"] < best[0]["score"] < best[0]["score_hi"]
    summary = json.loads(own("report", "--json"))["summary"]
    assert (summary["unit"], summary["direction"]) == ("accuracy", "maximise")
    assert summary["best"]["score"] == best[0]["score"] == -summary["best"]["objective"]
    assert 0 < summary["baseline"]["score_lo"] < summary["baseline"]["score"] < 1
    shown = [entry["score"] for entry in best]
    assert shown == sorted(shown, reverse=True)


def test_whether_runs_differ_is_measured_and_not_read_from_the_menu(tmp_path: Path) -> None:
    own = SimulatedOwn(tmp_path / "unmoved", runs_differ=False)
    own("loop", "--menu=own.toml", "--iters=4", "--baseline-seeds=4", "--set=max_runs=3")
    assert len(own.rows("baseline")) == 2
    raced = [row for row in own.rows("iteration") if row["trials"]]
    assert raced
    assert all(len(row["trials"]) == 1 for row in raced)
    assert {row["decision"]["action"] for row in raced} == {"keep", "discard"}
    own("confirm", "--campaign=runs/own", code=1)
    own.loop(5, "--baseline-seeds=4", "--set=max_runs=3")
    assert len(own.rows("baseline")) == 2

    # Runs that differ are confirmed though the menu passes no seed.
    own = SimulatedOwn(tmp_path / "unseeded")
    menu = own.checkout / "own.toml"
    menu.write_text(menu.read_text().replace('"--seed={seed}", ', ""))
    own("loop", "--menu=own.toml", "--iters=2", "--baseline-seeds=3", "--no-confirm")
    assert len({row["trial"]["result"]["score"] for row in own.rows("baseline")}) == 3
    own("confirm", "--campaign=runs/own", "--top=1", "--seeds=2")
    assert own.rows("confirmed")
