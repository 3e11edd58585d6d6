"""Choose the settings that a campaign begins with and those it is resumed with, and build and read
its first row: these settings and its evaluation protocol, which never change."""

import platform
import secrets
import tomllib
from collections.abc import Iterable, Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import psutil
from pydantic import ValidationError

from agent.menu.files import ProxyMenu, load_menu, menu_of
from agent.settings.campaign import CampaignSettings, Sources
from autoresearch.campaign_files import has_file, names, status_of
from autoresearch.errors import CampaignError, SettingsError
from autoresearch.layout import HISTORY_FILE, JOURNAL_FILE, SETTINGS_FILE, TRIALS_DIR
from autoresearch.options import built_in_flags, set_fields
from autoresearch.values import explain
from autoresearch.words import counted, timestamp
from trainer.corpus import Corpus, default_name
from trainer.corpus.second_text import holdout_split
from trainer.machine.host import cpu_name
from trainer.schema import CorpusInfo, ScriptInfo
from trajectory.journal import read_rows
from trajectory.rows import CampaignRow, EvaluationProtocol, Rules


def new_settings(menu: ProxyMenu, menu_source: str, chosen: Mapping[str, Any]) -> CampaignSettings:
    """Return the settings of a new campaign: the user's choices over the menu's defaults.

    :raises SettingsError: naming the setting that is invalid.
    """
    if menu.trainer is not None:
        flags = built_in_flags(CampaignSettings)
        asked = [flag for name, flag in flags.items() if chosen.get(name)]
        if chosen.get("horizon_steps") and not menu.trainer.tells("horizon"):
            asked.append("--set horizon_steps")
        if asked:
            raise SettingsError(
                f"the menu's command brings its own text, model and schedule, so that {asked[0]} "
                "has no effect; leave it out, or put it into the command"
            )
    defaults = {
        name if name in CampaignSettings.model_fields else f"trial_{name}": value
        for name, value in menu.campaign
        if name != "min_device" and (value is not None or name == "horizon_steps")
    }
    settings = _validated(defaults | dict(chosen) | {"menu": menu_source})
    steps = settings.budget.steps(menu.baseline.tokens_per_step)
    if steps is not None and settings.cooldown_steps > steps:
        raise SettingsError(
            f"a cooldown of {settings.cooldown_steps} steps is longer than {settings.budget}, "
            f"which are {counted(steps, 'step')} of the baseline; make it shorter"
        )
    return settings


def set_settings(pairs: Iterable[str]) -> dict[str, Any]:
    """Return the settings that ``--set NAME=VALUE`` gives, each value as in campaign.toml or as
    plain text.

    :raises SettingsError: if a pair names no setting without an option of its own.
    """
    found: dict[str, Any] = {}
    known = set_fields(CampaignSettings)
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if name not in known or not equals:
            raise SettingsError(
                f"--set {pair} cannot be used; write NAME=VALUE with one of {', '.join(known)}"
            )
        try:
            found[name] = tomllib.loads(f"value = {value}")["value"]
        except tomllib.TOMLDecodeError:
            found[name] = value
    return found


def _validated(values: Mapping[str, Any]) -> CampaignSettings:
    try:
        return CampaignSettings.model_validate(values)
    except ValidationError as error:
        raise SettingsError(f"these settings cannot be used: {explain(error)}") from error


def refuse_lost_journal(directory: Path) -> None:
    """
    :raises CampaignError: if the directory has no journal, and shows that there was one.
    """
    has_trials = any(not name.startswith(".") for name in names(directory, TRIALS_DIR))
    if has_trials or has_file(directory, HISTORY_FILE):
        raise CampaignError(
            f"{directory} has {'trials' if has_trials else 'the history'} of a campaign and no "
            f"{JOURNAL_FILE}, or an empty one; restore it from a copy, or choose another "
            "directory with --campaign"
        )


