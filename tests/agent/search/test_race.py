"""Check that every decision records its rules, even when nothing could be compared."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from agent.judge import assess
from agent.search.race import Race
from tests.support.configs import config
from tests.support.races import run_race
from tests.support.rows import baseline_row, campaign_row, failed, iteration_row, ok, trial
from trainer.spec import Config, CurvePoint, PruneRule, TrialFailed, TrialOk
from trajectory.evidence import Evidence
from trajectory.ranking import Noise
from trajectory.rows import Decision, Role, TrialRecord
from trajectory.rules import Rules

RULES = Rules(z_keep=1.7, z_drop=0.9, max_runs=3)
REFERENCE, CANDIDATE = config(), config(lr=2e-3)
Score = Callable[[Config, int], TrialOk | TrialFailed]


class Scored:
    """Run trials by looking up their results."""

    def __init__(self, score: Score) -> None:
        self._score = score
        self._number = 100
        self.curves: dict[str, list[CurvePoint]] = {}

    def curve(self, trial_id: str) -> list[CurvePoint]:
        return self.curves.get(trial_id, [])

    def run(self, of: Config, seed: int, role: Role, prune: PruneRule | None = None) -> TrialRecord:
        self._number += 1
        return trial(self._number, of, seed, self._score(of, seed), role)


def race_of(evidence: Evidence, runner: Scored) -> Race:
    return Race(
        curve=runner.curve,
        evidence=evidence,
        noise=lambda: Noise(sigma=0.05, dof=4, sigma_d=0.05),
        rules=RULES,
        reference=REFERENCE,
        candidate=CANDIDATE,
        first_seed=0,
        prune=None,
    )


def decide(score: Score) -> Decision:
    evidence = Evidence([campaign_row(), baseline_row(1, 4.2, 7), baseline_row(2, 4.3, 8)])
    runner = Scored(score)
    return run_race(race_of(evidence, runner), runner.run).decision


@pytest.mark.parametrize(
    ("score", "says"),
    [
        (lambda of, seed: failed() if of == CANDIDATE else ok(4.2), "failed on seed 0"),
        (lambda of, seed: failed(), "failed on every seed"),
        (lambda of, seed: ok(4.0 if of == CANDIDATE else 4.2), "better"),
        (lambda of, seed: ok(4.4 if of == CANDIDATE else 4.2), "not better"),
    ],
)
def test_the_rules_are_in_every_decision(score: Score, says: str) -> None:
    decision = decide(score)
    assert says in decision.explanation
    assert decision.rules == RULES.model_dump()
    assert decision.reference_hash == REFERENCE.config_hash


def test_a_race_that_its_reference_leaves_open_says_so_and_changes_nothing() -> None:
    gains = {0: 0.02, 1: 0.06}

    def score(of: Config, seed: int) -> TrialOk | TrialFailed:
        return ok(4.2 - gains[seed] if of == CANDIDATE else 4.2) if seed in gains else failed()

    decision = decide(score)
    assert decision.explanation == (
        "-0.0400 ± 0.0354 bpb on 2 common seeds: undecided, since the reference failed on every "
        "seed that was left"
    )
    assert (decision.action, decision.pairs, decision.rules) == ("discard", 2, RULES.model_dump())
    assert decision.pairs_ss == pytest.approx(2 * 0.02**2)
    none_at_all = decide(lambda of, seed: failed())
    assert (none_at_all.action, none_at_all.pairs) == ("discard", 0)
    assert "undecided" in none_at_all.explanation


def point(loss: float) -> CurvePoint:
    return CurvePoint(step=1, tokens=64, loss=loss, lr=1e-3, grad_norm=1.0, elapsed_s=0.1)


@pytest.mark.parametrize(
    ("ours", "runs", "says"),
    [(5.25, 1, "no effect: the same curve"), (5.2500001, 2, "not better"), (None, 2, "not better")],
)
def test_a_change_without_effect_ends_after_one_run(
    ours: float | None, runs: int, says: str
) -> None:
    rows = [campaign_row(), *(baseline_row(n + 1, 4.2, n) for n in range(4))]
    evidence = Evidence(rows)
    runner = Scored(lambda of, seed: ok(4.2))
    runner.curves = {"t000001": [point(5.25)]} | ({"t000101": [point(ours)]} if ours else {})
    outcome = run_race(race_of(evidence, runner), runner.run)
    assert len(outcome.trials) == runs
    assert says in outcome.decision.explanation
    assert outcome.decision.no_effect is (runs == 1)
    if runs == 1:
        row = iteration_row(1, CANDIDATE, outcome.trials, decision=outcome.decision)
        evidence.add(row)
        assert evidence.configs[CANDIDATE.config_hash].same_as == REFERENCE.config_hash


@pytest.mark.parametrize(("gain", "action"), [(-0.01, "keep"), (0.0, "discard"), (0.01, "discard")])
def test_one_pair_decides_where_every_run_is_the_same(gain: float, action: str) -> None:
    sure = Noise(sigma=0.0, dof=1, sigma_d=0.0)
    found = assess({0: 4.2 + gain}, {0: 4.2}, sure, RULES, reference_hash="0" * 64, certain=True)
    assert isinstance(found, Decision)
    assert (found.action, found.pairs) == (action, 1)
