"""Long runs yield worst verdicts, uncertainties, finalists and the test of the ranking."""

import math
from itertools import pairwise

import pytest

from tests.support.configs import config
from tests.support.present import known
from tests.support.rows import (
    at,
    baseline_row,
    campaign_row,
    failed,
    iteration_row,
    ok,
    stress_row,
    trial,
)
from trainer.schema import TrialFailed
from trajectory import ranking
from trajectory.evidence import Evidence
from trajectory.longruns import SEVERITY, LongNoise, finalists, gather, ranking_test, standing
from trajectory.rows import FinalistsRow, Row, StressRow

BASELINE = config()
CONFIGS = [config(lr=1e-3 * (i + 2)) for i in range(6)]
OUT_OF_MEMORY = TrialFailed(status="oom", message="killed by the kernel's out-of-memory killer")


def rows(*scores: tuple[object, dict[int, float]]) -> list[StressRow]:
    """Return the rows of long runs, newest first."""
    made = [
        stress_row(100 + number, of, seed, score)  # type: ignore[arg-type]
        for number, (of, by_seed) in enumerate(scores)
        for seed, score in by_seed.items()
    ]
    return made[::-1]


def test_runs_are_gathered_by_config_and_length_and_a_seed_counts_once() -> None:
    newest_first = [
        stress_row(4, BASELINE, 900, 3.0),
        stress_row(3, BASELINE, 900, 9.0),
        stress_row(2, BASELINE, 901, 3.4),
        stress_row(1, BASELINE, 900, 5.0, steps=300),
    ]
    (runs,) = gather(newest_first, 1000).values()
    assert runs.scores == {900: 3.0, 901: 3.4}
    assert runs.mean_objective == pytest.approx(3.2)
    assert gather(newest_first, 300)[BASELINE.config_hash].scores == {900: 5.0}


def test_a_config_is_as_good_as_its_worst_run() -> None:
    for mild, severe in pairwise(SEVERITY):
        pair = [
            stress_row(1, BASELINE, 900, outcome=mild),
            stress_row(2, BASELINE, 901, outcome=severe),
        ]
        (runs,) = gather(pair, 1000).values()
        assert runs.verdict.outcome == severe


def test_two_by_two_by_hand() -> None:
    a, b = CONFIGS[:2]
    runs = gather(rows((a, {900: 3.0, 901: 3.2}), (b, {900: 3.1, 901: 3.5})), 1000)
    noise = LongNoise.of(runs.values())
    # Within: (0.1² + 0.1²) + (0.2² + 0.2²), 2 degrees of freedom. Residuals: ±0.05 in each cell.
    assert noise.sigma_run == pytest.approx(math.sqrt(0.1 / 2))
    assert noise.sigma_e == pytest.approx(math.sqrt(4 * 0.05**2 / 1))
    found = known(standing(runs[a.config_hash], noise, runs[b.config_hash]))
    assert found.delta_vs_baseline == pytest.approx(-0.2)
    # The differences are -0.1 and -0.3: their sd over sqrt(2) is 0.1.
    assert found.delta_stderr == pytest.approx(0.1)
    assert found.stderr == pytest.approx(math.sqrt(0.1 / 2 / 2))


def test_one_seed_tells_no_noise() -> None:
    runs = gather(rows((BASELINE, {900: 3.0}), (CONFIGS[0], {900: 2.9})), 1000)
    noise = LongNoise.of(runs.values())
    assert noise == LongNoise()
    found = known(standing(runs[CONFIGS[0].config_hash], noise, runs[BASELINE.config_hash]))
    assert (found.stderr, found.delta_stderr, found.pairs) == (None, None, 1)


def test_a_diverged_run_is_no_noise() -> None:
    quiet = rows((BASELINE, {900: 3.0, 901: 3.1}), (CONFIGS[0], {900: 2.9, 901: 3.0}))
    wild = [
        stress_row(9, CONFIGS[1], 900, 3.0),
        stress_row(10, CONFIGS[1], 901, 900.0, outcome="diverges"),
    ]
    assert LongNoise.of(gather(quiet + wild, 1000).values()) == LongNoise.of(
        gather(quiet, 1000).values()
    )


