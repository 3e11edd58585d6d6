from pathlib import Path
from typing import Any

import pytest

from agent.menu.files import load_menu, parse_menu
from agent.search.campaign import Campaign
from agent.search.campaign_start import first_row, new_settings, resumed_settings
from agent.session.own_trainer import command_of
from agent.settings.campaign import CampaignSettings, EvaluationProtocol, Policy
from autoresearch.errors import CampaignError, SettingsError
from autoresearch.layout import COMPILED_DIR
from tests.support.own_menus import OWN_MENU
from tests.support.present import known
from tests.support.rows import campaign_row
from tests.support.simulated.night import no_corpus
from trainer.corpus import Corpus
from trajectory.rows import CampaignRow, Rules

TOML = """\
# The settings this campaign was created with.
menu = "cpu-tiny"
corpus = "stdlib"
tokenizer = "bpe:1024"
heldout_bytes = 131072
budget = "60 steps"
horizon_steps = "budget"
backend = "torch"
device = "cpu"
compile = false
reference = "incumbent"
seed = 7
baseline_seeds = 5
proposer = "hybrid"
max_changes = 3
z_keep = 2.5
z_drop = 1.0
first_drop = 0.35
max_runs = 4
llm_share = 0.3
llm_warmup = 10
prompt_tokens = 6000
trial_wall_s = 300.0
trial_memory_gib = 4.5
prune = false
"""
"""Settings as 0.2.0 wrote them; a limit that is not set is left out."""
OTHERS: dict[str, Any] = {
    "corpus": "elsewhere",
    "tokenizer": "bytes",
    "heldout_bytes": 1 << 16,
    "budget": "61 steps",
    "horizon_steps": 61,
    "cooldown_steps": 5,
    "average": "ema:20",
    "backend": "megatron",
    "device": "cuda",
    "cudnn_attention": True,
    "reserve_holdout": True,
    "reference": "baseline",
    "seed": 8,
    "baseline_seeds": 6,
    "proposer": "random",
    "max_changes": 4,
    "code_price": 3.0,
    "z_keep": 0.5,
    "z_drop": 0.5,
    "early_stopping_threshold": 0.5,
    "max_runs": 5,
    "llm_share": 0.5,
    "prompt_tokens": 5000,
    "threads": 5,
    "lanes": 4,
    "executor": "ray",
    "device_kind": "a processor",
    "trial_wall_s": 5.0,
    "trial_memory_gib": 5.0,
    "allow_unsandboxed": True,
    "prune": True,
}
"""A value for each setting that differs from the one in :data:`TOML`."""


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    (tmp_path / "campaign.toml").write_text(TOML)
    return tmp_path


@pytest.fixture
def corpus(tmp_path: Path) -> Corpus:
    return no_corpus(tmp_path)


def test_an_older_file_is_read_and_written_under_present_names(directory: Path) -> None:
    written = CampaignSettings.from_toml(directory / "campaign.toml").to_toml().splitlines()
    present = TOML.replace("first_drop", "early_stopping_threshold").splitlines()
    before = [line for line in present if not line.startswith(("llm_warmup", "compile"))]
    known = {line.split(maxsplit=1)[0] for line in before}
    assert [line for line in written if line.split(maxsplit=1)[0] in known] == before


@pytest.mark.parametrize(
    "line",
    ["seed = -1", 'horizon_steps = "long"', "surprise = 1", "z_keep = inf", "compile = true"],
)
def test_what_makes_no_sense_is_named(line: str, tmp_path: Path) -> None:
    name = line.split(maxsplit=1)[0]
    others = [kept for kept in TOML.splitlines() if kept.split()[0] != name]
    path = tmp_path / "campaign.toml"
    path.write_text("\n".join([*others, line]))
    with pytest.raises(SettingsError, match=name):
        CampaignSettings.from_toml(path)


def test_the_values_below_are_of_every_setting() -> None:
    assert OTHERS.keys() == CampaignSettings.model_fields.keys() - {"menu"}


@pytest.mark.parametrize("name", OTHERS)
def test_the_policy_may_change_and_nothing_else(name: str, directory: Path) -> None:
    if name not in Policy.model_fields:
        with pytest.raises(CampaignError):
            resumed_settings(directory, campaign_row(), {name: OTHERS[name]})
        return
    before = resumed_settings(directory, campaign_row(), {})
    after = resumed_settings(directory, campaign_row(), {name: OTHERS[name]})
    assert getattr(after, name) == OTHERS[name] != getattr(before, name)
    assert after == before.model_copy(update={name: OTHERS[name]})


def test_a_row_of_devices_of_several_kinds_is_read() -> None:
    """Versions between 0.2.0 and this one could create such campaigns."""
    said = campaign_row().model_dump(mode="json", by_alias=True)
    older = said | {"mixed_devices": True, "device_kinds": ["GB10", "H200"]}
    assert CampaignRow.model_validate(older) == campaign_row()


def test_a_lost_campaign_toml_takes_no_part_of_the_ruler_with_it(tmp_path: Path) -> None:
    """Every setting in the first row is restored with its original value."""
    begun = new_settings(load_menu("cpu-tiny"), "cpu-tiny", {**OTHERS, "device": "cpu"})
    said = {name: getattr(begun, name) for name in CampaignSettings.in_first_row()}
    menu = load_menu("cpu-tiny").toml
    row = campaign_row().model_copy(update={"menu_toml": menu} | said)
    again = resumed_settings(tmp_path, row, {})
    assert {name: getattr(again, name) for name in said} == said


