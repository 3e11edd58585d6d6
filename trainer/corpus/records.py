"""Read documents from a field of records: JSONL, Parquet, and streamed Hugging Face datasets.

Each generator yields the UTF-8 text of one record at a time and holds no other. Records with a null
text are skipped.
"""

import json
import os
import resource
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

from autoresearch.errors import CorpusError
from autoresearch.program import install_command

LINE_BYTES = 64 << 20
"""Longest JSONL line: a file without line ends must not fill the memory."""
PARQUET_MOST_RATIO = 200
"""Largest ratio of a column's unpacked to packed size. Prose reaches 10; anything above the limit
is a decompression bomb."""
PARQUET_RATIO_FROM = 4 << 20
"""Unpacked bytes below which the ratio does not matter."""
PARQUET_SPARE = 512 << 20
"""Bytes that Arrow and its threads may take besides, whatever a file's size."""


def jsonl_documents(file: BinaryIO, path: Path, text_field: str) -> Iterator[bytes]:
    """Yield the text of each line's object, skipping blank lines.

    :raises CorpusError: naming the line that is not an object with that field.
    """
    number = 0
    while line := file.readline(LINE_BYTES):
        number += 1
        where = f"{path} line {number}"
        if len(line) == LINE_BYTES and not line.endswith(b"\n"):
            raise CorpusError(
                f"{where} is longer than {LINE_BYTES >> 20} MiB; write one record a line"
            )
        if line.isspace():
            continue
        try:
            record = json.loads(line.decode("utf-8-sig" if number == 1 else "utf-8"))
        except (ValueError, RecursionError) as error:
            reason = error.msg if isinstance(error, json.JSONDecodeError) else _one_line(error)
            raise CorpusError(
                f"{where} is not JSON in UTF-8 ({reason}); fix or remove the line"
            ) from error
        yield from _text(record, where, text_field)


def parquet_documents(file: BinaryIO, path: Path, text_field: str) -> Iterator[bytes]:
    """Yield the text column of a Parquet file, one row at a time.

    :raises CorpusError: if it is not a Parquet file, or has no such column of strings.
    """
    try:
        import pyarrow.parquet  # noqa: PLC0415  an extra
    except ImportError as error:
        raise CorpusError(
            f"reading {path} needs pyarrow; run: {install_command('parquet')}"
        ) from error
    size = path.stat().st_size
    try:
        # pre_buffer would prefetch whole row groups, however large.
        with pyarrow.parquet.ParquetFile(file, buffer_size=1 << 20, pre_buffer=False) as table:
            names = table.schema_arrow.names
            if text_field not in names:
                raise _no_field(str(path), text_field, names)
            _refuse_bomb(table.metadata, path, text_field)
            # A dictionary stores a text once, however many rows repeat it, but a batch holds a copy
            # for each row, regardless of the footer. So a batch is one row.
            batches = _bounded(table.iter_batches(1, columns=[text_field]), size)
            for row, batch in enumerate(batches, start=1):
                record = {text_field: batch.column(0)[0].as_py()}
                yield from _text(record, f"{path} row {row}", text_field)
    except (ValueError, NotImplementedError) as error:  # Arrow's own errors are among them
        raise CorpusError(
            f"{path} cannot be read as Parquet ({_one_line(error)}); write it again or leave it out"
        ) from error
    except MemoryError as error:
        raise CorpusError(
            f"{path} unpacks {size:,} bytes into more than its footer says, which is not plausible "
            "text; leave it out"
        ) from error


def _bounded(batches: Iterator[Any], packed: int) -> Iterator[Any]:
    """Yield batches, with a limit to the memory that Arrow takes for one: a page's header may say
    more than the footer.

    :raises MemoryError: if it takes more than text of this packed size can need.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    spare = PARQUET_SPARE + PARQUET_MOST_RATIO * packed
    page = resource.getpagesize()
    # Kept open, since each row asks; its sixth number is what RLIMIT_DATA counts, in pages.
    with Path("/proc/self/statm").open("rb", buffering=0) as statm:
        while True:
            most = int(os.pread(statm.fileno(), 256, 0).split()[5]) * page + spare
            if soft == resource.RLIM_INFINITY or most < soft:
                resource.setrlimit(resource.RLIMIT_DATA, (most, hard))
            try:
                batch = next(batches, None)
            finally:
                resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))
            if batch is None:
                return
            yield batch


def _refuse_bomb(metadata: Any, path: Path, text_field: str) -> None:
    """Refuse a column whose unpacked size is implausible for text.

    :raises CorpusError: if the footer's sizes show a decompression bomb.
    """
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        for column in map(group.column, range(group.num_columns)):
            if column.path_in_schema.split(".")[0] != text_field:
                continue
            unpacked, packed = column.total_uncompressed_size, max(column.total_compressed_size, 1)
            if unpacked > PARQUET_RATIO_FROM and unpacked > PARQUET_MOST_RATIO * packed:
                raise CorpusError(
                    f"{path} unpacks {packed:,} bytes of {text_field!r} into {unpacked:,}, which "
                    "is not plausible text; leave it out"
                )


def dataset_documents(
    name: str, config: str | None, split: str, text_field: str
) -> Iterator[bytes]:
    """Yield the text column of a streamed Hugging Face dataset.

    :raises CorpusError: if the extra is missing, or the dataset cannot be loaded or read.
    """
    where = f"hf:{name}{'@' + config if config else ''}:{split}"
    try:
        import datasets  # noqa: PLC0415  an extra
    except ImportError as error:
        raise CorpusError(
            f"loading {where} needs the datasets library; run: {install_command('huggingface')}"
        ) from error
    try:
        records = datasets.load_dataset(name, config, split=split, streaming=True)
        for number, record in enumerate(records, start=1):
            yield from _text(record, f"{where} record {number}", text_field)
    except CorpusError:
        raise
    except Exception as error:  # the hub's HTTP client, and its errors, change with its version
        raise CorpusError(
            f"cannot read {where} ({_one_line(error)}); check the name, the configuration, the "
            "split and the network"
        ) from error


def _text(record: Any, where: str, text_field: str) -> Iterable[bytes]:
    """Return the value of a record's text field as UTF-8; nothing for null."""
    if not isinstance(record, dict) or text_field not in record:
        raise _no_field(where, text_field, record if isinstance(record, dict) else ())
    value = record[text_field]
    if value is None:
        return ()
    if not isinstance(value, str):
        raise CorpusError(
            f"{where}: the field {text_field!r} is a {type(value).__name__}, not a string; choose "
            "another with --text-field"
        )
    try:
        return (value.encode(),)
    except UnicodeEncodeError as error:
        raise CorpusError(
            f"{where}: the field {text_field!r} holds half a surrogate pair at character "
            f"{error.start}, which is not valid UTF-8; fix or remove the record"
        ) from error


def _no_field(where: str, text_field: str, fields: Iterable[str]) -> CorpusError:
    there = ", ".join(sorted(map(str, fields))) or "none"
    return CorpusError(
        f"{where} has no field {text_field!r}, only {there}; "
        "set --text-field to the one that holds the text"
    )


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:300]