def test_finalists_stand_best_first_whatever_they_were_run_for() -> None:
    a, b, c, d = CONFIGS[:4]
    long = [
        stress_row(1, a, 900, 3.3),
        stress_row(2, b, 900, 3.1, outcome="spikes"),
        stress_row(3, c, 900, 2.0, outcome="plateaus"),
        stress_row(4, d, 900, failed(), outcome="nonfinite"),
        stress_row(5, BASELINE, 900, 3.2, purpose="baseline"),
    ]
    runs = gather(long, 1000)
    candidates = [of.config_hash for of in (a, b, c, d, BASELINE)]
    found = finalists(runs, candidates, 3, BASELINE.config_hash)
    assert [f.config_hash for f in found] == [of.config_hash for of in (b, BASELINE, a)]
    assert [f.delta_vs_baseline for f in found] == pytest.approx([-0.1, None, 0.1])
    assert len(finalists(runs, candidates, 1, None)) == 1


def test_a_seed_s_luck_puts_no_finalist_before_another() -> None:
    a, b = CONFIGS[:2]
    effects = {900: -0.1, 901: -0.1, 902: 0.1, 903: 0.1}
    drawn = rows(
        (BASELINE, {seed: 3.0 + effect for seed, effect in effects.items()}),
        (a, {seed: 2.90 + effect for seed, effect in effects.items()}),
        (b, {seed: 2.91 + effects[seed] for seed in (900, 901)}),
    )
    runs = gather(drawn, 1000)
    names = [of.config_hash for of in (a, b)]
    found = finalists(runs, names, 2, BASELINE.config_hash)
    assert [one.config_hash for one in found] == names
    assert found[0].objective > found[1].objective
    noise = LongNoise.of(runs.values())
    assert noise.effects == pytest.approx(effects)
    levels = [runs[name].level(noise) for name in names]
    assert levels == pytest.approx([2.90, 2.91])
    assert runs[names[1]].long_score(noise) == pytest.approx(2.91)


def campaign(scores: list[float]) -> Evidence:
    first: list[Row] = [campaign_row(), baseline_row(1, 4.3, 0), baseline_row(2, 4.4, 1)]
    for number, (of, score) in enumerate(zip(CONFIGS, scores, strict=True), start=1):
        first.append(iteration_row(number, of, (trial(10 + number, of, 0, ok(score)),)))
    return Evidence(first)


def ended(steps: int = 1000) -> FinalistsRow:
    spread = tuple(of.config_hash for of in CONFIGS)
    return FinalistsRow(at=at(1), steps=steps, finalists=(), spread=spread)


def test_the_ranking_is_tested_by_what_the_spread_came_to() -> None:
    ranked = ranking.top(campaign([4.0, 4.1, 4.2, 4.3, 4.4, 4.5]), 10)
    long: list[StressRow] = [
        stress_row(i, of, 900, 3.0 + 0.1 * i) for i, of in enumerate(CONFIGS[:4])
    ]
    long.append(stress_row(8, CONFIGS[4], 900, failed(), outcome="nonfinite"))
    long.append(stress_row(9, CONFIGS[5], 900, OUT_OF_MEMORY, outcome="failed"))
    # Neither a config outside the spread nor a run of another length counts.
    long.append(stress_row(10, BASELINE, 900, 0.1))
    long.append(stress_row(11, CONFIGS[0], 900, 99.0, steps=300))
    found = known(ranking_test(ranked, long, [ended()]))
    assert (found.n, found.nonfinite, found.left_out) == (5, 1, 1)
    assert known(found.fidelity).kendall.value == pytest.approx(1.0)


def test_it_follows_the_ranking_as_the_campaign_goes_on() -> None:
    long = [stress_row(i, of, 900, 3.0 + 0.1 * i) for i, of in enumerate(CONFIGS)]
    rising, falling = [4.0, 4.1, 4.2, 4.3, 4.4, 4.5], [4.5, 4.4, 4.3, 4.2, 4.1, 4.0]
    for scores, expected in ((rising, 1.0), (falling, -1.0)):
        found = known(ranking_test(ranking.top(campaign(scores), 10), long, [ended()]))
        assert known(found.fidelity).spearman.value == pytest.approx(expected)


def test_the_latest_spread_is_the_one_and_without_one_there_is_no_test() -> None:
    without = FinalistsRow(at=at(3), steps=50, finalists=())
    found = known(ranking_test([], [], [without, ended(300), ended(1000)]))
    assert (found.steps, found.n, found.fidelity) == (300, 0, None)
    assert ranking_test([], [], [without]) is None
