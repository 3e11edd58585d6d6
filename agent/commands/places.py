"""Where campaigns are, as every command names them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from agent.campaign import JOURNAL_FILE
from agent.errors import CampaignError

DEFAULT_MENU = "cpu-tiny"

CampaignOption = Annotated[
    Path | None,
    typer.Option("--campaign", help="The campaign's directory. Default: runs/MENU."),
]
MenuOption = Annotated[
    str | None, typer.Option("--menu", help="A shipped menu's name or a TOML file.")
]


def default_campaign(menu: str | None) -> Path:
    """``runs/NAME`` in the current directory."""
    return Path("runs") / Path(menu or DEFAULT_MENU).stem


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
