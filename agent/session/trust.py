"""Ask before a campaign that somebody else began reaches out of its directory.

A campaign is data, wherever it comes from. But resuming one can connect to a cluster, download a
corpus, leave the sandbox or run a script. This user's own campaigns may: when one is begun, a mark
is left in the user's state folder for each such request. It is for this place, so it does not
travel with a copy, and a changed campaign.toml has none. Options of the command line are the user's
own word and need no mark.
"""

import hashlib
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import typer
from rich.console import Console

from agent.menu.files import ProxyMenu
from agent.search.campaign import Campaign
from agent.session.console import can_ask, say
from agent.settings.campaign import CampaignSettings
from agent.settings.environment import state_dir
from autoresearch.campaign_files import has_file, make_folder, replace_file
from autoresearch.errors import CampaignError
from autoresearch.safe_text import plain
from trajectory.rows import CampaignRow

TRUSTED_DIR = "trusted"
_SHOWN_CHARACTERS = 300


def requests_of(
    settings: CampaignSettings, menu: ProxyMenu, row: CampaignRow, chosen: Mapping[str, Any]
) -> tuple[str, ...]:
    """Return what a campaign asks for besides its directory and the built-in trainer.

    :param row: its first row.
    :param chosen: what the user gave on the command line.
    """
    requests = []
    if settings.executor != "local" and "executor" not in chosen:
        requests.append(f"connects to the cluster {settings.executor}")
    if settings.allow_unsandboxed and "allow_unsandboxed" not in chosen:
        requests.append("runs trials without the sandbox, if the kernel has none")
    if settings.corpus.startswith("hf:") and "corpus" not in chosen:
        requests.append(f"downloads the corpus {settings.corpus}")
    if (table := menu.trainer) is not None:
        script = None if row.script is None else row.script.directory
        requests.append(f"runs {' '.join(table.command)} in {script}")
        requests += [f"reads {path}" for path in table.reads]
        requests += [f"sets {name}={value}" for name, value in table.env.items()]
        requests += [f"loads {name} in this Python" for name in table.preload]
        if table.check is not None:
            requests.append(f"runs {' '.join(table.check.command)}")
    return tuple(requests)


def remember_begun(campaign: Campaign) -> None:
    """Leave marks for what a campaign asks for if this session begins it."""
    if campaign.is_new:
        requests = requests_of(campaign.settings, campaign.menu, campaign.row, {})
        _remember(campaign.directory, requests)


def _remember(directory: Path, requests: tuple[str, ...]) -> None:
    with suppress(OSError):  # without a home the next session asks
        for request in requests:
            make_folder(state_dir(), TRUSTED_DIR)
            replace_file(state_dir(), _mark(directory, request), "")


def check_trust(
    directory: Path,
    row: CampaignRow,
    settings: CampaignSettings,
    menu: ProxyMenu,
    chosen: Mapping[str, Any],
    console: Console,
    *,
    trust: bool,
) -> None:
    """Have the user allow what an existing campaign asks for, unless this user did before.

    :raises CampaignError: if the user does not allow it, or cannot be asked.
    """
    requests = tuple(
        request
        for request in requests_of(settings, menu, row, chosen)
        if not has_file(state_dir(), _mark(directory, request))
    )
    if not requests:
        return
    shown = plain("; ".join(requests))
    if not trust and can_ask():
        say(console, f"{directory} was not begun here by you. It {shown}.")
        trust = typer.confirm("Do you trust whoever made it?")
    if not trust:
        raise CampaignError(
            f"{directory} was not begun here by you and {shown[:_SHOWN_CHARACTERS]}; look at its "
            "campaign.toml and first row, and repeat the command with --trust if you agree"
        )
    _remember(directory, requests)


def _mark(directory: Path, request: str) -> str:
    said = f"{os.path.realpath(directory)}\0{request}"
    return f"{TRUSTED_DIR}/{hashlib.sha256(said.encode('utf-8', 'surrogateescape')).hexdigest()}"
