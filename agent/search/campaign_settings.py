"""The settings a campaign is begun with, and those it is resumed with."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from agent.menu.files import ProxyMenu, load_menu, menu_of
from agent.settings.campaign import CampaignSettings, parse_values
from autoresearch.errors import CampaignError, SettingsError
from autoresearch.layout import SETTINGS_FILE
from autoresearch.values import explain
from trainer.corpus import default_name
from trajectory.rows import CampaignRow


def new_settings(menu: ProxyMenu, menu_source: str, chosen: Mapping[str, Any]) -> CampaignSettings:
    """The settings of a new campaign: what the person chose, else the menu's defaults.

    :raises SettingsError: naming the setting that makes no sense.
    """
    defaults = menu.campaign
    values: dict[str, Any] = {
        "corpus": defaults.corpus,
        "tokenizer": defaults.tokenizer,
        "heldout_bytes": defaults.heldout_bytes,
        "budget": defaults.budget,
        "horizon_steps": defaults.horizon_steps,
        "threads": defaults.threads,
        "trial_wall_s": defaults.wall_s,
        "trial_memory_gib": defaults.memory_gib,
    }
    values = {name: value for name, value in values.items() if value is not None}
    values.setdefault("horizon_steps", None)
    return _validated(values | parse_values(dict(chosen)) | {"menu": menu_source})


def _validated(values: Mapping[str, Any]) -> CampaignSettings:
    try:
        return CampaignSettings.model_validate(values)
    except ValidationError as error:
        raise SettingsError(f"these settings cannot be used: {explain(error)}") from error


def resumed_settings(
    directory: Path, row: CampaignRow, chosen: Mapping[str, Any]
) -> CampaignSettings:
    """The campaign's own settings, with what steers (and only that) as chosen anew.

    :raises CampaignError: when the choice would change the ruler, with the difference.
    """
    path = directory / SETTINGS_FILE
    kept = CampaignSettings.from_toml(path) if path.exists() else _settings_of(row, chosen)
    kept = _with_its_first_bar(kept)
    asked = _validated(kept.model_dump() | parse_values(dict(chosen)))
    differences = [
        f"{name} is {getattr(kept, name)} there and {getattr(asked, name)} here"
        for name in sorted(CampaignSettings.RULER)
        if name != "menu" and getattr(kept, name) != getattr(asked, name)
    ]
    if "menu" in chosen and load_menu(chosen["menu"]).sha256 != row.menu_sha256:
        differences.append(f"the menu {chosen['menu']} is not the one it was measured with")
    if differences:
        raise CampaignError(
            f"{directory} cannot be resumed like this: {'; '.join(differences)}. "
            "A campaign does not change its ruler; name another directory with --campaign"
        )
    return asked.model_copy(update={"menu": kept.menu})


def _with_its_first_bar(kept: CampaignSettings) -> CampaignSettings:
    """With the loss on the first pair that ends a race, where it was no setting of its own: there
    the other rules said it, and a campaign goes on by the rules that it was begun with."""
    if "first_drop" in kept.model_fields_set:
        return kept
    return kept.model_copy(
        update={"first_drop": kept.z_drop - kept.z_keep / math.sqrt(kept.max_runs)}
    )


def _settings_of(row: CampaignRow, chosen: Mapping[str, Any]) -> CampaignSettings:
    """What the first row says of them, for a campaign whose campaign.toml is lost: the ruler whole,
    and of what steers its share; the rest as in a new campaign.

    :param chosen: may say where the corpus lies by now; it must be the same text.
    """
    shared = CampaignSettings.model_fields.keys() & CampaignRow.model_fields.keys() - {"corpus"}
    said = {name: getattr(row, name) for name in shared - {"first_drop"}}
    if row.first_drop is not None:
        said["first_drop"] = row.first_drop
    menu = menu_of(row)
    source = menu.campaign.corpus
    if default_name([source]) != row.corpus.name:
        source = row.corpus.name
    corpus = {"tokenizer": row.corpus.tokenizer, "corpus": chosen.get("corpus", source)}
    return new_settings(menu, row.menu_name, said | corpus)
