"""What rules of the judge come to, and which of them none beats."""

from __future__ import annotations

import json

import pytest

from agent.menu.rails import Rails
from agent.proposers.base import Proposer
from autoresearch.errors import SettingsError
from bench.simulator.comparison import Mean
from bench.simulator.night import Night, night
from bench.simulator.rules import BEFORE, Worth, frontier, rules_markdown, rules_named
from tests.support.scripted import ScriptedProposer
from tests.support.worlds import RateWorld
from trajectory.rules import Rules


def nothing_but_nulls(_rails: Rails) -> Proposer:
    """Edits that change nothing, and three that make it worse by more than noise."""
    clips = [{"grad_clip": 1 + n / 100} for n in range(1, 28)]
    worse = [{"lr": rate} for rate in (5e-4, 4e-4, 3e-4)]
    return ScriptedProposer(
        [json.dumps({"changes": one, "reason": "none"}) for one in (*clips, *worse)]
    )


def nights(rules: Rules | None) -> list[Night]:
    world = RateWorld(0.05)
    return [
        night(world, nothing_but_nulls, seed=seed, iterations=30, rules=rules) for seed in (1, 2)
    ]


def test_nulls_are_counted_and_those_that_differ_by_next_to_nothing() -> None:
    loose = nights(Rules(z_keep=0, max_runs=2))
    assert [one.nulls for one in loose] == [30, 30]
    assert [one.near_nulls for one in loose] == [27, 27], "worse by 0.3 is not next to nothing"
    worth = Worth.of(loose, loose)
    kept = sum(one.keeps for one in loose)
    assert kept > 2
    assert worth.nulls_kept == pytest.approx(kept / 60)
    assert worth.near_kept == pytest.approx(kept / 54)
    assert worth.near == pytest.approx(54 / 60)
    assert worth.gain.value == 0


def worth(gain: float, nulls: float, inflation: float) -> Worth:
    return Worth(Mean(gain, 0.0), Mean(0, 0), gain, nulls, 0.0, 0.5, inflation, 3.0, 100)


def test_the_frontier_has_whoever_none_beats() -> None:
    worths = {
        "shipped": worth(1.0, 0.02, 0.01),
        "more": worth(1.3, 0.02, 0.01),
        "stricter": worth(0.9, 0.005, 0.01),
        "all": worth(1.26, 0.01, 0.005),
    }
    assert frontier(worths) == ["more", "stricter", "all"]
    assert [name for name, one in worths.items() if one.reaches] == ["all"]
    assert frontier({"a": worths["more"], "b": worths["more"]}) == ["a", "b"], "ties stand"


def test_a_row_says_all_of_it() -> None:
    table = rules_markdown("rate", {BEFORE: nights(None), "loose": nights(Rules(z_keep=0))}, 90)
    assert "90% of candidates under the rules of before" in table
    assert len([line for line in table.splitlines() if line.startswith("| ")]) == 4
    assert rules_markdown("rate", {BEFORE: []}, 90) == "rate: no round is whole yet"


def test_rules_of_no_name_are_refused() -> None:
    assert rules_named("as shipped") is None
    assert rules_named(BEFORE) == Rules(z_drop=1.0, first_drop=0.35)
    with pytest.raises(SettingsError, match="there are no rules 'x'; choose some of z_drop 1"):
        rules_named("x")
