import math
from collections.abc import Mapping
from dataclasses import replace
from random import Random
from typing import Any

import numpy as np
import pytest

from agent.proposers.surrogate.observed import BEST, LATEST, Observed, Scores
from agent.proposers.surrogate.space import Space, near, shares
from autoresearch.domains.choices import OrderedChoices
from autoresearch.domains.ranges import RealRange, WholeRange
from autoresearch.values import Scalar
from tests.support.memories import MENU, fresh_memory
from tests.support.present import known
from tests.support.rows import evidence_with
from tests.support.rows import failed as failed_trial
from trajectory.evidence import ConfigEvidence, Evidence
from trajectory.ranking import Noise

SPACE = Space.of(MENU.domains)
BASELINE: Mapping[str, Scalar] = MENU.defaults


def apart(name: str, one: Scalar, other: Scalar) -> float:
    points_NP = SPACE.points([{**BASELINE, name: one}, {**BASELINE, name: other}])
    return float(np.linalg.norm(points_NP[0] - points_NP[1]))


@pytest.mark.parametrize(
    ("name", "one", "other", "distance"),
    [
        ("lr", 1e-4, 3e-2, 1),
        ("activation", "gelu", "swiglu", 1),
        ("tie_embeddings", True, False, 1),
        ("lr", 1e-3, 1e-3, 0),
        ("lr", 1e-3, 2e-3, apart("lr", 1e-2, 2e-2)),
        ("batch_size", 4, 8, apart("batch_size", 16, 32)),
    ],
)
def test_distances_are_in_own_steps(name: str, one: Scalar, other: Scalar, distance: float) -> None:
    assert apart(name, one, other) == pytest.approx(distance)


def test_an_edited_config_lies_where_the_whole_one_does() -> None:
    edit: dict[str, Scalar] = {"lr": 4e-3, "norm": "rmsnorm", "batch_size": 16}
    whole = SPACE.points([{**BASELINE, **edit}])
    assert np.array_equal(SPACE.edited(BASELINE, [edit]), whole)
    assert not np.array_equal(SPACE.edited(BASELINE, [{}]), whole)
    elsewhere = SPACE.edited(BASELINE, [{"code.activation": "return x"}])
    assert np.array_equal(elsewhere, SPACE.edited(BASELINE, [{}]))


def test_what_is_outside_the_menu_is_outside_the_space_and_at_the_end_of_a_scale() -> None:
    assert SPACE.contains(BASELINE)
    assert not SPACE.contains({**BASELINE, "lr": 1.0})
    assert not SPACE.contains({**BASELINE, "lr": math.nan})
    domain = RealRange(low=0.1, high=10, scale="log")
    assert shares(domain, [0.01, 1.0, 1000.0]).tolist() == pytest.approx([0, 0.5, 1])
    assert shares(RealRange(low=2, high=2), [2.0, 3.0]).tolist() == [0, 0]


def test_what_is_near_is_a_value_as_it_is_proposed() -> None:
    rng = Random(1)
    for domain in MENU.domains.values():
        for end in domain.ends:
            for reach in (0.0, 0.1, 3.0):
                value = near(domain, end, reach, rng)
                assert domain.contains(value)
                assert value == domain.normal(domain.rounded(value))


def test_near_is_as_near_as_it_says() -> None:
    rng, domain = Random(2), RealRange(low=1e-4, high=1e-1, scale="log")
    middle = domain.at(0.5)
    drawn = [near(domain, middle, 0.1, rng) for _ in range(999)]
    assert 0.055 < np.median(np.abs(shares(domain, drawn) - 0.5)) < 0.08  # 0.67 standard deviations


@pytest.mark.parametrize(
    "domain",
    [WholeRange(low=0, high=400, step=100), OrderedChoices(type="int", choices=(2, 4, 8, 16, 32))],
)
def test_where_values_are_counted_the_next_one_is_within_reach(
    domain: WholeRange | OrderedChoices,
) -> None:
    rng = Random(3)
    middle = domain.at(0.5)
    found = [near(domain, middle, 0.001, rng) for _ in range(300)]
    assert len(set(found)) >= 3
    assert found.count(middle) > 60


def entry(number: int, scores: dict[int, float], *, failed: bool = False) -> ConfigEvidence:
    config = MENU.baseline.model_copy(update={"lr_warmup": number % 31})
    found = ConfigEvidence(config, f"{number:064x}", number, scores=scores)
    if failed:
        found.failures.append(failed_trial())
    return found


def evidence_of(entries: list[ConfigEvidence]) -> Evidence:
    return evidence_with(entries, iterations=len(entries))


