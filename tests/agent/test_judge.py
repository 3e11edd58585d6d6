import math
import random
import re
from statistics import fmean, stdev
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.judge import Assessment, Undecided, assess
from tests.support.places import ROOT
from trajectory.ranking import Noise
from trajectory.rows import Decision, Rules

NOISE = Noise(sigma=0.06, dof=20, sigma_d=0.06)
"""A seed explains half of a run's variance."""


def judged(
    candidate: list[float], reference: list[float], rules: Rules | None = None
) -> Assessment:
    pairs = dict(enumerate(candidate)), dict(enumerate(reference))
    return assess(*pairs, NOISE, rules or Rules(), reference_hash="ref")


def test_numbers_are_those_of_the_paired_differences() -> None:
    decision = judged([4.0, 4.1, 3.9, 4.0], [4.2, 4.1, 4.2, 4.1])
    assert isinstance(decision, Decision)
    assert decision.pairs == 4
    assert decision.delta == pytest.approx(fmean([-0.2, 0.0, -0.3, -0.1]))
    assert decision.stderr == pytest.approx(0.06 / 2)
    assert decision.z == pytest.approx(0.15 / 0.03)
    assert decision.reference_objective == pytest.approx(4.15)
    assert decision.estimate_objective == pytest.approx(4.0)
    assert decision.pairs_ss == pytest.approx(0.0025 * 2 + 0.0225 * 2)


@pytest.mark.parametrize(
    ("sigma_d", "predicted"),
    [(0.0, 4.1), (0.06, (4.1 + 4.3) / 2), (0.06 * math.sqrt(2), 4.3), (0.2, 4.3)],
)
def test_a_lucky_run_of_the_reference_counts_as_far_as_its_seed_explains_it(
    sigma_d: float, predicted: float
) -> None:
    noise = Noise(sigma=0.06, dof=20, sigma_d=sigma_d)
    reference = {0: 4.1, 1: 4.4, 2: 4.4}
    assessment = assess({0: 4.0, 7: 1.0}, reference, noise, Rules(), reference_hash="ref")
    assert isinstance(assessment, Undecided)
    assert assessment.seen is not None
    assert assessment.seen.pairs == 1
    assert assessment.seen.reference_objective == pytest.approx(predicted)
    assert assessment.seen.delta == pytest.approx(4.0 - predicted)


@pytest.mark.parametrize("shared", [0.0, 0.5, 0.95])
@pytest.mark.parametrize("pairs", [1, 3])
def test_the_standard_error_is_that_of_the_difference(shared: float, pairs: int) -> None:
    noise = Noise(sigma=1.0, dof=20, sigma_d=math.sqrt(2 * (1 - shared)))
    rng, deltas = random.Random(3), []
    for _ in range(4000):
        seeds = [rng.gauss(0, math.sqrt(shared)) for _ in range(5)]
        own = math.sqrt(1 - shared)
        reference = {place: seed + rng.gauss(0, own) for place, seed in enumerate(seeds)}
        candidate = {place: seed + rng.gauss(0, own) for place, seed in enumerate(seeds[:pairs])}
        undecided = Rules(early_stopping_threshold=100, z_drop=100, max_runs=100, z_keep=100)
        assessment = assess(candidate, reference, noise, undecided, reference_hash="ref")
        assert isinstance(assessment, Undecided)
        assert assessment.seen is not None
        deltas.append(assessment.seen.delta)
    assert fmean(deltas) == pytest.approx(0, abs=4 * noise.stderr(pairs, 5) / math.sqrt(4000))
    assert stdev(deltas) == pytest.approx(noise.stderr(pairs, 5), rel=0.05)
    assert noise.stderr(pairs, 5) <= noise.sigma_d / math.sqrt(pairs)
    assert noise.stderr(pairs, pairs) == pytest.approx(noise.sigma_d / math.sqrt(pairs))


