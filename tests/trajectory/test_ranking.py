"""The guarantees of ``top`` hold on average."""

import itertools
import math
import random
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.configs import config
from tests.support.measured import rows_of
from tests.support.present import known
from tests.support.rows import campaign_row, evidence_with, failed, iteration_row, ok, trial
from trainer.schema import Config, Measure, TrialFailed
from trajectory.evidence import ConfigEvidence, Evidence
from trajectory.journal import read_rows
from trajectory.ranking import Noise, Posteriors, Ranked, Unranked, top
from trajectory.report.ledger import Ledger
from trajectory.rows import Decision
from trajectory.statistics import crossed_effects
from trajectory.statistics.intervals import student_t
from trajectory.statistics.population import MIN_CONFIGS, Population, Posterior
from trajectory.statistics.standings import Estimates, interval

SIGMA = 0.056
ANY = config()


@dataclass(frozen=True)
class Simulated:
    """A campaign's configs, with the score that each would have over all possible seeds."""

    evidence: Evidence
    truth: dict[str, float]


def simulate(
    seed: int, *, good: int = 80, bad: int = 20, tau: float = 0.05, shared: float = 0.5
) -> Simulated:
    """Simulate config 0, replicated on five seeds, and configs that race it on the same ones.

    :param shared: the fraction of a run's variance that its seed causes.
    """
    rng = random.Random(seed)
    b = [rng.gauss(0, SIGMA * math.sqrt(shared)) for _ in range(5)]
    truth: dict[str, float] = {}
    entries: list[ConfigEvidence] = []
    for number in range(good + bad):
        mu = rng.gauss(4.25, tau) if number < good else 4.45 + rng.expovariate(2)
        entry = ConfigEvidence(ANY, f"{number}", number)
        for s in range(5 if number == 0 else 4):
            entry.scores[s] = mu + b[s] + rng.gauss(0, SIGMA * math.sqrt(1 - shared))
            if number and _delta(entry, entries[0]) > -0.3 * SIGMA:
                break
        truth[entry.config_hash] = mu
        entries.append(entry)
    within_ss = tuple(entry.sum_of_squares for entry in entries)
    dof = sum(entry.n - 1 for entry in entries)
    evidence = evidence_with(entries, baseline_hash="0", within_ss=within_ss, within_dof=dof)
    return Simulated(evidence, truth)


def _delta(entry: ConfigEvidence, baseline: ConfigEvidence) -> float:
    return fmean(score - baseline.scores[seed] for seed, score in entry.scores.items())


def holds(line: Ranked, truth: float) -> bool:
    return known(line.objective_lo) <= truth <= known(line.objective_hi)


CASES = {
    "as usual": {},
    "no bad ones": {"bad": 0},
    "many bad ones": {"good": 60, "bad": 40},
    "all nearly alike": {"tau": 0.02},
    "far apart": {"tau": 0.15},
    "a short night": {"good": 30, "bad": 8},
    "seeds share nothing": {"shared": 0.0},
    "seeds share most": {"shared": 0.9},
}


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_the_winner_scores_what_its_posterior_mean_says(case: str) -> None:
    promised, raw, covered = [], [], []
    for seed in range(25):
        simulated = simulate(seed, **CASES[case])  # type: ignore[arg-type]
        winner = top(simulated.evidence, 1)[0]
        lowest = min(simulated.evidence.configs.values(), key=lambda entry: entry.mean)
        truth = simulated.truth[winner.config_hash]
        promised.append(winner.objective - truth)
        raw.append(lowest.mean - simulated.truth[lowest.config_hash])
        covered.append(holds(winner, truth))
    assert abs(fmean(promised)) < 0.25 * SIGMA
    assert abs(fmean(promised)) < abs(fmean(raw)) + 0.1 * SIGMA
    assert fmean(covered) >= 0.85
    if case in {"as usual", "all nearly alike", "a short night"}:
        assert fmean(raw) < -0.25 * SIGMA  # the lowest mean itself is optimistic


def test_the_best_ten_are_covered_as_promised() -> None:
    covered = []
    for seed in range(20):
        simulated = simulate(seed)
        for line in top(simulated.evidence, 10):
            covered.append(holds(line, simulated.truth[line.config_hash]))
    assert 0.88 <= fmean(covered) <= 0.99


