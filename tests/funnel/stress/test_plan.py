"""Test the plan of the long runs."""

from itertools import pairwise

import pytest

from autoresearch.errors import CampaignError
from funnel.stress.experiment import StressPlan
from tests.support.rows import Simulator
from trajectory import ranking
from trajectory.evidence import Evidence
from trajectory.ranking import Ranked


@pytest.fixture(scope="module")
def ranked() -> list[Ranked]:
    return ranking.top(Evidence(Simulator(1).rows(24)), 1000)


def plan(
    ranked: list[Ranked],
    top: int = 3,
    spread: int = 0,
    baseline: str | None = "",
    first: int | None = None,
) -> StressPlan:
    if baseline == "":
        baseline = next(entry.config_hash for entry in ranked if entry.iter == 0)
    return StressPlan.of(
        ranked,
        top=top,
        first=first,
        spread=spread,
        baseline_hash=baseline,
        steps=1000,
        seeds=(900, 901),
    )


def test_the_best_and_the_baseline(ranked: list[Ranked]) -> None:
    configs = plan(ranked).configs
    assert [(e.rank, e.purpose) for e in configs[:3]] == [(i, "candidate") for i in (1, 2, 3)]
    assert [e.config_hash for e in configs[:3]] == [r.config_hash for r in ranked[:3]]
    (baseline,) = configs[3:]
    assert baseline.purpose == "baseline"
    assert ranked[baseline.rank - 1].iter == 0
    assert len(plan(ranked, baseline=None).configs) == 3
    among = plan(ranked, baseline=ranked[1].config_hash)
    assert [e.purpose for e in among.configs] == ["candidate"] * 3


@pytest.mark.parametrize("count", [2, 5, 9])
def test_the_spread_is_even_and_holds_both_ends(ranked: list[Ranked], count: int) -> None:
    found = plan(ranked, spread=count)
    ranks = [r.config_hash for r in ranked]
    places = [ranks.index(name) for name in found.spread]
    assert len(places) == count
    assert (places[0], places[-1]) == (0, len(ranked) - 1)
    gaps = [b - a for a, b in pairwise(places)]
    assert max(gaps) - min(gaps) <= 1
    assert len({e.config_hash for e in found.configs}) == len(found.configs)
    purposes = [config.purpose for config in found.configs]
    assert purposes == sorted(purposes, key=("candidate", "baseline", "spread").index)
    every = plan(ranked, top=1, spread=1000)
    assert len(every.configs) == len(every.spread) == len(ranked)


def test_more_may_get_the_first_seed_than_go_on(ranked: list[Ranked]) -> None:
    found = plan(ranked, top=2, first=6)
    assert found.narrows
    assert found.carried == 2
    assert found.candidates == tuple(entry.config_hash for entry in ranked[:6])
    for first in (1, 3):
        assert plan(ranked, first=first) == plan(ranked)
    assert not plan(ranked).narrows


def test_nothing_measured_is_refused() -> None:
    with pytest.raises(CampaignError):
        plan([], baseline=None)
