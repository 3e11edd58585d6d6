"""Write tables as CSV that is safe to open in a spreadsheet, and as Parquet.

A spreadsheet runs a cell that begins with ``=``, ``+``, ``-``, ``@``, a tab or a carriage return as
a formula. Reasons hold arbitrary text from a model (OWASP, CSV Injection). So an apostrophe is put
before every text that begins with one of those characters or with an apostrophe. Removing one
apostrophe restores the text. Numbers are written unchanged.

In Parquet, each column's description is metadata of its field.
"""

import csv
from itertools import islice
from pathlib import Path
from typing import TextIO

from autoresearch.errors import FormatError
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


BATCH = 5000


def write_parquet(table: Table, path: Path) -> int:
    """Write every line, and return their number.

    :raises FormatError: if pyarrow is not installed, or a number does not fit in 64 bits.
    """
    try:
        import pyarrow as pa  # noqa: PLC0415 (an extra)
        import pyarrow.parquet as pq  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise FormatError(
            "writing Parquet needs pyarrow; run: pip install 'autoresearch[parquet]'"
        ) from error
    types = {"text": pa.string(), "int": pa.int64(), "float": pa.float64(), "bool": pa.bool_()}
    schema = pa.schema(
        [
            pa.field(column.name, types[column.kind], metadata={"description": column.says})
            for column in table.columns
        ]
    )
    lines = iter(table.lines)
    written = 0
    with pq.ParquetWriter(path, schema) as writer:
        while batch := list(islice(lines, BATCH)):
            columns = zip(*batch, strict=True)
            try:
                arrays = [
                    pa.array(list(column), type=field.type)
                    for column, field in zip(columns, schema, strict=True)
                ]
            except (OverflowError, pa.ArrowInvalid) as error:
                raise FormatError(
                    f"a number is too large for Parquet's 64 bits ({error}); export to csv or jsonl"
                ) from error
            writer.write_batch(pa.record_batch(arrays, schema=schema))
            written += len(batch)
    return written
