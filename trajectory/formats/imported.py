"""Recognize the format of a file, and read an imported campaign, or any campaign to learn from."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from autoresearch.errors import FormatError
from autoresearch.layout import IMPORTED_FILE, JOURNAL_FILE
from autoresearch.values import explain
from trajectory.formats import commit_logs, single_knob
from trajectory.formats.foreign import (
    ForeignRun,
    FormatName,
    Provenance,
    parse_foreign,
)
from trajectory.formats.source import MOST_LINES, ForeignFile, Line, Source
from trajectory.formats.trackers import mlflow_store, optuna_study, tensorboard_events, wandb_csv
from trajectory.formats.trackers.stores import MAGIC, Folder, Wanted, opened

_LOOKED_AT = 5
Reader = Callable[[Any, Wanted], ForeignFile]


def reader_of(source: Source) -> Reader | None:
    """Return what reads this source; None if it is of no tracker.

    :raises FormatError: for a database or a folder that is of none.
    """
    if isinstance(source, Folder):
        if mlflow_store.recognises(source):
            return mlflow_store.read_files
        return tensorboard_events.read if tensorboard_events.recognises(source) else None
    if source.data.startswith(MAGIC):
        return _of_database(source)
    if "tfevents" in source.path.name:
        return _read_event_file
    lines = list(islice(source.lines(), _LOOKED_AT))
    if optuna_study.recognises(lines):
        return optuna_study.read_journal
    return wandb_csv.read if wandb_csv.recognises(lines) else None


def _of_database(source: Source) -> Reader:
    with opened(source) as database:
        tables = database.tables()
    if tables >= optuna_study.TABLES:
        return optuna_study.read_database
    if tables >= mlflow_store.TABLES:
        return mlflow_store.read_database
    raise FormatError(
        f"{source.path} is a SQLite database, but neither Optuna's nor MLflow's; choose another "
        "file"
    )


def _read_event_file(source: Source, wanted: Wanted) -> ForeignFile:
    folder = Folder(source.path, source.data, {Path(source.path.name): source.data})
    return tensorboard_events.read(folder, wanted)


NO_WISH = Wanted()


@dataclass(frozen=True, slots=True)
class ImportedCampaign:
    """An imported campaign's directory and contents."""

    directory: Path
    provenance: Provenance
    runs: tuple[ForeignRun, ...]
    """Runs of another tool; empty if the campaign has a journal of this project."""

    @property
    def is_foreign(self) -> bool:
        """Whether another tool measured the runs."""
        return self.provenance.format != "journal"


def read_imported(path: Path) -> ImportedCampaign:
    """Read the imported campaign in a directory, or in an ``imported.jsonl`` at any path.

    :raises FormatError: if there is none, or a line of it is damaged.
    """
    file = path / IMPORTED_FILE if path.is_dir() else path
    provenance, runs = read_lines(Source.read(file))
    return ImportedCampaign(file.parent, provenance, runs)


_READERS: dict[str, Callable[[Source], ForeignFile]] = {
    single_knob.FORMAT: single_knob.read,
    commit_logs.PI_FORMAT: commit_logs.read_pi,
}


def open_source(path: Path) -> Source:
    """Read the file to import, or the one that a campaign's directory holds.

    :raises FormatError: if the directory holds none.
    """
    if not path.is_dir():
        return Source.read(path)
    for name in (JOURNAL_FILE, IMPORTED_FILE):
        if (path / name).is_file():
            return Source.read(path / name)
    folder = Folder.read(path)
    if folder.files:
        return folder
    raise FormatError(
        f"{path} holds no campaign (no {JOURNAL_FILE}), no MLflow store and no TensorBoard events; "
        "give a campaign's directory, or the file to import"
    )


def read_foreign(source: Source, format_: FormatName | Reader, wanted: Wanted) -> ForeignFile:
    """Read another tool's runs."""
    if callable(format_):
        return format_(source, wanted)
    if format_ == commit_logs.TSV_FORMAT:
        return commit_logs.read_tsv(source, wanted.metric)
    return _READERS[format_](source)


def recognised_format(source: Source) -> FormatName | Reader:
    """Return the name of the format, or the reader of a tracker's store.

    :raises FormatError: if it is none that can be imported.
    """
    reader = reader_of(source)
    if reader is not None:
        return reader
    lines = list(islice(source.lines(), _LOOKED_AT))
    try:
        kind = lines[0].json_object().get("kind") if lines else None
    except ValueError:
        kind = None
    if kind == "campaign":
        return "journal"
    if kind == "imported":
        return "imported"
    if commit_logs.recognises_tsv(lines):
        return "results-tsv"
    if single_knob.recognises(lines):
        return "single-knob"
    if commit_logs.recognises_pi(lines):
        return "pi-jsonl"
    raise FormatError(
        f"{source.path} cannot be imported: its first lines are neither a "
        "campaign row, nor a single-knob loop's JSONL (baseline_val_bpb, baseline_cfg), nor "
        "pi-autoresearch's autoresearch.jsonl, nor an Optuna journal or study, an MLflow store, a "
        "CSV of Weights & Biases or TensorBoard events, nor the header of a results.tsv "
        f"({', '.join(commit_logs.COLUMNS)}); if its beginning is damaged, remove "
        "the damaged lines"
    )


def provenance_of(source: Source, found: ForeignFile) -> Provenance:
    """Return where a campaign came from, and how it measured."""
    return Provenance(
        format=found.format,
        source=str(source.path),
        source_sha256=source.sha256,
        imported_at=datetime.now(UTC).isoformat(timespec="milliseconds"),
        measure=found.measure,
        accept_delta_frac=found.accept_delta_frac,
        skipped=tuple(found.skipped),
    )


def read_lines(source: Source) -> tuple[Provenance, tuple[ForeignRun, ...]]:
    """Read the lines of an ``imported.jsonl``.

    :raises FormatError: if a line is damaged.
    """
    runs: list[ForeignRun] = []
    provenance: Provenance | None = None
    for line in source.lines(MOST_LINES + 1):
        try:
            parsed = parse_foreign(line.raw)
        except ValidationError as error:
            raise _damaged(source.path, line, explain(error)[:300]) from error
        if isinstance(parsed, ForeignRun) and provenance is not None:
            runs.append(parsed)
        elif isinstance(parsed, Provenance) and provenance is None:
            provenance = parsed
        else:
            raise _damaged(source.path, line, f"a line of kind {parsed.kind!r} out of place")
    if provenance is None:
        raise FormatError(f"{source.path} is empty; import the campaign again")
    return provenance, tuple(runs)


def _damaged(path: Path, line: Line, why: str) -> FormatError:
    return FormatError(
        f"line {line.number} of {path} is damaged ({why}); import the campaign again"
    )
