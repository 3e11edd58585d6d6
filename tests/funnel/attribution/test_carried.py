"""The rows of an attribution determine how the launch plan reports each change."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from agent.menu.files import load_menu
from autoresearch.errors import CampaignError
from autoresearch.values import Scalar
from funnel.attribution.carried import carried_changes, shape_of_winner
from funnel.attribution.result import AttributionPlan, lines, read_attribution
from funnel.target.architecture import load_target
from tests.support.attributions import simulated
from tests.support.campaigns import installed
from tests.support.present import known
from tests.support.rows import at, ok, trial
from tests.support.stressed import stressed_campaign
from trainer.spec import Config
from trajectory.rows import AttributionRow, dump_row

MENU = load_menu("cpu-tiny")
TRUTH: dict[str, float] = {"tie_embeddings": -0.15, "lr": 0.2, "d_model": 0.0}
"""True effect of each of the winner's changes."""
WON: dict[str, Scalar] = {"tie_embeddings": False, "lr": 2e-3, "d_model": 192}
STEPS = 1000


@pytest.fixture(scope="module")
def winner() -> Config:
    return MENU.apply(MENU.baseline, WON)


@pytest.fixture(scope="module")
def campaign(winner: Config, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a stressed campaign whose attribution reverted three of the winner's changes; one is
    harmful."""
    directory = stressed_campaign(tmp_path_factory.mktemp("attributed"), [winner])
    plan = AttributionPlan.of(
        MENU, winner, budget=MENU.campaign.budget, steps=STEPS, seeds=(999, 998, 997, 996)
    )
    alone = [TRUTH[change.knob] for change in plan.changes]
    scores = simulated(random.Random(2), alone, 0.0)
    named = [("W", winner), ("B", MENU.baseline)]
    named += [(str(k), change.config) for k, change in enumerate(plan.changes) if change.config]
    rows = [
        AttributionRow(
            at=at(2000 + number),
            winner_hash=winner.config_hash,
            without=plan.knob_of(of),
            steps=STEPS,
            config=of,
            config_hash=of.config_hash,
            trial=trial(
                5000 + 10 * number + place, of, seed, ok(scores[name][place]), "attribution"
            ),
        )
        for number, (name, of) in enumerate(named)
        for place, seed in enumerate(plan.seeds)
    ]
    with (directory / "trajectory.jsonl").open("a") as journal:
        journal.write("".join(dump_row(row) + "\n" for row in rows))
    return directory


def test_each_knob_that_differs_is_taken_back_alone(winner: Config) -> None:
    plan = AttributionPlan.of(
        MENU, winner, budget=MENU.campaign.budget, steps=STEPS, seeds=(999, 998)
    )
    assert {change.knob for change in plan.changes} == set(WON)
    for change in plan.changes:
        assert change.config is not None
        assert MENU.knob_value(change.config, change.knob) == MENU.defaults[change.knob]
        others = WON.keys() - {change.knob}
        assert all(MENU.knob_value(change.config, knob) == WON[knob] for knob in others)
    assert len(plan.configs) == len(set(plan.configs)) == 5


def test_what_cannot_be_taken_back_alone_is_named() -> None:
    """The shorter sequences allow a batch of 16. Without them the batch exceeds the token limit."""
    winner = MENU.apply(MENU.baseline, {"seq_len": 64, "batch_size": 16})
    plan = AttributionPlan.of(MENU, winner, budget=MENU.campaign.budget, steps=9, seeds=(1,))
    alone = {change.knob: change for change in plan.changes}
    assert alone["seq_len"].config is None
    assert "batch_size * seq_len <= 1024" in alone["seq_len"].why_not
    assert alone["batch_size"].config is not None


def test_the_baseline_has_no_changes_and_one_change_needs_no_run_of_its_own() -> None:
    winner, budget = MENU.apply(MENU.baseline, {"lr": 2e-3}), MENU.campaign.budget
    plan = AttributionPlan.of(MENU, winner, budget=budget, steps=9, seeds=(1,))
    assert plan.configs == (winner, MENU.baseline)
    with pytest.raises(CampaignError):
        AttributionPlan.of(MENU, MENU.baseline, budget=budget, steps=9, seeds=(1,))


def test_the_rows_say_what_each_was_worth(campaign: Path, winner: Config) -> None:
    found = known(read_attribution(campaign, winner))
    worths = {change.knob: known(change.worth) for change in found.changes}
    assert {knob: (worth.helps, worth.harms) for knob, worth in worths.items()} == {
        "tie_embeddings": (False, True),
        "lr": (True, False),
        "d_model": (False, False),
    }
    assert found.harmful == ("tie_embeddings",)
    assert len(list(lines(found))) == 6
    assert read_attribution(campaign, MENU.baseline) is None


def test_what_harms_is_left_behind_and_what_may_have_won_by_size(
    campaign: Path, winner: Config
) -> None:
    target = load_target("gpt-1b")
    measured = read_attribution(campaign, winner)
    blind = shape_of_winner(winner, target, MENU, 1024, None)
    shape = shape_of_winner(winner, target, MENU, 1024, measured)
    rules: dict[str, tuple[Scalar, str]] = {"lr": (1e-4, "by a rule")}
    changes = {one.knob: one for one in carried_changes(winner, MENU, shape, rules, measured)}
    assert (blind.target.tie_embeddings, shape.target.tie_embeddings) == (False, True)
    assert list(changes) == [knob for knob in MENU.knobs if knob in WON]
    assert changes["tie_embeddings"].how == "dropped: undoing it alone improved the score"
    assert "may have won by size" in changes["d_model"].how
    assert (changes["lr"].is_carried, changes["lr"].how) == (True, "0.0001: by a rule")
    assert not changes["d_model"].is_carried


def test_the_plan_shows_the_table(campaign: Path, tmp_path: Path) -> None:
    asked = ("handoff", "--target", "gpt-1b", "--campaign", campaign, "--json")
    done = installed(*asked, home=tmp_path)
    assert done.returncode == 0, done.stderr
    plan = json.loads(done.stdout)
    assert {change["knob"] for change in plan["changes"]} == set(WON)
    assert plan["attribution"]["steps"] == STEPS
    page = (tmp_path / "handoff" / "README.md").read_text("utf-8")
    table = page.split("## What the search changed")[1].split("\n## ")[0]
    assert "| tie_embeddings | true | false |" in table
    assert "**not carried** dropped: undoing it alone improved the score" in table