def resumed_settings(
    directory: Path, row: CampaignRow, chosen: Mapping[str, Any]
) -> CampaignSettings:
    """Return the campaign's own settings, with only the policy changed as chosen.

    :raises CampaignError: if the choice would change the evaluation protocol, or the number of
        cores per trial under a budget in seconds, with the difference.
    """
    path = directory / SETTINGS_FILE
    is_kept = status_of(directory, SETTINGS_FILE) is not None
    read = CampaignSettings.from_toml(path) if is_kept else _settings_of(row, chosen)
    # The rules are those that the campaign began with: from campaign.toml, or else the first row.
    unsaid = Rules.model_fields.keys() - read.model_fields_set
    kept = read.model_copy(update={name: getattr(row, name) for name in unsaid})
    asked = _validated(dict(kept) | dict(chosen) | {"menu": kept.menu})
    # The number of cores of a trial decides how many steps it makes in a budget of seconds.
    is_by_cores = kept.device == "cpu" and is_kept and kept.budget.unit == "seconds"
    if asked.lanes == "auto" and is_by_cores:
        asked = asked.model_copy(update={"lanes": kept.lanes})
    changed = kept.differences(asked, (*Sources.model_fields, *EvaluationProtocol.model_fields))
    if "menu" in chosen and load_menu(chosen["menu"]).content != menu_of(row).content:
        changed.append(f"the menu {chosen['menu']} is not the one it was measured with")
    if is_by_cores:
        changed += kept.differences(asked, ("lanes", "threads"))
    if changed:
        raise CampaignError(
            f"{directory} cannot be resumed with other settings: {'; '.join(changed)}. New scores "
            "could not be compared with earlier ones; resume without these options, or choose "
            "another directory with --campaign"
        )
    return asked


def _settings_of(row: CampaignRow, chosen: Mapping[str, Any]) -> CampaignSettings:
    """Return the settings from the first row, for a campaign whose campaign.toml is lost.

    The row holds the whole evaluation protocol and part of the policy; the rest is as in a new
    campaign.

    :param chosen: may name where the corpus is now; it must be the same text.
    """
    said = {name: getattr(row, name) for name in CampaignSettings.in_first_row()}
    menu = menu_of(row)
    if row.max_changes >= len(menu.knobs):  # the row's value if the user did not choose one
        del said["max_changes"]
    if row.corpus is None:
        del said["backend"]
        return new_settings(menu, row.menu_name, said)
    source = menu.campaign.corpus
    if default_name([source]) != row.corpus.name:
        source = row.corpus.name
    corpus = {"tokenizer": row.corpus.tokenizer, "corpus": chosen.get("corpus", source)}
    return new_settings(menu, row.menu_name, said | corpus)


def read_campaign_row(directory: Path) -> CampaignRow | None:
    """Return the first row of the campaign in this directory, or None if there is no campaign.

    :raises CampaignError: if the journal begins with another kind of row.
    """
    journal = directory / JOURNAL_FILE
    for row in read_rows(journal):
        if isinstance(row, CampaignRow):
            return row
        raise CampaignError(
            f"{journal} does not begin with a campaign row (its first is {row.kind!r}); "
            "it is not a trajectory of ours"
        )
    return None


def first_row(
    settings: CampaignSettings,
    menu: ProxyMenu,
    corpus: CorpusInfo | None,
    script: ScriptInfo | None,
    *,
    train_tokens: int | None,
    sandbox: str,
) -> CampaignRow:
    """Return the first row of a campaign that begins now.

    :param corpus: None if a command brings its own text, which ``script`` then describes.
    :param train_tokens: tokens that its trials train on; None for the whole train split.
    :param sandbox: how trials are confined.
    """
    row = {
        "id": secrets.token_hex(8),
        "created_at": timestamp(),
        "menu_name": menu.name,
        "menu_sha256": menu.sha256,
        "menu_toml": menu.toml,
        "train_tokens": train_tokens,
        "corpus": corpus,
        "script": script,
        "sandbox": sandbox,
        "versions": versions(),
        "hardware": hardware(),
    }
    protocol = {name: getattr(settings, name) for name in settings.in_first_row()}
    protocol["max_changes"] = settings.max_changes or len(menu.knobs)
    if script is not None:
        protocol |= {"backend": "command", "measure": menu.measure}
    return CampaignRow.model_validate(row | protocol)


def versions() -> dict[str, str]:
    """Return the versions of the software that measures and decides, by name."""
    found = {"python": platform.python_version()}
    for name in ("autoresearch", "torch", "numpy", "optuna", "tokenizers", "httpx2"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "not installed"
    return found


def hardware() -> dict[str, str]:
    """Return a description of the machine: processor, cores, memory and system."""
    return {
        "machine": platform.machine(),
        "system": f"{platform.system()} {platform.release()}",
        "cpu": cpu_name(),
        "cpus": str(psutil.cpu_count() or 0),
        "memory_gib": f"{psutil.virtual_memory().total / 2**30:.1f}",
    }


def tokens_without_holdout(corpus: Corpus) -> int:
    """Return how many tokens of the train split trials train on: all but the holdout split.

    :raises CampaignError: if the corpus is too small for a holdout split.
    """
    text = holdout_split(corpus)
    if text is None or text.train_tokens is None:
        raise CampaignError(
            f"a tenth of the corpus {corpus.info.name} ({corpus.info.train_bytes:,} bytes to train "
            "on) has too few whole documents at its end to hold any text back; go without "
            "reserve_holdout, or give it more text, in smaller documents"
        )
    return text.train_tokens
