import math
import random
from collections.abc import Callable
from dataclasses import replace
from statistics import stdev

import pytest

from agent.judge import assess
from agent.search.race import MARGIN_NATS, MARGIN_SDS, Race, prune_rule
from tests.support.configs import config
from tests.support.races import run_race
from tests.support.rows import baseline_row, campaign_row, failed, iteration_row, ok, trial
from trainer.schema import Budget, Config, CurvePoint, PruneRule, TrialFailed, TrialOk
from trajectory.evidence import Evidence
from trajectory.ranking import Noise
from trajectory.rows import BaselineRow, Decision, Role, Rules, TrialRecord

RULES = Rules(z_keep=1.7, z_drop=0.9, max_runs=3)
REFERENCE, CANDIDATE = config(), config(lr=2e-3)
Score = Callable[[Config, int], TrialOk | TrialFailed]


@pytest.fixture(autouse=True)
def noise(monkeypatch: pytest.MonkeyPatch) -> None:
    known = Noise(sigma=0.05, dof=4, sigma_d=0.05)
    monkeypatch.setattr(Noise, "of", lambda _evidence: known)


class Scored:
    """Run trials by looking up their results."""

    def __init__(self, score: Score) -> None:
        self._score = score
        self._number = 100
        self.curves: dict[str, list[CurvePoint]] = {}

    def curve(self, trial_id: str) -> list[CurvePoint]:
        return self.curves.get(trial_id, [])

    async def run(
        self, of: Config, seed: int, role: Role, prune: PruneRule | None = None
    ) -> TrialRecord:
        self._number += 1
        return trial(self._number, of, seed, self._score(of, seed), role)


def race_of(evidence: Evidence, runner: Scored) -> Race:
    return Race(
        trial=runner.run,
        curve=runner.curve,
        evidence=evidence,
        rules=RULES,
        reference=REFERENCE,
        reference_now=lambda: REFERENCE,
        candidate=CANDIDATE,
        first_seed=0,
        prune=None,
    )


def decide(score: Score) -> Decision:
    evidence = Evidence([campaign_row(), trial_of_the_reference(1, 99)])
    return run_race(race_of(evidence, Scored(score)))


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
    assert decision.max_runs == RULES.max_runs
    assert decision.reference_hash == REFERENCE.config_hash


def test_a_race_that_its_reference_leaves_open_says_so_and_changes_nothing() -> None:
    gains = {0: 0.02, 1: 0.06}

    def score(of: Config, seed: int) -> TrialOk | TrialFailed:
        return ok(4.2 - gains[seed] if of == CANDIDATE else 4.2) if seed in gains else failed()

    decision = decide(score)
    assert decision.explanation == (
        "-0.0400 bpb (se 0.0354) on 2 common seeds: undecided, since the reference failed on every "
        "seed that was left"
    )
    assert (decision.action, decision.pairs, decision.max_runs) == ("discard", 2, RULES.max_runs)
    assert decision.pairs_ss == pytest.approx(2 * 0.02**2)
    none_at_all = decide(lambda of, seed: failed())
    assert (none_at_all.action, none_at_all.pairs) == ("discard", 0)
    assert "undecided" in none_at_all.explanation


LUCKY = {0: 0.0512, 1: 0.0717, 2: 0.0692, 3: 0.0835, 4: 0.0781}


