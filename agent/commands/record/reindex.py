"""``autoresearch reindex``: rebuild the history from the journal."""

from __future__ import annotations

import typer

from agent.settings.environment import read_environment
from agent.workbench.places import CampaignOption, existing_campaign
from autoresearch.layout import HISTORY_FILE, JOURNAL_FILE
from autoresearch.words import counted
from trajectory.history.store import reindex as rebuild
from trajectory.history.view_definitions import keep_views


def reindex(campaign: CampaignOption = None) -> None:
    """Rebuild the history index from trajectory.jsonl.

    The file gets the views of `autoresearch sql` too, for other programs that read SQLite.
    """
    directory = existing_campaign(campaign)
    url = read_environment().history_url
    history, journal = directory / HISTORY_FILE, directory / JOURNAL_FILE
    rebuilt = rebuild(url or history, journal)
    if url is None:
        keep_views(history, journal)
    typer.echo(
        f"{counted(rebuilt.rows, 'row')} indexed: {counted(rebuilt.iterations, 'iteration')}, "
        f"{counted(rebuilt.configs, 'config')}"
    )
