"""Tables as CSV, safe to open in a spreadsheet.

A spreadsheet runs a cell that begins with ``=``, ``+``, ``-``, ``@``, a tab or a carriage return as
a formula, and reasons are whatever a model wrote (OWASP, CSV Injection). So a text that begins with
one of those, or with an apostrophe, has one apostrophe put before it; who takes that away has the
text again. Numbers are written as they are.
"""

from __future__ import annotations

import csv
from typing import TextIO

from trajectory.formats.table import Cell, Table

GUARDED = ("=", "+", "-", "@", "\t", "\r", "\n", "'")


def write_csv(table: Table, file: TextIO) -> int:
    """Write a header and every line; how many lines. ``file`` is open with ``newline=""``."""
    writer = csv.writer(file)  # ends lines as RFC 4180 does, which also has it quote both ends
    writer.writerow(column.name for column in table.columns)
    written = 0
    for line in table.lines:
        writer.writerow(cell_text(cell) for cell in line)
        written += 1
    return written


def cell_text(cell: Cell) -> str:
    """A cell as CSV has it: nothing for None, ``true`` and ``false``, floats that round-trip."""
    if cell is None:
        return ""
    if isinstance(cell, bool):
        return "true" if cell else "false"
    if isinstance(cell, str):
        return f"'{cell}" if cell.startswith(GUARDED) else cell
    return repr(cell)
