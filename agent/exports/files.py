"""Export single files: tables and the journal itself."""

from __future__ import annotations

from pathlib import Path

from agent.exports.base import Exported, Subject, whole_file
from autoresearch.layout import IMPORTED_FILE, JOURNAL_FILE
from trajectory.formats.csv_file import write_csv
from trajectory.formats.parquet_file import write_parquet
from trajectory.formats.table import Table, runs_table, trials_table
from trajectory.journal import read_records


def export_csv(subject: Subject, out: Path, *, overwrite: bool) -> Exported:
    """Write one line per trial, or per run of another tool, as CSV."""
    with (
        whole_file(out, overwrite=overwrite) as new,
        new.open("w", encoding="utf-8", newline="") as f,
    ):
        count = write_csv(_table(subject), f)
    return Exported(count, "lines", str(out))


def export_parquet(subject: Subject, out: Path, *, overwrite: bool) -> Exported:
    """Write the same table, typed, as Parquet."""
    with whole_file(out, overwrite=overwrite) as new:
        count = write_parquet(_table(subject), new)
    return Exported(count, "lines", str(out))


def export_jsonl(subject: Subject, out: Path, *, overwrite: bool) -> Exported:
    """Write the rows as stored; import rebuilds the same campaign from them."""
    count = 0
    with whole_file(out, overwrite=overwrite) as new, new.open("wb") as file:
        if subject.foreign is not None:
            lines = (subject.directory / IMPORTED_FILE).read_bytes()
            file.write(lines)
            count = lines.count(b"\n")
        else:
            for record in read_records(subject.directory / JOURNAL_FILE):
                file.write(record.raw if record.raw.endswith(b"\n") else record.raw + b"\n")
                count += 1
    return Exported(count, "rows", str(out))


def _table(subject: Subject) -> Table:
    if subject.foreign is not None:
        return runs_table(subject.foreign.runs, subject.foreign.provenance.measure)
    return trials_table(subject.rows())