@pytest.mark.parametrize(
    ("candidate", "reference", "rules", "action"),
    [
        # A first pair has a bar of its own, whatever the rules of a keep are.
        ([4.12], [4.09], {}, "discard"),
        *[([4.10], [4.09], rules, "discard") for rules in ({}, {"z_keep": 3.5}, {"max_runs": 2})],
        *[([4.09], [4.09], rules, None) for rules in ({}, {"z_keep": 3.5}, {"max_runs": 2})],
        ([4.12], [4.09], {"early_stopping_threshold": 0.6}, None),
        ([4.08], [4.09], {"early_stopping_threshold": -0.3}, "discard"),
        ([3.0], [4.0], {}, None),  # however lucky its first run was
        ([3.8, 3.8], [4.0, 4.0], {}, "keep"),  # an obvious gain
        ([3.93, 3.93], [4.0, 4.0], {}, None),  # a gain at the bar needs the whole race
        ([3.93] * 4, [4.0] * 4, {}, "keep"),
        ([3.97] * 4, [4.0] * 4, {}, "discard"),  # z = 0.03 / (0.06 / 2) = 1.0
        ([4.0] * 4, [4.0] * 4, {"z_keep": 0.0}, "discard"),
    ],
)
def test_a_race_ends_when_enough_is_known(
    candidate: list[float], reference: list[float], rules: dict[str, Any], action: str | None
) -> None:
    assessment = judged(candidate, reference, Rules(**rules))
    assert getattr(assessment, "action", None) == action


def test_what_is_undecided_is_not_told_as_if_it_were_decided() -> None:
    undecided = judged([3.99, 4.08], [4.09, 4.09])
    assert isinstance(undecided, Undecided)
    assert undecided.explanation == "-0.0550 bpb (se 0.0424) on 2 common seeds: undecided so far"
    left = undecided.left_open("the power is gone")
    assert (left.action, left.pairs, left.z_keep) == ("discard", 2, Rules().z_keep)
    assert left.delta == pytest.approx(-0.055)


@given(
    st.lists(st.floats(1, 10), min_size=1, max_size=6),
    st.lists(st.floats(1, 10), min_size=1, max_size=6),
)
def test_a_keep_has_two_pairs_over_the_bar(candidate: list[float], reference: list[float]) -> None:
    decision = judged(candidate, reference)
    if isinstance(decision, Decision) and decision.action == "keep":
        assert decision.z is not None
        assert decision.stderr is not None
        assert decision.delta is not None
        assert decision.pairs >= 2
        assert decision.z >= 1.5
        assert -decision.delta >= 1.5 * decision.stderr * (1 - 1e-9)


def race(true_gain: float, rng: random.Random, rules: Rules) -> tuple[bool, int]:
    """Return whether a candidate of this true gain is kept against a reference of five runs, and
    the number of runs it took."""
    own = NOISE.sigma_d / math.sqrt(2)
    effects = [rng.gauss(0, math.sqrt(NOISE.sigma**2 - own**2)) for _ in range(5)]
    reference = {seed: 4.0 + effect + rng.gauss(0, own) for seed, effect in enumerate(effects)}
    candidate: dict[int, float] = {}
    for seed in range(rules.max_runs):
        candidate[seed] = 4.0 - true_gain + effects[seed] + rng.gauss(0, own)
        assessment = assess(candidate, reference, NOISE, rules, reference_hash="ref")
        if isinstance(assessment, Decision):
            return assessment.action == "keep", seed + 1
    raise AssertionError("a race must end by its last pair")


def test_useless_candidates_are_rarely_kept_and_cheap() -> None:
    rng = random.Random(1)
    outcomes = [race(0.0, rng, Rules()) for _ in range(4000)]
    assert fmean(kept for kept, _ in outcomes) < 0.067
    assert fmean(runs for _, runs in outcomes) < 2.6


def test_the_documented_power_of_the_race_is_what_it_has() -> None:
    text = (ROOT / "docs" / "decisions.md").read_text("utf-8")
    rows = re.findall(r"^\| ([−\d.]+) \| (\d+) % \| ([\d.]+) \|$", text, re.MULTILINE)
    assert len(rows) == 6
    for gain, percent, runs in rows:
        true_gain = float(gain.replace("−", "-")) * NOISE.sigma_d
        rng = random.Random(2)
        outcomes = [race(true_gain, rng, Rules()) for _ in range(4000)]
        assert 100 * fmean(kept for kept, _ in outcomes) == pytest.approx(float(percent), abs=2)
        assert fmean(runs for _, runs in outcomes) == pytest.approx(float(runs), abs=0.1)
