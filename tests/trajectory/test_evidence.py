"""Test evidence: grown by rows, and read from the journal or the index."""

import math
import random
import re
import subprocess
import sys
from fractions import Fraction
from pathlib import Path
from typing import TypeAlias

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoresearch.errors import JournalError
from tests.support.configs import config
from tests.support.places import ROOT
from tests.support.rows import (
    Simulator,
    baseline_row,
    campaign_row,
    failed,
    iteration_row,
    ok,
    trial,
    write_journal,
)
from trainer.schema import Config
from trajectory.evidence import ConfigEvidence, Evidence
from trajectory.proposals import Attempt, ProposerRecord, Verdict
from trajectory.reading import Results
from trajectory.rows import Decision, FinalistsRow, Row, StressRow, TrialRecord
from trajectory.statistics.intervals import exact_parts

CONFIGS = [config(lr=1e-4 * (1 + i)) for i in range(5)]

Measurement: TypeAlias = tuple[Config, int, float | None]
"""Config, seed, and its val_bpb or None for a failure."""

measurement = st.tuples(
    st.sampled_from(CONFIGS), st.integers(0, 4), st.one_of(st.none(), st.floats(0.5, 9.0))
)


def rows_of(measurements: list[Measurement]) -> list[Row]:
    rows: list[Row] = [campaign_row(), baseline_row(1, 4.27, 0)]
    for number, (candidate, seed, score) in enumerate(measurements, start=1):
        result = failed() if score is None else ok(score)
        rows.append(iteration_row(number, candidate, (trial(number, candidate, seed, result),)))
    return rows


def assert_equal(one: Evidence, other: Evidence) -> None:
    assert list(one.configs.items()) == list(other.configs.items())
    assert vars(one) | {"_lent": ()} == vars(other) | {"_lent": ()}


@given(st.lists(measurement, max_size=40))
def test_sigma_pools_the_first_score_of_each_seed(measurements: list[Measurement]) -> None:
    evidence = Evidence(rows_of(measurements))
    scores: dict[int, dict[int, float]] = {}
    for of, seed, score in measurements:
        if score is not None:
            scores.setdefault(CONFIGS.index(of), {}).setdefault(seed, score)
    groups = [np.array(list(group.values())) for group in scores.values()]
    dof = sum(len(group) - 1 for group in groups)
    assert evidence.within_dof == dof
    if dof:
        squares = sum(((group - group.mean()) ** 2).sum() for group in groups)
        assert evidence.sigma == pytest.approx(math.sqrt(squares / dof), rel=1e-12, abs=1e-12)
    else:
        assert evidence.sigma is None


def test_sigma_does_not_drift_over_many_updates() -> None:
    rng = random.Random(0)
    evidence = Evidence([campaign_row()])
    for number in range(1, 4001):
        candidate = config(lr=1e-4 + 1e-8 * (number % 400))
        score = rng.gauss(4.27, 1e3 if number <= 400 else 1e-6) if number % 400 else 1e7
        result = ok(max(score, 1e-6))
        evidence.add(iteration_row(number, candidate, (trial(number, candidate, number, result),)))
    squares = sum(Fraction(entry.sum_of_squares) for entry in evidence.configs.values())
    assert evidence.sigma == math.sqrt(float(squares) / evidence.within_dof)


@given(st.lists(st.floats(-1e200, 1e200), max_size=30), st.lists(st.floats(-1e9, 1e9), max_size=5))
def test_parts_of_a_sum_are_exact_in_any_order(terms: list[float], more: list[float]) -> None:
    parts = exact_parts(terms)
    assert sum(map(Fraction, parts)) == sum(map(Fraction, terms))
    assert exact_parts((*more, *parts)) == exact_parts([*terms[::-1], *more])
    assert exact_parts([*parts, *(-term for term in terms)]) == ()


def test_a_seed_trained_twice_counts_once() -> None:
    first, again = trial(2, CONFIGS[0], 7, ok(4.2)), trial(3, CONFIGS[0], 7, ok(4.1, train_s=1.0))
    evidence = Evidence([iteration_row(1, CONFIGS[0], (first, again))])
    entry = evidence.configs[CONFIGS[0].config_hash]
    assert entry.scores == {7: 4.2}
    assert entry.trial_ids == {7: "t000002"}
    assert entry.train_s == pytest.approx(2.659 + 1.0)
    assert evidence.sigma is None