@pytest.mark.parametrize("score", [0.0534, 0.0536, 0.0554, 0.0568])
def test_one_lucky_run_of_the_reference_discards_nobody(
    score: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """These runs, of a script whose seeds share nothing, are better than the baseline's mean, and
    worse than its first run."""
    evidence = Evidence(
        [campaign_row(), *(baseline_row(seed + 1, of, seed) for seed, of in LUCKY.items())]
    )
    sigma = stdev(LUCKY.values())
    monkeypatch.setattr(Noise, "of", lambda _evidence: Noise(sigma, 4, math.sqrt(2) * sigma))
    runner = Scored(lambda _of, _seed: ok(score))
    race = replace(race_of(evidence, runner), rules=Rules())
    assert run_race(race).action == "keep"
    assert [one.seed for one in race.trials][:2] == [1, 2], "the median, then its neighbor"


def test_known_pairs_come_first_then_the_runs_that_cost_least() -> None:
    scores = {0: 4.4, 3: 4.1, 5: 4.2}
    evidence = Evidence(
        [campaign_row(), *(baseline_row(seed + 1, of, seed) for seed, of in scores.items())]
    )
    race = race_of(evidence, Scored(lambda _of, _seed: ok(4.2)))
    assert race.seeds() == [5, 0, 3, 1, 2, 4]
    race = replace(race, _scores={1: 4.0, 3: 4.0})
    assert race.seeds() == [3, 1, 5, 0, 2, 4]


def trial_of_the_reference(number: int, seed: int) -> BaselineRow:
    """Return the row of a run of the baseline that failed on this seed."""
    row = baseline_row(number, 4.2, seed)
    return row.model_copy(update={"trial": trial(number, REFERENCE, seed, failed(), "baseline")})


def point(loss: float) -> CurvePoint:
    return CurvePoint(step=1, tokens=64, loss=loss, lr=1e-3, grad_norm=1.0, elapsed_s=0.1)


@pytest.mark.parametrize(("ours", "runs"), [(5.25, 1), (5.2500001, 2), (None, 2)])
def test_a_change_without_effect_is_run_once_or_twice(ours: float | None, runs: int) -> None:
    """Once if its curve is the reference's, twice if only its scores are."""
    rows = [campaign_row(), *(baseline_row(n + 1, 4.2, n) for n in range(4))]
    evidence = Evidence(rows)
    runner = Scored(lambda of, seed: ok(4.2))
    runner.curves = {"t000002": [point(5.25)]} | ({"t000101": [point(ours)]} if ours else {})
    race = race_of(evidence, runner)
    decision = run_race(race)
    assert len(race.trials) == runs
    assert (decision.no_effect, decision.pairs) == (True, runs)
    row = iteration_row(1, CANDIDATE, tuple(race.trials), decision=decision)
    evidence.add(row)
    assert evidence.configs[CANDIDATE.config_hash].same_as == REFERENCE.config_hash


@pytest.mark.parametrize(("gain", "action"), [(-0.01, "keep"), (0.0, "discard"), (0.01, "discard")])
def test_one_pair_decides_where_every_run_is_the_same(gain: float, action: str) -> None:
    sure = Noise(sigma=0.0, dof=1, sigma_d=0.0)
    found = assess({0: 4.2 + gain}, {0: 4.2}, sure, RULES, reference_hash="0" * 64, certain=True)
    assert isinstance(found, Decision)
    assert (found.action, found.pairs) == (action, 1)


SIXTY = Budget(unit="steps", amount=60)


def curve(offset: float, steps: int = 60, noise: float = 0.0, seed: int = 0) -> list[CurvePoint]:
    """Return a curve whose loss falls from 7 to about 4 as 1/step."""
    rng = random.Random(seed)
    return [
        CurvePoint(
            step=step,
            tokens=step * 1024,
            loss=4 + 3 / step + offset + rng.gauss(0, noise),
            lr=1e-3,
            grad_norm=1.0,
            elapsed_s=step * 0.05,
        )
        for step in range(1, steps + 1)
    ]


LEVEL = sum(4 + 3 / step for step in range(16, 21)) / 5
TOKENS = Budget(unit="tokens", amount=60 * 1024)
SPARSE = [point for point in curve(0.0) if point.step % 10 == 1]


@pytest.mark.parametrize(
    ("curves", "batch_size", "budget", "rule"),
    [
        ([curve(0.0), curve(0.2)], 8, SIXTY, (20, 5, LEVEL + 0.1 + MARGIN_SDS * 0.2 / 2**0.5)),
        ([curve(0.0), curve(0.0)], 8, SIXTY, (20, 5, LEVEL + MARGIN_NATS)),
        ([curve(0.0), curve(0.0)], 4, TOKENS, (40, 10, LEVEL + MARGIN_NATS)),
        ([curve(0.0)], 8, SIXTY, None),
        ([[], curve(0.0)], 8, SIXTY, None),
        ([SPARSE, SPARSE], 8, SIXTY, None),
        ([curve(0.0), curve(0.0)], 8, Budget(unit="seconds", amount=10), None),
        ([curve(0.0, 6), curve(0.0, 6)], 8, Budget(amount=6), None),
    ],
)
def test_the_rule_is_at_a_third_of_the_budget_with_the_stated_margin(
    curves: list[list[CurvePoint]],
    batch_size: int,
    budget: Budget,
    rule: tuple[int, int, float] | None,
) -> None:
    found = prune_rule(curves, config(), config(batch_size=batch_size), budget)
    assert (found and (found.at_step, found.window, found.max_loss)) == (
        rule and pytest.approx(rule)
    )


def test_a_replicate_of_the_reference_is_never_hopeless() -> None:
    rng = random.Random(3)
    references = [curve(rng.gauss(0, 0.05), noise=0.05, seed=n) for n in range(5)]
    rule = prune_rule(references, config(), config(), SIXTY)
    assert rule is not None
    for n in range(1000):
        seen = curve(rng.gauss(0, 0.05), noise=0.05, seed=100 + n)[15:20]
        assert sum(point.loss for point in seen) / 5 < rule.max_loss
