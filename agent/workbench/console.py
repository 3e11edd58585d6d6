"""Print lines and tables to the user's terminal."""

import json
from collections.abc import Iterable
from typing import Any

import typer
from pydantic import BaseModel
from rich.console import Console
from rich.table import Table
from rich.text import Text


def say(console: Console, text: str, style: str = "") -> None:
    """Print one line unchanged, even if a path or a model's name contains brackets."""
    console.print(Text(text, style=style), soft_wrap=True)


def print_lines(console: Console, lines: Iterable[str | Text], style: str = "") -> None:
    """Print lines, those without markup of their own like :func:`say`."""
    for line in lines:
        console.print(Text(line, style=style) if isinstance(line, str) else line, soft_wrap=True)


def answer(
    fields: Any, lines: Iterable[str | Text], *, as_json: bool, console: Console | None = None
) -> None:
    """Print a command's result: as one line of JSON, or as lines for a person."""
    if not as_json:
        print_lines(console or Console(), lines)
    elif isinstance(fields, BaseModel):
        typer.echo(fields.model_dump_json())
    else:
        typer.echo(json.dumps(fields))


def plain_table(*columns: str) -> Table:
    """Return a table without lines, whose long cells wrap."""
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    for column in columns:
        table.add_column(column, overflow="fold")
    return table
