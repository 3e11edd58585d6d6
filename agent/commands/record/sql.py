"""``autoresearch sql`` and ``reindex``: query a campaign in SQL, and rebuild its index."""

import json
import math
import re
import sys
from typing import Annotated, Any

import typer
from rich.console import Console, RenderableType

from agent.commands.campaign_view import CampaignView
from agent.session.console import answer, plain_table
from agent.session.places import CampaignOption, existing_campaign
from agent.settings.environment import read_environment
from autoresearch.errors import FormatError
from autoresearch.layout import HISTORY_FILE, JOURNAL_FILE
from autoresearch.safe_text import plain
from autoresearch.words import counted
from trajectory.formats.table import Column, Table, write_csv
from trajectory.history import asking
from trajectory.history.store import reindex as rebuild
from trajectory.history.view_definitions import VIEWS
from trajectory.history.views import EXAMPLE, Cell, QueryResult

WIDEST = 10_000
"""Characters of a printed line at most."""


def sql(
    query: Annotated[
        str | None,
        typer.Argument(help="One SELECT. Without it the command lists the views.", metavar="QUERY"),
    ] = None,
    campaign: CampaignOption = None,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print a list of objects.")] = False,
) -> None:
    """Query a campaign in SQL: iterations, trials, configs, gains.

    The query cannot write anything. It may take a minute.
    """
    view = CampaignView(existing_campaign(campaign))
    if query is None:
        _list_views(asking.columns(view.journal), as_json=as_json)
        return
    found = asking.query(view.journal, query)
    if as_json:
        typer.echo(json.dumps(objects(found), ensure_ascii=False))
    elif as_csv:
        columns = tuple(Column(name, "text", "") for name in found.columns)
        lines = ([_scalar(cell) for cell in row] for row in found.rows)
        write_csv(Table(columns, lines), sys.stdout)
    else:
        rows = (map(_shown, row) for row in found.rows)
        table = plain_table(*map(plain, found.columns), rows=rows)
        # A value folded into several lines cannot be read or copied, so lines may be as wide as
        # needed.
        Console(width=WIDEST).print(table)
    if found.cut:
        typer.echo(f"note: only the first {len(found.rows)} rows are shown; set LIMIT", err=True)


def _list_views(columns: dict[str, list[str]], *, as_json: bool) -> None:
    said = {name: {column: text for column, _, text in VIEWS[name][1]} for name in columns}
    described = {
        name: {column: said[name].get(column, "of the config") for column in found}
        for name, found in columns.items()
    }
    lines: list[RenderableType] = []
    for name, texts in described.items():
        rows = ((plain(column), text) for column, text in texts.items())
        lines += [plain_table(name, "", rows=rows), ""]
    answer(described, [*lines, f'autoresearch sql "{EXAMPLE}"'], as_json=as_json)


def objects(found: QueryResult) -> list[dict[str, Any]]:
    """Return the answer's rows for JSON.

    :raises FormatError: if two columns have one name.
    """
    names = found.columns
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise FormatError(
            f"two columns of the answer are named {twice!r}, and a JSON object has each name once; "
            "rename one with AS"
        )
    return [dict(zip(names, map(_scalar, row), strict=True)) for row in found.rows]


def _scalar(cell: Cell) -> str | int | float | None:
    """Return a value that JSON and CSV can hold."""
    if isinstance(cell, bytes):
        return cell.hex()
    return str(cell) if isinstance(cell, float) and not math.isfinite(cell) else cell


def _shown(cell: Cell) -> str:
    value = _scalar(cell)
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.6g}"
    is_hash = re.fullmatch("[0-9a-f]{64}", str(value))  # its first digits tell configs apart
    return str(value)[:12] if is_hash else plain(str(value))


def reindex(campaign: CampaignOption = None) -> None:
    """Rebuild the history index from trajectory.jsonl.

    The file gets the views of `autoresearch sql` too, for other programs that read SQLite.
    """
    directory = existing_campaign(campaign)
    url = read_environment().history_url
    history, journal = directory / HISTORY_FILE, directory / JOURNAL_FILE
    evidence = rebuild(url or history, journal).evidence
    typer.echo(
        f"indexed: {counted(evidence.iterations, 'iteration')}, "
        f"{counted(len(evidence.configs), 'config')}"
    )
