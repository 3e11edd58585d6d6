"""What a night says that it can find, against the judge's own races."""

import math
import random
from dataclasses import replace

import pytest

from bench.judge_luck import ProbedNight
from bench.judge_worlds import shared_seeds
from tests.support.present import known
from trajectory.power import POWER, Power, confirm_seeds, found, seeds_to_tell
from trajectory.ranking import Noise
from trajectory.rows import Rules

NOISE = Noise(1.0, 4, math.sqrt(2))


def test_the_stated_gain_is_found_with_the_stated_power() -> None:
    power = known(Power.of(NOISE, Rules(), 5))
    assert found(power.gain, NOISE, Rules(), 5, 6) == pytest.approx(POWER, abs=1e-3)
    assert found(0.7 * power.gain, NOISE, Rules(), 5, 6) < POWER - 0.2
    assert power.in_sds == pytest.approx(power.gain)


def test_the_stated_settings_find_half_of_it() -> None:
    power = known(Power.of(NOISE, Rules(), 5))
    runs = known(power.halving_runs)
    longer = Rules(max_runs=runs, early_stopping_threshold=1)
    assert found(power.gain / 2, NOISE, longer, 5, confirm_seeds(runs)) >= POWER
    assert str(runs) in power.halved_by and str(confirm_seeds(runs)) in power.halved_by


def test_the_gain_grows_with_the_noise_and_is_unknown_without() -> None:
    louder = Noise(2.0, 4, 2 * math.sqrt(2))
    assert known(Power.of(louder, Rules(), 5)).gain == pytest.approx(
        2 * known(Power.of(NOISE, Rules(), 5)).gain, rel=1e-6
    )
    assert Power.of(Noise(0.0, 4, 0.0), Rules(), 5) is None


def test_a_smaller_gain_needs_more_seeds_until_none_is_worth_it() -> None:
    large, small = (known(seeds_to_tell(gain, 1.0, 6, 1)) for gain in (1.0, 0.5))
    assert 6 < large < small
    assert seeds_to_tell(0.01, 1.0, 6, 1) is None


@pytest.mark.parametrize("share", [0.0, 0.5])
def test_races_keep_as_often_as_predicted(share: float) -> None:
    """The judge's own races, with the noise known: what the closed form leaves out is small."""
    world = shared_seeds(share)
    sigma = 0.045
    noise = Noise(sigma, 4, sigma * math.sqrt(2 * (1 - share)))
    gain = 1.2 * noise.sigma_d
    kept = races = 0
    for number in range(60):
        night = ProbedNight(world, random.Random(number))
        night.measure_baseline()
        night.world = replace(world, gain=lambda _: gain)
        while night.evidence.iterations < 20:
            night.iterate(Rules())
        kept += night.keeps
        races += night.evidence.iterations
    # a million fresh seeds confirm every gain, so that the race alone is predicted
    assert kept / races == pytest.approx(found(gain, noise, Rules(), 5, 10**6), abs=0.08)
