"""Print lines and tables to the user's terminal."""

import json
import sys
from collections.abc import Iterable
from typing import Any

import typer
from pydantic import BaseModel
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from autoresearch.program import copyable
from autoresearch.safe_text import plain


def can_ask() -> bool:
    """Return whether a person at a terminal can answer a question."""
    return sys.stdin.isatty() and sys.stdout.isatty()


def say(console: Console, text: str, style: str = "") -> None:
    """Print one line, even if a path or a model's name contains brackets; without what a terminal
    would obey, which a folder's name may hold."""
    console.print(Text(_safe(text), style=style), soft_wrap=True)


def print_lines(console: Console, lines: Iterable[RenderableType], style: str = "") -> None:
    """Print lines, those without markup of their own like :func:`say`, and tables."""
    for line in lines:
        shown = Text(line, style=style) if isinstance(line, str) else line
        if isinstance(shown, Text):
            shown.plain = _safe(shown.plain)
        console.print(shown, soft_wrap=isinstance(shown, Text))


def _safe(text: str) -> str:
    """Return a text without characters that a terminal would obey, its commands as this program was
    started."""
    return "\n".join(map(plain, copyable(text).split("\n")))


def answer(
    fields: Any,
    lines: Iterable[RenderableType],
    *,
    as_json: bool,
    console: Console | None = None,
    indent: int | None = None,
) -> None:
    """Print a command's result: as JSON, on one line without ``indent``, or for a person."""
    if not as_json:
        print_lines(console or Console(), lines)
    elif isinstance(fields, BaseModel):
        typer.echo(fields.model_dump_json())
    else:
        typer.echo(json.dumps(fields, indent=indent))


def plain_table(*columns: str, rows: Iterable[Iterable[object]] = ()) -> Table:
    """Return a table without lines, whose long cells wrap; all text is shown unchanged."""
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    for column in columns:
        table.add_column(Text(column), overflow="fold")
    for row in rows:
        table.add_row(*(Text(str(cell)) for cell in row))
    return table