def test_a_population_is_recovered_from_many_configs() -> None:
    simulated = simulate(1, good=2000, bad=0, tau=0.07)
    entries = list(simulated.evidence.configs.values())[1::4]
    sigma = known(simulated.evidence.sigma)
    found = known(Population.fit(entries, sigma))
    shape = known(found.fit_.shape)
    middle = shape.weight @ shape.place
    spread = shape.weight @ ((shape.place - middle) ** 2 + shape.width**2)
    assert math.sqrt(spread) == pytest.approx(0.07, rel=0.25)
    # Races rerun lucky configs, so replicates scatter more, which is the conservative direction.
    assert 1 <= math.sqrt(found.fit_.sigma2) / (SIGMA / math.sqrt(2)) < 1.35
    assert sum(entry.mean <= found.cutoff for entry in entries) >= 490


def test_ruinous_configs_do_not_undo_the_shrinkage() -> None:
    calm, wild = simulate(3, bad=0), simulate(3, bad=0)
    for number in range(30):
        entry = ConfigEvidence(ANY, f"bad {number}", 100 + number, scores={0: 5.5 + number})
        wild.evidence.configs[entry.config_hash] = entry
    assert [line.config_hash for line in top(wild.evidence, 5)] == [
        line.config_hash for line in top(calm.evidence, 5)
    ]
    for one, other in zip(top(wild.evidence, 5), top(calm.evidence, 5), strict=True):
        assert one.objective == pytest.approx(other.objective, abs=1e-9)
    last = top(wild.evidence, 1000)[-1]
    assert last.objective == pytest.approx(last.mean_objective, abs=0.1)


def test_an_easy_seed_is_no_merit() -> None:
    entries = []
    rng = random.Random(0)
    for number in range(20):
        scores = {s: 4.2 + rng.gauss(0, 0.02) - (0.2 if s == 0 else 0) for s in range(4)}
        entries.append(ConfigEvidence(ANY, f"{number}", number, scores=scores))
    easy = ConfigEvidence(ANY, "easy", 21, scores={0: 4.0})
    within_ss = tuple(entry.sum_of_squares for entry in entries)
    evidence = evidence_with([*entries, easy], within_ss=within_ss, within_dof=60)
    assert min(evidence.configs.values(), key=lambda entry: entry.mean) is easy
    assert top(evidence, 1)[0].config_hash != "easy"


A, B, C, D = (config(lr=lr) for lr in (1e-3, 2e-3, 3e-3, 4e-3))


def ranked(scores: dict[Config, list[float | None]]) -> dict[Config, Ranked]:
    return {line.config: line for line in top(Evidence(rows_of(scores)), 10)}


def test_without_a_replicate_nothing_is_said_about_the_noise() -> None:
    lines = ranked({A: [4.3], B: [4.0]})
    assert list(lines) == [B, A]
    assert lines[B].objective_lo is lines[B].objective_hi is lines[B].delta_stderr is None
    assert lines[B].delta_vs_baseline == pytest.approx(-0.3)
    assert not lines[B].beats_baseline
    assert lines[B].objective == lines[B].mean_objective == 4.0


def test_few_configs_are_not_shrunk_and_have_students_t() -> None:
    lines = ranked({A: [4.30, 4.20, 4.25], B: [4.25, 4.15], C: [4.0, 3.9, 3.95]})
    sigma = math.sqrt(0.015 / 5)
    assert (lines[A].objective, lines[B].objective) == pytest.approx((4.25, 4.2))
    assert lines[B].objective_lo == pytest.approx(4.2 - 2.570582 * sigma / math.sqrt(2))
    assert lines[A].objective_hi == pytest.approx(4.25 + 2.570582 * sigma / math.sqrt(3))
    assert (lines[A].iter, lines[A].delta_vs_baseline, lines[A].beats_baseline) == (0, None, False)
    assert [lines[of].pairs for of in (A, B, C)] == [0, 2, 3]
    assert lines[C].delta_vs_baseline == pytest.approx(-0.3)
    stderr = sigma * math.sqrt(1 / 3 + 1 / 3)
    assert lines[C].delta_stderr == pytest.approx(stderr)
    assert lines[C].delta_hi == pytest.approx(-0.3 + 2.570582 * stderr)
    assert lines[C].beats_baseline
    assert not lines[B].beats_baseline


def test_the_baseline_s_own_runs_say_how_surely_it_is_known() -> None:
    calm, wild = simulate(11), simulate(11)
    scores = wild.evidence.configs["0"].scores
    for seed, push in zip(scores, (0.4, -0.4, 0.4, -0.4, 0.0), strict=True):
        scores[seed] += push
    widths = []
    for simulated in (calm, wild):
        line = top(simulated.evidence, 1)[0]
        low, high = known(line.delta_lo), known(line.delta_hi)
        assert low < (line.delta_vs_baseline or 0) < high
        widths.append(high - low)
    assert widths[1] > 3 * widths[0]


