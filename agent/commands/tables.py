"""Format tables for the commands."""

from __future__ import annotations

from rich.table import Table


def plain_table(*columns: str) -> Table:
    """Return a table without lines, whose long cells wrap."""
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    for column in columns:
        table.add_column(column, overflow="fold")
    return table
