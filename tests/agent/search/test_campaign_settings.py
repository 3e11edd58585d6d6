"""The settings a campaign is resumed with are those it was begun with."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from agent.menu.files import load_menu, parse_menu
from agent.search.campaign_settings import keep_lanes, new_settings, resumed_settings
from autoresearch.errors import CampaignError, MenuError, SettingsError
from tests.support.own_menus import OWN_MENU
from tests.support.rows import campaign_row
from trainer.spec import Budget


@pytest.mark.parametrize(("z_keep", "max_runs", "bar"), [(1.3, 4, 0.35), (3.5, 4, -0.75)])
def test_rules_that_implied_the_first_pair_s_bar_go_on_doing_so(
    z_keep: float, max_runs: int, bar: float, tmp_path: Path
) -> None:
    """In 0.2.0 it followed from the other rules, and campaign.toml did not name it."""
    chosen = {"z_keep": z_keep, "max_runs": max_runs}
    begun = new_settings(load_menu("cpu-tiny"), "cpu-tiny", chosen)
    lines = begun.to_toml().splitlines(keepends=True)
    older = "".join(line for line in lines if not line.startswith(("first_drop", "z_drop")))
    (tmp_path / "campaign.toml").write_text(older)
    assert resumed_settings(tmp_path, campaign_row(), {}).first_drop == pytest.approx(bar)


def test_a_bar_of_its_own_stays(tmp_path: Path) -> None:
    begun = new_settings(load_menu("cpu-tiny"), "cpu-tiny", {"z_keep": 3.5, "first_drop": 0.2})
    (tmp_path / "campaign.toml").write_text(begun.to_toml())
    assert resumed_settings(tmp_path, campaign_row(), {}).first_drop == 0.2


@pytest.mark.parametrize(("said", "bar"), [(0.2, 0.2), (None, 1 - 3.5 / 2)])
def test_a_lost_campaign_toml_takes_no_bar_with_it(
    said: float | None, bar: float, tmp_path: Path
) -> None:
    """The first row says it; one older than that says the rules that implied it."""
    menu = load_menu("cpu-tiny").toml
    rules = {"z_keep": 3.5, "max_runs": 4, "first_drop": said}
    row = campaign_row().model_copy(update={"menu_toml": menu} | rules)
    assert resumed_settings(tmp_path, row, {}).first_drop == pytest.approx(bar)


def test_a_cooldown_longer_than_the_baseline_s_trials_is_refused() -> None:
    menu = load_menu("cpu-tiny")
    steps = 60
    budget = f"{steps * (menu.baseline.tokens_per_step or 0)} tokens"
    begun = new_settings(menu, "cpu-tiny", {"budget": budget, "cooldown_steps": steps})
    assert begun.cooldown_steps == steps
    with pytest.raises(SettingsError, match="which are 60 steps of the baseline; make it shorter"):
        new_settings(menu, "cpu-tiny", {"budget": budget, "cooldown_steps": steps + 1})


def begun(directory: Path, **chosen: object) -> Path:
    settings = new_settings(load_menu("cpu-tiny"), "cpu-tiny", chosen)
    (directory / "campaign.toml").write_text(settings.to_toml())
    return directory


@pytest.mark.parametrize("asked", [{"lanes": 2}, {"threads": 1}, {"lanes": 8, "threads": 3}])
def test_a_budget_by_the_clock_goes_on_with_the_cores_it_was_begun_with(
    asked: dict[str, int], tmp_path: Path
) -> None:
    """Fewer cores take fewer steps in it, and races go on with the scores that are there."""
    begun(tmp_path, budget="30 seconds", lanes=4)
    row = campaign_row().model_copy(update={"budget": Budget.parse("30 seconds")})
    first = next(iter(asked))
    with pytest.raises(CampaignError, match=rf"resumed like this: {first} is .* there and"):
        resumed_settings(tmp_path, row, asked)
    for same in ({}, {"lanes": 4}, {"lanes": "auto"}):
        assert resumed_settings(tmp_path, row, same).lanes == 4


def test_a_budget_in_steps_goes_on_with_any_number_of_lanes(tmp_path: Path) -> None:
    begun(tmp_path, budget="60 steps", lanes=4)
    again = resumed_settings(tmp_path, campaign_row(), {"lanes": 2, "threads": 1})
    assert (again.lanes, again.threads) == (2, 1)


def test_what_a_measurement_of_lanes_found_is_not_measured_again(tmp_path: Path) -> None:
    begun(tmp_path)
    asked = {"lanes": "auto"}
    assert resumed_settings(tmp_path, campaign_row(), asked).lanes == "auto", "nobody measured"
    before = resumed_settings(tmp_path, campaign_row(), {})
    for found in (1, 3):
        keep_lanes(tmp_path, found)
        assert resumed_settings(tmp_path, campaign_row(), asked).lanes == found
        again = resumed_settings(tmp_path, campaign_row(), {})
        assert again == before.model_copy(update={"lanes": found})


@pytest.mark.parametrize(
    ("name", "value", "flag"),
    [
        ("hold_back", True, "--hold-back"),
        ("cooldown_steps", 5, "--cooldown"),
        ("average", "lawa:20", "--average"),
        ("average", "ema:20", "--average"),
        ("horizon_steps", 500, "--horizon"),
    ],
)
def test_a_command_is_not_asked_for_what_the_built_in_trainer_has(
    name: str, value: object, flag: str
) -> None:
    with pytest.raises(SettingsError, match=f"so that {flag} says nothing"):
        new_settings(parse_menu(OWN_MENU, "own"), "own", {name: value})
    with pytest.raises(MenuError, match=f"has .*{name}"):
        parse_menu(f"{OWN_MENU}[campaign]\n{name} = {json.dumps(value)}\n", "own")


def test_a_command_that_is_told_the_horizon_has_one() -> None:
    menu = parse_menu(OWN_MENU.replace("--lr={lr}", "--lr={lr}={horizon}"), "own")
    assert new_settings(menu, "own", {"horizon_steps": 500}).horizon_steps == 500
    assert new_settings(menu, "own", {}).horizon_steps == 1000