@pytest.mark.parametrize(
    ("score", "beats"), [(4.25 - 0.225, True), (4.25 - 0.223, False), (4.25 + 0.3, False)]
)
def test_a_mark_needs_the_whole_interval(score: float, beats: bool) -> None:
    noise = Noise(sigma=0.05, dof=10, sigma_d=0.05)
    baseline = ConfigEvidence(A, A.config_hash, 0, scores={0: 4.25})
    other = ConfigEvidence(B, B.config_hash, 1, scores={0: score})
    (line,) = Estimates({}, baseline, noise, None).standings([other], 1)
    assert line.beats_baseline is beats


def test_runs_without_any_noise_are_not_shrunk() -> None:
    scores: dict[Config, list[float | None]] = {
        config(lr=1e-3 + 1e-5 * i): [4.0 + i / 100] * 2 for i in range(MIN_CONFIGS + 2)
    }
    lines = ranked(scores)
    for line in lines.values():
        assert line.objective == line.objective_lo == line.objective_hi == line.mean_objective


def test_equal_configs_do_not_break_the_fit() -> None:
    scores: dict[Config, list[float | None]] = {
        config(lr=1e-3 + 1e-5 * i): [4.1, 4.2] for i in range(20)
    }
    for line in ranked(scores).values():
        assert line.objective == pytest.approx(4.15, abs=1e-3)
        assert known(line.objective_lo) < line.objective


def test_degrees_of_freedom_are_not_cut_to_whole_numbers() -> None:
    posterior = Posterior(0.0, ((1.0, 4.0), (1.0, 9.0)))
    dof = 2**2 / (1 / 4 + 1 / 9)
    assert dof % 1 > 0.05
    ends = known(interval(posterior))
    assert ends[1] == pytest.approx(student_t(0.975, dof) * math.sqrt(2))


@given(own=st.floats(0, 10), more=st.floats(0, 10), dof=st.floats(1, 200), others=st.floats(1, 200))
def test_less_data_never_looks_surer(own: float, more: float, dof: float, others: float) -> None:
    one, other = (
        Posterior(0.0, ((own + extra, dof), (1.0, others), (0.3, 3.0))).half_interval(0.95)
        for extra in (0.0, more)
    )
    assert other >= one * (1 - 1e-9)


def test_the_baseline_s_interval_is_its_own_and_no_difference_to_it_is_surer() -> None:
    simulated = simulate(11)
    lines = {line.config_hash: line for line in top(simulated.evidence, 1000)}
    scores = list(simulated.evidence.configs["0"].scores.values())
    baseline = lines.pop("0")
    own = student_t(0.975, 4) * stdev(scores) / math.sqrt(5) * (1 - 1e-9)
    assert known(baseline.objective_hi) - baseline.objective >= own
    for line in lines.values():
        assert line.delta_vs_baseline == pytest.approx(line.objective - baseline.objective)
        assert known(line.delta_hi) - known(line.delta_vs_baseline) >= own


LUCKY = [0.0512, 0.0717, 0.0692, 0.0835, 0.0781]


def test_one_common_seed_does_not_widen_the_intervals() -> None:
    """All forty configs were run on one seed, of which the baseline's five runs say how much one
    run may be off."""
    rng = random.Random(5)
    baseline, *others = (config(lr=1e-3 + 1e-5 * place) for place in range(41))
    scores: dict[Config, list[float | None]] = {baseline: [*LUCKY]}
    scores |= {of: [0.07 + rng.gauss(0, 0.0123)] for of in others}
    lines = {line.config: line for line in top(Evidence(rows_of(scores)), 41)}
    sd, t = stdev(LUCKY), student_t(0.975, 4)
    half = known(lines[baseline].objective_hi) - lines[baseline].objective
    assert half == pytest.approx(t * sd / math.sqrt(5))
    for of in others:
        assert t * sd < 2 * (known(lines[of].objective_hi) - lines[of].objective) < 3 * t * sd
        assert known(lines[of].delta_hi) - known(lines[of].delta_vs_baseline) < 1.6 * t * sd


