"""The plan selects the configs, seeds and order of long runs."""

from __future__ import annotations

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


def test_a_baseline_among_the_best_is_a_candidate(ranked: list[Ranked]) -> None:
    best = plan(ranked, baseline=ranked[1].config_hash)
    assert [e.purpose for e in best.configs] == ["candidate"] * 3


@pytest.mark.parametrize("count", [2, 3, 5, 6, 9])
def test_the_spread_is_even_and_holds_both_ends(ranked: list[Ranked], count: int) -> None:
    found = plan(ranked, spread=count)
    ranks = [r.config_hash for r in ranked]
    places = [ranks.index(name) for name in found.spread]
    assert len(places) == count
    assert (places[0], places[-1]) == (0, len(ranked) - 1)
    gaps = [b - a for a, b in pairwise(places)]
    assert max(gaps) - min(gaps) <= 1
    assert len({e.config_hash for e in found.configs}) == len(found.configs)


def test_a_spread_of_more_than_there_are_is_all_there_are(ranked: list[Ranked]) -> None:
    found = plan(ranked, top=1, spread=1000)
    assert len(found.configs) == len(found.spread) == len(ranked)


def test_the_best_come_first_and_the_spread_last(ranked: list[Ranked]) -> None:
    found = plan(ranked, spread=4)
    purposes = [config.purpose for config in found.configs]
    order = ("candidate", "baseline", "spread")
    assert purposes == sorted(purposes, key=order.index)


def test_more_may_get_the_first_seed_than_go_on(ranked: list[Ranked]) -> None:
    found = plan(ranked, top=2, first=6)
    assert found.narrows
    assert found.carried == 2
    assert found.candidates == tuple(entry.config_hash for entry in ranked[:6])


@pytest.mark.parametrize("first", [None, 1, 3])
def test_no_fewer_get_the_first_seed_than_are_carried(
    ranked: list[Ranked], first: int | None
) -> None:
    assert plan(ranked, first=first) == plan(ranked)
    assert not plan(ranked).narrows


def test_nothing_measured_is_refused() -> None:
    with pytest.raises(CampaignError):
        plan([], baseline=None)
