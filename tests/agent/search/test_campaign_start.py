import json
from pathlib import Path

import pytest

from agent.menu.files import load_menu, parse_menu
from agent.search.campaign_start import (
    new_settings,
    refuse_lost_journal,
    resumed_settings,
    set_settings,
)
from agent.settings.campaign import CampaignSettings
from autoresearch.errors import CampaignError, MenuError, SettingsError
from tests.support.own_menus import OWN_MENU
from tests.support.rows import campaign_row
from trainer.schema import Budget
from trajectory.rows import CampaignRow, Rules, dump_row, parse_row

# The rules a version wrote: in the first row, and also in campaign.toml.
OF_0_2_0 = {"z_keep": 1.3, "max_runs": 4}
TODAY = {"z_keep": 1.3, "max_runs": 4, "early_stopping_threshold": 0.0, "z_drop": 0.5}


@pytest.mark.parametrize(
    ("row", "toml", "went_on"),
    [
        (OF_0_2_0, {"z_keep": 1.3, "max_runs": 4}, (1.3, 1.0, 0.35, 4)),
        (OF_0_2_0 | {"z_keep": 3.5}, {"z_keep": 3.5, "max_runs": 4}, (3.5, 1.0, -0.75, 4)),
        (OF_0_2_0, None, (1.3, 1.0, 0.35, 4)),
        (TODAY, TODAY, (1.3, 0.5, 0.0, 4)),
        (TODAY, {"z_drop": 0.5}, (1.3, 0.5, 0.0, 4)),
        (TODAY, TODAY | {"z_drop": 0.7}, (1.3, 0.7, 0.0, 4)),
    ],
)
def test_a_campaign_goes_on_by_the_rules_that_it_was_begun_with(
    row: dict[str, float],
    toml: dict[str, float] | None,
    went_on: tuple[float, float, float, int],
    tmp_path: Path,
) -> None:
    menu = load_menu("cpu-tiny")
    written = json.loads(dump_row(campaign_row()))
    for name in Rules.model_fields:
        del written[name]
    first = parse_row(json.dumps(written | {"menu_toml": menu.toml} | row))
    assert isinstance(first, CampaignRow)
    if toml is not None:
        text = new_settings(menu, "cpu-tiny", {}).to_toml().splitlines(keepends=True)
        others = [line for line in text if not line.startswith(tuple(Rules.model_fields))]
        others += [f"{name} = {value}\n" for name, value in toml.items()]
        (tmp_path / "campaign.toml").write_text("".join(others))
    rules = resumed_settings(tmp_path, first, {}).rules()
    found = rules.z_keep, rules.z_drop, rules.early_stopping_threshold, rules.max_runs
    assert found == pytest.approx(went_on)


def test_a_cooldown_longer_than_the_baseline_s_trials_is_refused() -> None:
    menu = load_menu("cpu-tiny")
    steps = 60
    budget = f"{steps * (menu.baseline.tokens_per_step or 0)} tokens"
    begun = new_settings(menu, "cpu-tiny", {"budget": budget, "cooldown_steps": steps})
    assert begun.cooldown_steps == steps
    with pytest.raises(SettingsError):
        new_settings(menu, "cpu-tiny", {"budget": budget, "cooldown_steps": steps + 1})


def begun(directory: Path, **chosen: object) -> Path:
    settings = new_settings(load_menu("cpu-tiny"), "cpu-tiny", chosen)
    (directory / "campaign.toml").write_text(settings.to_toml())
    return directory


@pytest.mark.parametrize("asked", [{"lanes": 2}, {"threads": 1}, {"lanes": 8, "threads": 3}])
def test_a_budget_by_the_clock_keeps_its_cores(asked: dict[str, int], tmp_path: Path) -> None:
    begun(tmp_path, budget="30 seconds", lanes=4)
    row = campaign_row().model_copy(update={"budget": Budget.parse("30 seconds")})
    first = next(iter(asked))
    with pytest.raises(CampaignError, match=rf"\b{first} is .* there and"):
        resumed_settings(tmp_path, row, asked)
    for same in ({}, {"lanes": 4}, {"lanes": "auto"}):
        assert resumed_settings(tmp_path, row, same).lanes == 4
    begun(tmp_path, budget="60 steps", lanes=4)
    again = resumed_settings(tmp_path, campaign_row(), asked)
    assert {name: getattr(again, name) for name in asked} == asked


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("reserve_holdout", True),
        ("cooldown_steps", 5),
        ("average", "lawa:20"),
        ("horizon_steps", 500),
    ],
)
def test_a_command_is_not_asked_for_what_the_built_in_trainer_has(name: str, value: object) -> None:
    with pytest.raises(SettingsError, match=f"--set {name}"):
        new_settings(parse_menu(OWN_MENU, "own"), "own", {name: value})
    with pytest.raises(MenuError, match=f"has .*{name}"):
        parse_menu(f"{OWN_MENU}[campaign]\n{name} = {json.dumps(value)}\n", "own")


def test_set_gives_settings_as_in_campaign_toml_or_as_text() -> None:
    pairs = ["max_runs=6", "prune=false", "average=ema:20", "horizon_steps=budget", "z_keep=2"]
    settings = new_settings(load_menu("cpu-tiny"), "cpu-tiny", set_settings(pairs))
    assert (settings.max_runs, settings.prune, settings.z_keep) == (6, False, 2)
    assert (str(settings.average), settings.horizon_steps) == ("ema:20", None)
    assert CampaignSettings.model_fields.keys() >= set_settings(pairs).keys()
    for nonsense in ("max_runs", "lanes=2", "=3"):
        with pytest.raises(SettingsError):
            set_settings([nonsense])
    with pytest.raises(SettingsError):
        new_settings(load_menu("cpu-tiny"), "cpu-tiny", set_settings(["max_runs=many"]))


def test_a_command_that_is_told_the_horizon_has_one() -> None:
    menu = parse_menu(OWN_MENU.replace("--lr={lr}", "--lr={lr}={horizon}"), "own")
    assert new_settings(menu, "own", {"horizon_steps": 500}).horizon_steps == 500
    assert new_settings(menu, "own", {}).horizon_steps == 1000


@pytest.mark.parametrize("left", ["trials/t000001/spec.json", "history.sqlite"])
def test_a_campaign_whose_journal_is_gone_is_not_begun_anew(left: str, tmp_path: Path) -> None:
    (tmp_path / left).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / left).write_text("")
    with pytest.raises(CampaignError, match=r"trajectory\.json"):
        refuse_lost_journal(tmp_path)