def test_no_interval_reaches_beyond_what_a_score_can_be() -> None:
    scores: dict[Config, list[float | None]] = {A: [0.01, 0.05], B: [0.02]}
    begun, *rows = rows_of(scores)
    assert top(Evidence([begun, *rows]), 1)[0].objective_lo < 0  # type: ignore[operator]
    for direction, ends in (("minimise", (0.0, None)), ("maximise", (None, 0.0))):
        measure = Measure(unit="loss", direction=direction, low=0)  # type: ignore[arg-type]
        said = begun.model_copy(update={"measure": measure})
        posteriors = Posteriors.of(Evidence([said, *rows]))
        estimate = known(posteriors.baseline_estimate())
        for low, high in [
            (estimate.lo, estimate.hi),
            *((line.objective_lo, line.objective_hi) for line in posteriors.best(2)),
        ]:
            assert ends[0] is None or low == ends[0]
            assert ends[1] is None or high == ends[1]


def test_the_difference_to_the_next_is_sharper_than_either_s_interval() -> None:
    lines = top(simulate(11, shared=0.95).evidence, 1000)
    for line, following in itertools.pairwise(lines):
        delta, half = known(line.delta_vs_next), known(line.half_vs_next)
        assert delta == pytest.approx(line.objective - following.objective)
        is_baseline = "0" in {line.config_hash, following.config_hash}
        if not is_baseline and line.seeds == following.seeds:
            ends = known(line.objective_lo), known(line.objective_hi)
            assert half < (ends[1] - ends[0]) / 2
    assert lines[-1].delta_vs_next is lines[-1].half_vs_next is None
    (first,) = top(simulate(11, shared=0.95).evidence, 1)
    assert (first.delta_vs_next, first.half_vs_next) == (
        lines[0].delta_vs_next,
        lines[0].half_vs_next,
    )


def test_the_difference_of_two_configs_holds_its_interval() -> None:
    held = []
    for seed in range(12):
        simulated = simulate(100 + seed, shared=0.5)
        lines = [line for line in top(simulated.evidence, 40) if line.config_hash != "0"]
        for line, following in itertools.pairwise(lines):
            delta, half = known(line.delta_vs_next), known(line.half_vs_next)
            truth = simulated.truth
            apart = truth[line.config_hash] - truth[following.config_hash]
            held.append(abs(apart - delta) <= half)
    assert fmean(held) > 0.93


def test_the_demo_has_the_slope_that_is_told_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    journal = Path(__file__).parents[2] / "docs" / "demo" / "trajectory.jsonl"
    evidence = Evidence(read_rows(journal))
    slopes = []
    for sd in (crossed_effects.SLOPE_SD, 1000.0):
        monkeypatch.setattr(crossed_effects, "SLOPE_SD", sd)
        population = known(Posteriors.of(evidence).population)
        slopes.append(population.fit_.slope)
    assert slopes == [pytest.approx(4.1, abs=0.05), pytest.approx(7.2, abs=0.05)]


def test_noise_counts_races_once_there_are_any() -> None:
    sums = {"within_ss": (0.04,), "within_dof": 4, "races_ss": 0.06, "races_dof": 6}
    noise = known(Noise.of(evidence_with([], **sums)))
    assert noise.sigma == pytest.approx(0.1)
    assert noise.sigma_d == pytest.approx(math.sqrt((4 * 2 * 0.01 + 0.06) / 10))
    assert Noise.of(Evidence()) is None


def test_what_failed_on_any_seed_is_not_ranked_but_for_the_baseline() -> None:
    scores = {A: [4.3, 4.2, None], B: [None], C: [3.25, 3.3, 3.2, None], D: [4.25]}
    evidence = Evidence(rows_of(scores))
    assert {line.config for line in top(evidence, 10)} == {A, D}
    assert Unranked.of(evidence) == Unranked(failed=1, pruned=0, same=0)


def test_a_pruned_config_did_not_fail() -> None:
    result = TrialFailed(status="pruned", message="far behind", steps=20)
    pruned = iteration_row(1, B, (trial(50, B, 0, ok(4.4)), trial(51, B, 1, result)))
    rows = [*rows_of({A: [4.3, 4.2]}), pruned]
    assert Unranked.of(Evidence(rows)) == Unranked(failed=0, pruned=1, same=0)
    ledger = Ledger(campaign_row())
    alone = iteration_row(2, C, (trial(52, C, 0, result),))
    for row in (alone, iteration_row(3, D, (trial(53, D, 0, failed()),))):
        ledger.add(row)
    assert [one.outcome for one in ledger.iterations] == ["pruned", "failed"]


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
    assert Unranked.of(evidence) == Unranked(failed=0, pruned=0, same=6)
    assert not str(Unranked.of(Evidence(rows_of(scores))))