def scores_of(told: list[ConfigEvidence], reference: dict[int, float], **sums: Any) -> Scores:
    memory = fresh_memory()
    own = ConfigEvidence(MENU.baseline, MENU.baseline.config_hash, 0, scores=reference)
    evidence = evidence_with([own, *told], **sums)
    return Scores.of(replace(memory, evidence=evidence), SPACE, [own, *told])


def test_gains_are_below_the_reference_in_proportion_and_ruinous_scores_drawn_in() -> None:
    found = scores_of([entry(1, {0: 3.5}), entry(2, {0: 3.3})], {0: 3.6})
    assert (found.unit * found.targets).tolist() == pytest.approx([0, -0.1, -0.3])
    ruinous = [*(entry(n, {0: 3.6 + 0.1 * n}) for n in range(1, 8)), entry(9, {0: 30.0})]
    found = scores_of(ruinous, {0: 3.6})
    assert (np.diff(found.targets) > 0).all()
    assert found.targets[-1] < 6
    same = [entry(n, {0: 3.6}) for n in range(1, 8)]
    assert -2 < scores_of([*same, entry(9, {0: 3.5})], {0: 3.6}).targets[-1] < 0


def sums(within: float, race: float, dof: int = 40) -> dict[str, Any]:
    """Return the sums of evidence with this sd of runs within a config and of paired differences in
    races."""
    return {
        "within_ss": (dof * within**2,),
        "within_dof": dof,
        "races_ss": dof * race**2,
        "races_dof": dof,
    }


def test_how_much_configs_share_on_a_seed_is_read_off_the_races() -> None:
    """Paired differences of independent runs have an sd of sqrt(2) times a run's sd. Those of fully
    correlated runs have an sd of zero."""

    def of(*args: Any) -> float:
        return known(Noise.of(evidence_with([], **sums(*args)))).shared

    assert of(0.05, 0.05 * math.sqrt(2)) == pytest.approx(0)
    assert of(0.05, 0.0) == pytest.approx(40 / 44)
    assert 0.4 < of(0.05, 0.05) < 0.5
    assert of(0.05, 0.2) == 0
    assert of(0.05, 0.0, 1) < 0.3


def test_what_a_seed_did_to_the_reference_is_taken_off_as_far_as_it_is_shared() -> None:
    reference = {0: 3.7, 1: 3.5}
    told = [entry(1, {0: 3.6}), entry(2, {1: 3.4})]
    together = scores_of(told, reference, **sums(0.05, 0.0, dof=4000))
    assert together.targets[1] == pytest.approx(together.targets[2], abs=0.01)
    apart = scores_of(told, reference, **sums(0.05, 0.08))
    assert apart.unit * (apart.targets[1] - apart.targets[2]) == pytest.approx(0.2)


def test_four_runs_say_it_with_a_quarter_of_the_variance() -> None:
    found = scores_of([entry(1, {0: 3.5}), entry(2, dict.fromkeys(range(4), 3.5))], {0: 3.6})
    assert found.variances[1] == pytest.approx(4 * found.variances[2])


def test_it_is_told_the_best_and_the_latest_and_no_more() -> None:
    count = 5000
    observed = Observed.of(evidence_of([entry(n, {0: 3.0 + n / count}) for n in range(count)]))
    numbers = [one.iter for one in observed.measured]
    assert numbers == [*range(BEST), *range(count - LATEST, count)]


def test_failures_never_outnumber_results_and_one_of_many_runs_is_none() -> None:
    entries = [entry(n, {0: 3.9}) for n in range(12)]
    entries += [entry(n, {}, failed=True) for n in range(12, 150)]
    # Measured on one seed and failed on another: not a result to learn from.
    entries.append(entry(150, {0: 1.0}, failed=True))
    observed = Observed.of(evidence_of(entries))
    assert [one.iter for one in observed.measured] == list(range(12))
    assert [one.iter for one in observed.failed] == list(range(139, 151))
    mostly = Observed.of(evidence_of([entry(1, dict.fromkeys(range(5), 3.9), failed=True)]))
    assert [one.iter for one in mostly.measured] == [1]


def test_what_was_measured_elsewhere_counts_for_less_than_a_run_here() -> None:
    memory = fresh_memory()
    own = memory.evidence.configs[MENU.baseline.config_hash]
    found = Scores.of(memory, SPACE, [own, entry(1, {0: 3.5})], [(MENU.defaults, 3.4)])
    assert found.values[-1] == MENU.defaults
    assert found.targets[-1] < found.targets[1] < 0
    assert found.variances[-1] == pytest.approx(4 * found.variances[1])
