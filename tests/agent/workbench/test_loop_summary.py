"""Check how ``loop --json`` reports a campaign's scores."""

from __future__ import annotations

from agent.workbench.conclusion import believed_scores
from tests.support.places import ROOT
from trainer.spec import BPB, Measure
from trajectory.evidence import Evidence
from trajectory.journal import read_rows
from trajectory.ranking import top

ROWS = list(read_rows(ROOT / "docs/night/trajectory.jsonl"))


def test_the_believed_scores_are_those_of_top_and_not_means_of_lucky_runs() -> None:
    evidence = Evidence(ROWS)
    said, (best, *_) = believed_scores(evidence, BPB), top(evidence, 1)
    assert said["incumbent"]["config_hash"] == best.config_hash
    assert said["incumbent"]["score"] == best.objective != best.mean_objective
    assert said["incumbent"]["score_lo"] == best.objective_lo
    assert said["gain"]["score"] == best.delta_vs_baseline
    assert said["baseline"]["iter"] == 0
    assert said["baseline"]["score"] + said["gain"]["score"] == said["incumbent"]["score"]


def test_a_score_that_is_to_grow_is_shown_as_it_is() -> None:
    evidence, accuracy = Evidence(ROWS), Measure(unit="accuracy", direction="maximise")
    said, turned = believed_scores(evidence, BPB), believed_scores(evidence, accuracy)
    assert turned["direction"] == "maximise"
    assert turned["incumbent"]["score"] == -said["incumbent"]["score"]
    assert turned["gain"]["score"] == -said["gain"]["score"] > 0
    ends = turned["gain"]["score_lo"], turned["gain"]["score_hi"]
    assert 0 < ends[0] < turned["gain"]["score"] < ends[1]


def test_nothing_is_said_before_anything_was_measured() -> None:
    said = believed_scores(Evidence(ROWS[:1]), BPB)
    assert (said["baseline"], said["incumbent"], said["gain"]) == (None, None, None)