@pytest.mark.parametrize("most", [None, 3])
def test_a_lost_campaign_toml_keeps_the_limit_on_changes(most: int | None, tmp_path: Path) -> None:
    menu = load_menu("cpu-tiny")
    begun = new_settings(menu, "cpu-tiny", {} if most is None else {"max_changes": most})
    row = first_row(begun, menu, campaign_row().corpus, None, train_tokens=None, sandbox="none")
    assert row.max_changes == (most or len(menu.knobs))
    assert resumed_settings(tmp_path, row, {}).max_changes == most


def test_the_judge_s_rules_are_settings_of_the_policy() -> None:
    settings = new_settings(load_menu("cpu-tiny"), "cpu-tiny", OTHERS)
    assert settings.rules() == Rules(**{name: OTHERS[name] for name in Rules.model_fields})
    assert settings.rules() != Rules()
    assert type(settings.rules()) is Rules


@pytest.mark.parametrize("name", EvaluationProtocol.model_fields)
def test_the_first_row_keeps_the_evaluation(name: str, tmp_path: Path, corpus: Corpus) -> None:
    menu = load_menu("cpu-tiny")
    begun = new_settings(menu, "cpu-tiny", {})
    with Campaign(tmp_path / "c", begun, menu, corpus, sandbox="none") as campaign:
        held = {field: getattr(campaign.row, field) for field in EvaluationProtocol.model_fields}
    assert held.items() <= dict(begun).items()
    other = new_settings(menu, "cpu-tiny", {name: OTHERS[name]})
    said = rf"\b{name} is .* there and .* here"
    with pytest.raises(CampaignError, match=said):
        Campaign(tmp_path / "c", other, menu, corpus, sandbox="none")


def test_half_written_files_of_a_kill_go_when_it_is_opened(tmp_path: Path, corpus: Corpus) -> None:
    directory = tmp_path / "c"
    directory.mkdir()
    (directory / "in_flight").mkdir()
    names = ("campaign.toml", "in_flight/.000007.json")
    for name in names:
        beside = directory / name
        hidden_name = f".{beside.name.removeprefix('.')}.0123456789abcdef"
        beside.with_name(hidden_name).write_text("half of it")
    (directory / ".own.json.notes").write_text("a person's own")
    menu = load_menu("cpu-tiny")
    with Campaign(directory, new_settings(menu, "cpu-tiny", {}), menu, corpus, sandbox="none"):
        hidden = {path.name for path in directory.glob(".*.json.*")}
        assert hidden | {path.name for path in directory.glob(".*.toml.*")} == {".own.json.notes"}
        assert list((directory / "in_flight").iterdir()) == []


def test_the_environment_is_read_once_and_a_commands_trials_may_keep_compiled_code(
    tmp_path: Path, corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reading it once per trial took a third of a simulated campaign's time. The built-in trainer
    compiles nothing on a CPU."""
    gpt, own = load_menu("cpu-tiny"), parse_menu(OWN_MENU, "own")
    monkeypatch.setenv("AUTORESEARCH_MEMORY_RESERVE_GIB", "3")
    settings = new_settings(gpt, "cpu-tiny", {})
    with Campaign(tmp_path / "c", settings, gpt, corpus, sandbox="none") as campaign:
        monkeypatch.setenv("AUTORESEARCH_MEMORY_RESERVE_GIB", "no number")
        spec = campaign.trial_spec(gpt.baseline, 1)
    monkeypatch.delenv("AUTORESEARCH_MEMORY_RESERVE_GIB")
    assert (spec.limits.reserve_gib, spec.compile_cache) == (3, None)
    (tmp_path / "train.py").touch()
    settings, place = new_settings(own, "own", {}), tmp_path / "own"
    command = command_of(known(own.trainer), tmp_path)
    with Campaign(place, settings, own, None, sandbox="none", command=command) as campaign:
        spec = campaign.trial_spec(own.baseline, 1)
    assert spec.compile_cache == spec.code_cache == str(place / COMPILED_DIR)


def test_any_path_that_can_be_written_is_read_back(tmp_path: Path) -> None:
    source = 'toy \N{GRINNING FACE} \x7f "quoted" \\ é.toml'
    settings = new_settings(load_menu("cpu-tiny"), source, {})
    (tmp_path / "campaign.toml").write_text(settings.to_toml(), "utf-8")
    assert CampaignSettings.from_toml(tmp_path / "campaign.toml") == settings


@pytest.mark.parametrize(
    ("chosen", "says"),
    [
        ({"corpus": "text\udcff"}, "is not valid UTF-8"),
        ({"trial_wall_s": float("inf")}, "trial_wall_s"),
        ({"trial_memory_gib": 1e12}, "trial_memory_gib"),
        ({"trial_memory_gib": float("inf")}, "trial_memory_gib"),
        ({"threads": 10**10}, "threads"),
        ({"max_runs": 10**22}, "max_runs"),
    ],
)
def test_what_no_campaign_could_go_on_with_is_refused(chosen: dict[str, Any], says: str) -> None:
    with pytest.raises(SettingsError, match=says):
        new_settings(load_menu("cpu-tiny"), "cpu-tiny", chosen)
