"""``autoresearch reindex``: the history, built anew from the journal."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from agent.campaign import HISTORY_FILE, JOURNAL_FILE
from agent.commands.loop import CampaignOption, MenuOption, default_campaign
from agent.errors import CampaignError
from agent.settings import read_environment
from trajectory.history import reindex as rebuild


def reindex(
    campaign: CampaignOption = None,
    menu: MenuOption = None,
    as_json: Annotated[bool, typer.Option("--json")] = False,
) -> None:
    """Delete the history and rebuild it from trajectory.jsonl, which is the truth."""
    directory = existing_campaign(campaign, menu)
    url = read_environment().history_url
    rebuilt = rebuild(url or directory / HISTORY_FILE, directory / JOURNAL_FILE)
    if as_json:
        typer.echo(json.dumps(asdict(rebuilt)))
    else:
        typer.echo(
            f"{rebuilt.rows} rows indexed: {rebuilt.iterations} iterations, "
            f"{rebuilt.configs} configs"
        )


def existing_campaign(campaign: Path | None, menu: str | None) -> Path:
    """The directory meant, which must hold a campaign.

    :raises CampaignError: where it holds none.
    """
    directory = campaign or default_campaign(menu)
    if not (directory / JOURNAL_FILE).is_file():
        raise CampaignError(
            f"{directory} holds no campaign (no {JOURNAL_FILE}); name one with --campaign, or "
            "start one with: autoresearch loop"
        )
    return directory
