"""Compare what a night says that it can find with what it finds, in worlds whose truth is known.

- **Before**: a baseline is measured, and the night states a gain. Ideas of exactly that gain race
  against the baseline and are confirmed on fresh seeds. The statement is right if 80 % of them are
  both kept and confirmed. The same is measured for half of the gain, with the settings that are
  said to find it.
- **After, nothing kept**: the night goes on for as many iterations as it says bring a first keep in
  half of such nights.
- **After, not confirmed**: the night gets the further fresh seeds that it asks for; 80 % of the
  gains that are as large as measured should be confirmed then.
"""

import random
from collections.abc import Iterable
from dataclasses import replace
from statistics import fmean

from bench.figure import Figure
from bench.judge_luck import ProbedNight
from bench.judge_nights import BASELINE_SEEDS, Night, nights
from bench.judge_worlds import FRESH_SEED, World, shared_seeds, small_gains, worlds
from trajectory.confirmation import CONFIRM_SEEDS
from trajectory.confirmed import Confirmed, ConfirmedConfig, FreshGain
from trajectory.headline import MORE, seeds_more
from trajectory.power import POWER, Power, confirm_seeds
from trajectory.ranking import Noise
from trajectory.rows import Rules

NIGHTS = 300
IDEAS = 10
SHARES = (0.0, 0.5, 0.95)


def run() -> list[Figure]:
    """Return all figures."""
    figures = [
        figure for share in SHARES for figure in _before(f"seeds explain {share:.0%}", share)
    ]
    for world in (worlds()["A/A"], small_gains()):
        figures += [_first_keeps(world, after) for after in (10, 30)]
    return [*figures, *_further_seeds()]


def _before(where: str, share: float) -> list[Figure]:
    rules = Rules()
    stated, cautious, halved, known = [], [], [], []
    for number in range(NIGHTS):
        night = _begun(share, number)
        power = Power.of(_noise(night), rules, BASELINE_SEEDS)
        assert power is not None
        stated.append(_found_share(night, rules, power.gain, CONFIRM_SEEDS))
        cautious.append(power.gain)
        if power.halving_runs is not None:
            runs = power.halving_runs
            longer = Rules(max_runs=runs, early_stopping_threshold=1)
            night = _begun(share, number)
            halved.append(_found_share(night, longer, power.gain / 2, confirm_seeds(runs)))
    for number in range(NIGHTS // 3):
        night = _begun(share, number)
        while night.evidence.iterations < 40:
            night.iterate(rules)
        later = Power.of(_noise(night), rules, BASELINE_SEEDS)
        assert later is not None
        known.append(_found_share(night, rules, later.gain, CONFIRM_SEEDS))
    note = f"{NIGHTS} nights, {IDEAS} ideas each"
    said = f"at least {POWER:.0%}"
    return [
        Figure(f"stated gain that is found ({where})", fmean(cautious), "bpb", note=note),
        _share(f"ideas of it that are kept and confirmed ({where})", stated, said, note),
        _share(f"ideas of half of it, by the settings it names ({where})", halved, said, note),
        _share(f"ideas of the gain stated after 40 iterations ({where})", known, said, note),
    ]


def _begun(share: float, number: int) -> ProbedNight:
    night = ProbedNight(shared_seeds(share), random.Random(number))
    night.measure_baseline()
    return night


def _noise(night: Night) -> Noise:
    noise = Noise.of(night.evidence)
    assert noise is not None
    return noise


def _share(name: str, values: Iterable[float], goal: str, note: str = "") -> Figure:
    percent = 100 * fmean(values)
    return Figure(name, percent, "%", goal, percent >= 100 * POWER, note)


def _found_share(night: Night, rules: Rules, gain: float, seeds: int) -> float:
    """Return the share of ideas of this true gain that a night keeps and confirms."""
    night.world = replace(night.world, gain=lambda _: gain)
    found = 0
    for _ in range(IDEAS):
        before = night.keeps
        night.iterate(rules)
        if night.keeps > before:
            newest = next(reversed(night.evidence.configs))
            found += night.confirmed(newest, range(FRESH_SEED, FRESH_SEED + seeds)).hi < 0
    return found / IDEAS


def _confirmed(config_hash: str, gain: FreshGain) -> Confirmed:
    config = ConfirmedConfig(
        config_hash=config_hash,
        iter=1,
        rank=1,
        changes={},
        claimed=None,
        claimed_lo=None,
        claimed_hi=None,
        gains=(gain,),
    )
    return Confirmed(seeds=tuple(range(gain.seeds)), texts=(), configs=(config,))


def _first_keeps(world: World, after: int) -> Figure:
    came = []
    for night in nights(Night, world, Rules(), NIGHTS, lambda n: n.evidence.iterations >= after):
        if night.keeps:
            continue
        while not night.keeps and night.evidence.iterations < (1 + MORE) * after:
            night.iterate(Rules())
        came.append(night.keeps > 0)
    percent = 100 * fmean(came)
    note = f"{len(came)} of {NIGHTS} nights kept nothing in {after} iterations"
    name = f"a first keep in the next {MORE * after} iterations ({world.name})"
    return Figure(name, percent, "%", "35 to 65 %", 35 <= percent <= 65, note)


def _further_seeds() -> Iterable[Figure]:
    for world in (worlds()["W1"], small_gains()):
        real, told = [], []
        for night in nights(Night, world, Rules(), NIGHTS, lambda n: n.evidence.iterations >= 20):
            if night.incumbent == night.evidence.baseline_hash:
                continue
            seeds = range(FRESH_SEED, FRESH_SEED + CONFIRM_SEEDS)
            first = night.confirmed(night.incumbent, seeds)
            more = None if first.hi < 0 else seeds_more(_confirmed(night.incumbent, first))
            if more is None:
                continue
            longer = range(FRESH_SEED, FRESH_SEED + CONFIRM_SEEDS + more)
            again = night.confirmed(night.incumbent, longer, earlier=1)
            told.append(again.hi < 0)
            if night.true_gain >= -first.delta:
                real.append(again.hi < 0)
        note = f"{len(told)} of {NIGHTS} nights of 20 iterations were not confirmed but ahead"
        name = f"confirmed on the further seeds named ({world.name})"
        yield Figure(name, 100 * fmean(told), "%", note=note)
        yield _share(
            f"of the gains as large as measured ({world.name})", real, f"at least {POWER:.0%}"
        )
