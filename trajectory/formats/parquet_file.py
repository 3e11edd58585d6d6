"""Write tables as Parquet, with each column's description as metadata of its field."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import Any

from autoresearch.errors import FormatError
from trajectory.formats.table import Table

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
            writer.write_batch(_batch(pa, schema, batch))
            written += len(batch)
    return written


def _batch(pa: Any, schema: Any, lines: list[Any]) -> Any:
    columns = zip(*lines, strict=True)
    try:
        arrays = [
            pa.array(list(column), type=field.type)
            for column, field in zip(columns, schema, strict=True)
        ]
    except (OverflowError, pa.ArrowInvalid) as error:
        raise FormatError(
            f"a number is too large for Parquet's 64 bits ({error}); export to csv or jsonl"
        ) from error
    return pa.record_batch(arrays, schema=schema)
