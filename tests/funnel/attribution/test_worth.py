"""Test what each change of a winner is worth, alone and carried to a target."""

import json
import random
from pathlib import Path

import pytest

from agent.menu.files import load_menu, parse_menu
from autoresearch.errors import CampaignError
from autoresearch.values import Scalar
from funnel.attribution.carried import carried_changes, shape_of_winner
from funnel.attribution.result import AttributionPlan, lines, read_attribution
from funnel.attribution.worth import EstimatedWorth, Scatter, contrast, worths
from funnel.targets.architecture import load_target
from tests.support.attributions import names, simulated, worlds
from tests.support.campaigns import installed
from tests.support.present import known
from tests.support.rows import at, ok, trial
from tests.support.stressed import stressed_campaign
from trainer.schema import Config
from trajectory.rows import AttributionRow, dump_row


def test_by_hand() -> None:
    scores = {
        "W": {0: 2.0, 1: 2.1},
        "B": {0: 2.5, 1: 2.6},
        "0": {0: 2.3, 1: 2.4},
        "1": {0: 2.1, 1: 2.2},
    }
    found = worths(scores, "W", "B", ["0", "1"])
    assert [worth.value for worth in found.changes if worth] == pytest.approx([0.3, 0.1])
    assert known(found.remainder).value == pytest.approx(0.1)
    gain = known(found.gain)
    # The seeds explain everything that the configs do not, so no variance is left.
    assert (gain.value, gain.low) == pytest.approx((0.5, 0.5))
    alone = known(contrast({"W": {0: 2.0}, "B": {0: 2.5}}, [("B", 1.0), ("W", -1.0)], None))
    assert (alone.value, alone.low, alone.high, alone.helps) == (0.5, None, None, False)


def test_the_scatter_is_what_configs_and_seeds_leave() -> None:
    scores = {"a": {0: 1.0, 1: 2.0}, "b": {0: 1.0, 1: 4.0}}
    scatter = Scatter.of(scores)
    # Two-way layout without interaction: each of the four residuals is a quarter of the
    # interaction, 2.
    assert scatter is not None
    assert (scatter.variance, scatter.dof) == pytest.approx((4 * 0.25, 1))
    assert Scatter.of({"a": {0: 1.0}, "b": {0: 2.0}}) is None


def holds(estimate: EstimatedWorth | None, truth: float) -> bool:
    found = known(estimate)
    return known(found.low) <= truth <= known(found.high)


def test_a_gain_from_one_change_alone_is_given_to_that_one() -> None:
    """One of five changes carries the whole gain. The others are false positives no more often
    than their intervals allow."""
    rng = random.Random(11)
    runs = 300
    found_it = held = false = remainders = 0
    for _ in range(runs):
        found = worths(simulated(rng, [0.0, 0.0, 0.12, 0.0, 0.0], 0.0), "W", "B", names(5))
        each = [known(worth) for worth in found.changes]
        found_it += each[2].helps
        held += holds(each.pop(2), 0.12)
        false += sum(worth.helps or worth.harms for worth in each)
        remainders += known(found.remainder).helps or known(found.remainder).harms
    assert found_it >= 0.9 * runs
    assert held >= 0.92 * runs
    assert false <= 0.06 * 4 * runs
    assert remainders <= 0.08 * runs


def test_intervals_hold_where_changes_interact() -> None:
    rng = random.Random(5)
    told = held = whole = 0
    runs = 400
    for alone, together, scores in worlds(rng, runs):
        found = worths(scores, "W", "B", names(len(alone)))
        told += len(alone)
        held += sum(map(holds, found.changes, alone))
        whole += holds(found.remainder, together)
    assert 0.93 <= held / told <= 0.985
    assert 0.91 <= whole / runs <= 0.99


def test_a_single_change_is_the_whole_gain() -> None:
    found = worths(simulated(random.Random(1), [0.1], 0.0), "W", "B", ["B"])
    assert found.changes == (found.gain,)
    rest = known(found.remainder)
    assert (rest.value, rest.is_exact) == (0.0, True)


def test_what_does_nothing_is_told_so() -> None:
    scores = simulated(random.Random(1), [0.1, 0.0], 0.0)
    scores["1"] = dict(scores["W"])
    worth = known(worths(scores, "W", "B", names(2)).changes[1])
    assert (worth.is_exact, worth.helps, worth.harms) == (True, False, False)


def test_what_has_no_score_is_left_to_the_remainder() -> None:
    scores = simulated(random.Random(1), [0.1, 0.2], 0.0)
    scores["1"] = {}
    found = worths(scores, "W", "B", ["0", "1"])
    alone = worths(scores, "W", "B", ["0", None])
    assert found.changes[1] is None
    assert found.remainder == alone.remainder
    left = known(found.gain).value - known(found.changes[0]).value
    assert known(found.remainder).value == pytest.approx(left)


TEXT, LIMIT = load_menu("cpu-tiny").toml.rsplit("[[constraints]]", 1)
MENU = parse_menu(TEXT + LIMIT[LIMIT.index("[campaign]") :], "cpu-tiny")
"""Without its limit of a step's compute, so that a config can win by size."""
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
    directory = stressed_campaign(tmp_path_factory.mktemp("attributed"), [winner], menu=MENU)
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
            without=plan.configs[of],
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
    assert list(plan.configs) == [winner, MENU.baseline]
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


def test_what_harms_is_left_behind_in_the_carried_shape(campaign: Path, winner: Config) -> None:
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
    assert done.returncode == 3, done.stderr
    plan = json.loads(done.stdout)
    assert {change["knob"] for change in plan["changes"]} == set(WON)
    assert plan["attribution"]["steps"] == STEPS
    page = (tmp_path / "handoff" / "README.md").read_text("utf-8")
    table = page.split("## What the search changed")[1].split("\n## ")[0]
    assert "| tie_embeddings | true | false |" in table
    assert "**not carried** dropped: undoing it alone improved the score" in table
