"""Write tables as CSV that is safe to open in a spreadsheet.

A spreadsheet runs a cell that begins with ``=``, ``+``, ``-``, ``@``, a tab or a carriage return as
a formula. Reasons hold arbitrary text from a model (OWASP, CSV Injection). So an apostrophe is put
before every text that begins with one of those characters or with an apostrophe. Removing one
apostrophe restores the text. Numbers are written unchanged.
"""

from __future__ import annotations

import csv
from typing import TextIO

from trajectory.formats.table import Cell, Table

GUARDED = ("=", "+", "-", "@", "\t", "\r", "\n", "'")


def write_csv(table: Table, file: TextIO) -> int:
    """Write a header and every line, and return the number of lines.

    :param file: open with ``newline=""``.
    """
    writer = csv.writer(file)  # its line ends are those of RFC 4180, so it quotes both \r and \n
    writer.writerow(column.name for column in table.columns)
    written = 0
    for line in table.lines:
        writer.writerow(cell_text(cell) for cell in line)
        written += 1
    return written


def cell_text(cell: Cell) -> str:
    """Return a cell's CSV text: empty for None, ``true`` or ``false``, and floats that
    round-trip."""
    if cell is None:
        return ""
    if isinstance(cell, bool):
        return "true" if cell else "false"
    if isinstance(cell, str):
        return f"'{cell}" if cell.startswith(GUARDED) else cell
    return repr(cell)