def test_a_refused_repeat_does_not_undo_a_keep() -> None:
    kept = iteration_row(
        1, CONFIGS[0], (trial(1, CONFIGS[0], 0, ok(4.0)),), decision=Decision(action="keep")
    )
    refused = iteration_row(
        2, CONFIGS[0], verdict=Verdict(allowed=False, rail="novelty", why="already tried")
    )
    evidence = Evidence([kept, refused])
    assert evidence.configs[CONFIGS[0].config_hash].action == "keep"
    assert evidence.incumbent_hash == CONFIGS[0].config_hash
    assert evidence.iterations == 2


def test_a_config_refused_by_the_rails_is_no_evidence() -> None:
    refused = iteration_row(
        1, CONFIGS[1], verdict=Verdict(allowed=False, rail="memory", why="8 GiB")
    )
    assert Evidence([refused]).configs == {}


def test_refusals_count_each_refused_proposal_once() -> None:
    no = Verdict(allowed=False, rail="range", why="lr 3 is too high")
    attempts = (Attempt(raw="a", verdict=no), Attempt(raw="b", verdict=no))
    record = ProposerRecord(kind="llm", attempts=attempts)
    fell_back = ProposerRecord(kind="sampler", attempts=attempts, fallback="two refusals")
    both = [
        iteration_row(1, None, verdict=no, proposer=record),
        iteration_row(2, None, verdict=no, proposer=fell_back),
    ]
    assert Evidence(both).refusals == {"range": 2 + 3}


def test_races_pool_their_paired_differences() -> None:
    races = [
        Decision(action="discard", pairs=3, pairs_ss=0.02),
        Decision(action="discard", pairs=1, pairs_ss=0.0),
        Decision(action="keep", pairs=4, pairs_ss=0.03),
    ]
    evidence = Evidence(
        iteration_row(i, CONFIGS[0], (trial(i, CONFIGS[0], i, ok(4.2)),), decision=decision)
        for i, decision in enumerate(races, start=1)
    )
    assert (evidence.races_ss, evidence.races_dof) == (0.05, 5)


def test_a_trial_of_a_config_nobody_described_names_the_trial() -> None:
    stranger: TrialRecord = trial(8, CONFIGS[2], 0, ok(4.1), "reference")
    with pytest.raises(JournalError, match="t000008"):
        Evidence([iteration_row(1, CONFIGS[0], (stranger,))])


def test_changes_and_reason_are_those_that_first_proposed_it() -> None:
    entry: ConfigEvidence = Evidence(
        [
            iteration_row(1, CONFIGS[0], (trial(1, CONFIGS[0], 0, ok(4.2)),), reason="first"),
            iteration_row(2, CONFIGS[0], (trial(2, CONFIGS[0], 1, ok(4.1)),), reason="again"),
        ]
    ).configs[CONFIGS[0].config_hash]
    assert (entry.iter, entry.reason, entry.changes) == (1, "first", {"lr": 0.002})


def test_a_snapshot_stays_as_it_was_while_rows_go_on_coming() -> None:
    rows = list(Simulator(5).rows(60))
    half = len(rows) // 2
    evidence = Evidence(rows[:half])
    snapshot = evidence.snapshot()
    for row in rows[half:]:
        evidence.add(row)
    assert_equal(snapshot, Evidence(rows[:half]))
    assert_equal(evidence, Evidence(rows))
    assert list(evidence.configs) == list(Evidence(rows).configs), "in the order first seen"


def test_results_are_those_of_the_rows(tmp_path: Path) -> None:
    journal = tmp_path / "trajectory.jsonl"
    rows = write_journal(journal, Simulator(6).rows(30, stress_every=4))
    results = Results(journal)
    assert_equal(results.evidence, Evidence(rows))
    assert results.campaign == rows[0]
    stress = [row for row in rows if isinstance(row, StressRow)]
    assert results.newest(StressRow) == stress[::-1]
    assert results.newest(StressRow, 2) == stress[:-3:-1]
    text = journal.read_text()
    listed = re.findall(r'"trial_ids":\[([^]]*)\]', text)
    named = set(re.findall(r'"trial_id":"(t\d+)"', text)) | set(re.findall(r"t\d+", str(listed)))
    assert results.trial_ids == named
    for name, entry in results.evidence.configs.items():
        found = results.measurements(name)
        assert {trial.seed: trial.objective for trial in found} == entry.scores
        assert all(trial.config_hash == name and trial.role != "stress" for trial in found)


def test_long_runs_change_no_evidence() -> None:
    rows = list(Simulator(5).rows(30, stress_every=4))
    short = [row for row in rows if not isinstance(row, StressRow | FinalistsRow)]
    assert len(rows) - len(short) > 15
    assert_equal(Evidence(rows), Evidence(short))


def test_results_load_no_database() -> None:
    code = "import sys, agent.commands.campaign_view; sys.exit('sqlalchemy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False, cwd=ROOT).returncode == 0
