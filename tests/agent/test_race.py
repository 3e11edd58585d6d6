"""Every decision says by which rules it was made, also where nothing could be compared."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from agent.judge import Rules
from agent.race import Race
from tests.support.configs import config
from tests.support.rows import baseline_row, campaign_row, failed, ok, trial
from trainer.spec import Config, PruneRule, TrialFailed, TrialOk
from trajectory.evidence import Evidence
from trajectory.ranking import Noise
from trajectory.rows import Decision, Role, TrialRecord

RULES = Rules(z_keep=1.7, z_drop=0.9, max_runs=3)
REFERENCE, CANDIDATE = config(), config(lr=2e-3)
Score = Callable[[Config, int], TrialOk | TrialFailed]


class Scored:
    """Runs trials by looking their results up."""

    def __init__(self, score: Score) -> None:
        self._score = score
        self._number = 100

    def run(self, of: Config, seed: int, role: Role, prune: PruneRule | None = None) -> TrialRecord:
        self._number += 1
        return trial(self._number, of, seed, self._score(of, seed), role)


def decide(score: Score) -> Decision:
    evidence = Evidence([campaign_row(), baseline_row(1, 4.2, 7), baseline_row(2, 4.3, 8)])
    race = Race(
        runner=Scored(score),
        evidence=evidence,
        noise=Noise(sigma=0.05, dof=4, sigma_d=0.05),
        rules=RULES,
        reference=REFERENCE,
        candidate=CANDIDATE,
        first_seed=0,
        prune=None,
    )
    return race.run().decision


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
    assert (decision.z_keep, decision.z_drop, decision.max_runs) == (1.7, 0.9, 3)
    assert decision.reference_hash == REFERENCE.config_hash
