"""A campaign on devices of two kinds that score differently: no run is held against one of another
kind."""

from __future__ import annotations

import json
from collections import defaultdict
from typing import Any

import pytest

from agent.proposers.uniform import RandomProposer
from agent.search.campaign import Campaign
from agent.search.campaign_settings import new_settings
from agent.search.goal import Goal
from agent.search.iterations.kinds import Kinds
from agent.search.stopping import StopRequest
from tests.support.nights import Onlooker
from tests.support.simulated.executor import SimulatedExecutor
from tests.support.simulated.night import no_corpus, put_together
from tests.support.simulated.world import Run
from tests.support.worlds import RateWorld
from trainer.executors.lanes import Lane, Lanes
from trainer.spec import Config, Place

KINDS = ("GB10", "H200")
OFFSET = 0.8
"""By which the second kind scores better, whatever the config: most of all that can be found."""


class OtherDevice(RateWorld):
    """The same, but for an offset."""

    def run(self, config: Config, seed: int) -> Run:
        found = super().run(config, seed)
        return found if found.score is None else Run(found.train_s, found.score - OFFSET)


def two_kinds() -> Lanes:
    """Two lanes on the first kind, and one on the second."""
    worlds = {"a": RateWorld(0.02), "b": RateWorld(0.02), "c": OtherDevice(0.02)}
    kind = {"a": KINDS[0], "b": KINDS[0], "c": KINDS[1]}
    return Lanes(
        [
            Lane(Place(lane=name, node=name, device=kind[name]), SimulatedExecutor(world))
            for name, world in worlds.items()
        ],
        KINDS,
    )


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """Of a night on them."""
    directory = tmp_path_factory.mktemp("kinds")
    world = RateWorld(0.02)
    asked = {"seed": 3, "executor": "ray", "mixed_devices": True, "device_kinds": KINDS}
    settings = new_settings(world.menu, world.menu.name, asked)
    with (
        Campaign(
            directory / "campaign", settings, world.menu, no_corpus(directory), sandbox="simulated"
        ) as campaign,
        two_kinds() as executor,
    ):
        stop = StopRequest()
        watcher = Onlooker(campaign, stop)
        loop = put_together(
            campaign, RandomProposer, settings.rules(), executor, watcher, stop=stop
        )
        loop.run(Goal(iterations=60))
    lines = (directory / "campaign" / "trajectory.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def trials(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    own = [row["trial"] for row in rows if row["kind"] == "baseline"]
    return own + [one for row in rows if row["kind"] == "iteration" for one in row["trials"]]


def test_a_seed_is_run_on_one_kind_and_no_other(rows: list[dict[str, Any]]) -> None:
    kinds = defaultdict(set)
    for trial in trials(rows):
        kinds[trial["seed"]].add(trial["place"]["device"])
    assert {len(found) for found in kinds.values()} == {1}
    assert set.union(*kinds.values()) == set(KINDS)


def test_a_race_is_on_one_kind_and_both_kinds_race(rows: list[dict[str, Any]]) -> None:
    of_races = [
        {trial["place"]["device"] for trial in row["trials"]}
        for row in rows
        if row["kind"] == "iteration" and row["trials"]
    ]
    assert {len(found) for found in of_races} == {1}
    share = sum(found == {KINDS[1]} for found in of_races) / len(of_races)
    assert 0.15 < share < 0.6, "a third of the lanes are of that kind"


def test_what_is_kept_is_truly_better(rows: list[dict[str, Any]]) -> None:
    """However far the kinds are apart."""
    world = RateWorld()
    configs = {row["config_hash"]: row["config"] for row in rows if row.get("config")}
    kept = [row for row in rows if row["kind"] == "iteration" and is_kept(row)]
    assert kept
    for row in kept:
        new, old = (
            world.truth(Config.model_validate(configs[key]))
            for key in (row["config_hash"], row["decision"]["reference_hash"])
        )
        assert new is not None
        assert old is not None
        assert new < old


def is_kept(row: dict[str, Any]) -> bool:
    return bool(row["decision"]["action"] == "keep")


def test_the_kind_with_the_most_room_is_next() -> None:
    kinds = Kinds({"x": 3, "y": 1})
    racing: list[str | None] = []
    for _ in range(6):
        racing.append(kinds.next(racing))
    assert (racing.count("x"), racing.count("y")) == (4, 2), "one more than lanes, of each"
    assert Kinds({}).next([]) is None


def test_seeds_go_round_the_kinds() -> None:
    kinds = Kinds({"x": 1, "y": 1, "z": 1})
    assert [kinds.seeds(1000, kind) for kind in ("x", "y", "z")] == [
        (1002, 3),
        (1000, 3),
        (1001, 3),
    ]
    assert Kinds({}).seeds(1000, None) == kinds.seeds(1000, "gone") == (1000, 1)
