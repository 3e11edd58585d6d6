"""Eligibility of configs for the ranking of ``top``."""

from __future__ import annotations

from tests.support.configs import config
from tests.support.measured import rows_of
from tests.support.rows import iteration_row, ok, trial
from trainer.spec import Config
from trajectory.evidence import Evidence, Unranked
from trajectory.ranking import top
from trajectory.rows import Decision

A, B, C, D = (config(lr=lr) for lr in (1e-3, 2e-3, 3e-3, 4e-3))


def test_what_failed_on_any_seed_is_not_ranked_but_for_the_baseline() -> None:
    scores = {A: [4.3, 4.2, None], B: [None], C: [3.25, 3.3, 3.2, None], D: [4.25]}
    evidence = Evidence(rows_of(scores))
    assert {line.config for line in top(evidence, 10)} == {A, D}
    assert Unranked.of(evidence) == Unranked(failed=1, same=0)


def test_what_trained_exactly_like_another_is_that_one() -> None:
    scores: dict[Config, list[float | None]] = {A: [4.3, 4.4, 4.2, 4.3], B: [3.0, 3.4, 3.4, 3.4]}
    written = list(rows_of(scores))
    for number in range(6):
        copy = config(lr=3e-3, weight_decay=0.01 * (number + 1))
        same = Decision(action="discard", reference_hash=B.config_hash, no_effect=True)
        once = trial(90 + number, copy, 0, ok(3.0))
        written.append(iteration_row(2 + number, copy, (once,), decision=same))
    evidence = Evidence(written)
    assert [line.config for line in top(evidence, 10)] == [B, A]
    assert Unranked.of(evidence) == Unranked(failed=0, same=6)
    assert not str(Unranked.of(Evidence(rows_of(scores))))
