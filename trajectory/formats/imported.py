"""Import another tool's file, or another campaign's journal, as a new campaign.

An imported campaign is a directory with ``imported.jsonl``; no process ever adds to it. For another
tool's campaign that file holds the measurements (:mod:`trajectory.formats.foreign`). For one of
this project's campaigns it holds only the provenance. The rows are then copied byte for byte to a
journal, and the trials' curves to their usual places.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path

from pydantic import ValidationError

from autoresearch.errors import FormatError
from autoresearch.layout import CURVE_FILE, IMPORTED_FILE, JOURNAL_FILE, TRIALS_DIR, is_trial_id
from autoresearch.values import explain
from trajectory.formats import pi_jsonl, results_tsv, single_knob
from trajectory.formats.foreign import (
    ForeignLine,
    ForeignRun,
    FormatName,
    Provenance,
    dump_foreign,
    parse_foreign,
)
from trajectory.formats.own import OwnFile, read_journal
from trajectory.formats.source import MOST_LINES, ForeignFile, Line, Source
from trajectory.formats.trackers.choice import Reader, reader_of
from trajectory.formats.trackers.folder import Folder
from trajectory.formats.trackers.recorded import Wanted
from trajectory.rows import CampaignRow, parse_row

_NO_WISH = Wanted()
_LOOKED_AT = 5


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
    provenance, runs = _read_lines(Source.read(file))
    return ImportedCampaign(file.parent, provenance, runs)


@dataclass(frozen=True, slots=True)
class CampaignSource:
    """A campaign to learn from: any tool's, imported or not."""

    path: Path
    """Path that the user gave."""
    sha256: str
    """SHA-256 of the file that was read."""
    foreign: ImportedCampaign | None
    """Another tool's runs; None for a campaign of this project."""
    journal_lines: tuple[bytes, ...]
    """Rows of this project's campaign that are self-contained; empty for another tool's."""
    left_out: int
    """Number of lines left out."""

    @property
    def identity(self) -> str:
        """The campaign's id, or the hash of another tool's file. It is equal for every copy of the
        campaign."""
        if self.foreign is not None:
            return self.foreign.provenance.source_sha256
        first = parse_row(self.journal_lines[0])
        assert isinstance(first, CampaignRow)
        return first.id


def read_campaign_source(path: Path) -> CampaignSource:
    """Read a campaign's directory, a journal, an ``imported.jsonl`` or another tool's file.

    :raises FormatError: if it is not a trajectory.
    """
    source = _source(path)
    format_ = _recognise(source)
    if format_ == "journal":
        own = read_journal(source)
        lines = tuple(line.raw for line in own.lines)
        return CampaignSource(path, source.sha256, None, lines, len(own.skipped))
    if format_ == "imported":
        provenance, runs = _read_lines(source)
    else:
        found = _read(source, format_, _NO_WISH)
        provenance, runs = _provenance(source, found), tuple(found.runs)
    campaign = ImportedCampaign(source.path.parent, provenance, runs)
    return CampaignSource(path, source.sha256, campaign, (), len(provenance.skipped))


def import_campaign(path: Path, directory: Path, wanted: Wanted = _NO_WISH) -> Provenance:
    """Make ``directory`` a read-only campaign from a file or another campaign's directory.

    It creates the whole campaign or nothing.

    :param wanted: what to read of a tracker's store.

    :raises FormatError: if the directory is not empty, or the source is not a trajectory.
    """
    _refuse_unless_new(directory)
    source = _source(path)
    recognised = _recognise(source)
    with _atomic_directory(directory) as folder:
        if recognised == "imported":
            provenance, _ = _read_lines(source)
            (folder / IMPORTED_FILE).write_bytes(source.data)
        elif recognised == "journal":
            own = read_journal(source)
            provenance = _provenance(source, own)
            (folder / JOURNAL_FILE).write_bytes(b"".join(line.raw + b"\n" for line in own.lines))
            _copy_curves(source.path.parent, folder, own)
            _write_lines(folder / IMPORTED_FILE, [provenance])
        else:
            found = _read(source, recognised, wanted)
            if not found.runs:
                raise FormatError(_nothing_in(source, found))
            provenance = _provenance(source, found)
            _write_lines(folder / IMPORTED_FILE, [provenance, *found.runs])
    return provenance


def imported_count(directory: Path) -> tuple[int, str]:
    """Return the number of items in an imported campaign and their name: ``row`` for a journal,
    ``run`` for another tool's file."""
    journal = directory / JOURNAL_FILE
    if journal.is_file():
        return journal.read_bytes().count(b"\n"), "row"
    # The first line is the provenance.
    return (directory / IMPORTED_FILE).read_bytes().count(b"\n") - 1, "run"


_READERS: dict[str, Callable[[Source], ForeignFile]] = {
    single_knob.FORMAT: single_knob.read,
    results_tsv.FORMAT: results_tsv.read,
    pi_jsonl.FORMAT: pi_jsonl.read,
}


def _source(path: Path) -> Source:
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
        "name a campaign's directory, or the file to import"
    )


def _read(source: Source, format_: FormatName | Reader, wanted: Wanted) -> ForeignFile:
    if callable(format_):
        return format_(source, wanted)
    return _READERS[format_](source)


def _recognise(source: Source) -> FormatName | Reader:
    reader = reader_of(source)
    if reader is not None:
        return reader
    lines = list(islice(source.lines(), _LOOKED_AT))
    kind = _kind(lines[0]) if lines else None
    if kind == "campaign":
        return "journal"
    if kind == "imported":
        return "imported"
    if results_tsv.recognises(lines):
        return "results-tsv"
    if single_knob.recognises(lines):
        return "single-knob"
    if pi_jsonl.recognises(lines):
        return "pi-jsonl"
    raise FormatError(
        f"{source.path} cannot be imported: its first lines are neither a "
        "campaign row, nor a single-knob loop's JSONL (baseline_val_bpb, baseline_cfg), nor "
        "pi-autoresearch's autoresearch.jsonl, nor an Optuna journal or study, an MLflow store, a "
        "CSV of Weights & Biases or TensorBoard events, nor the header of a results.tsv "
        f"({', '.join(results_tsv.COLUMNS)}); if its beginning is damaged, remove "
        "the damaged lines"
    )


def _kind(line: Line) -> object:
    try:
        return line.json_object().get("kind")
    except ValueError:
        return None


def _provenance(source: Source, found: ForeignFile | OwnFile) -> Provenance:
    return Provenance(
        format=found.format,
        source=str(source.path),
        source_sha256=source.sha256,
        imported_at=datetime.now(UTC).isoformat(timespec="milliseconds"),
        measure=found.measure,
        accept_delta_frac=found.accept_delta_frac,
        skipped=tuple(found.skipped),
    )


def _nothing_in(source: Source, found: ForeignFile) -> str:
    first = f"; line {found.skipped[0].line}: {found.skipped[0].why}" if found.skipped else ""
    return (
        f"{source.path} has no line that a {found.format} trajectory would have{first}; choose "
        "another file"
    )


def _read_lines(source: Source) -> tuple[Provenance, tuple[ForeignRun, ...]]:
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


def _write_lines(path: Path, lines: Sequence[ForeignLine]) -> None:
    path.write_text("".join(dump_foreign(line) + "\n" for line in lines), "utf-8")


def _copy_curves(source: Path, folder: Path, own: OwnFile) -> None:
    """Copy the learning curves of the campaign's trials that exist beside the journal."""
    for trial_id in own.trial_ids:
        curve = source / TRIALS_DIR / trial_id / CURVE_FILE
        if is_trial_id(trial_id) and curve.is_file() and not curve.is_symlink():
            (folder / TRIALS_DIR / trial_id).mkdir(parents=True, exist_ok=True)
            shutil.copyfile(curve, folder / TRIALS_DIR / trial_id / CURVE_FILE)


def _refuse_unless_new(directory: Path) -> None:
    """Check that a new directory can replace this one: it must be empty or missing.

    :raises FormatError: if it cannot be replaced, or is the current directory.
    """
    if directory.is_dir() and directory.samefile(Path.cwd()):
        why = "is the directory you are in"
    elif directory.is_symlink() or directory.is_mount():
        why = "is a link or a mount point"
    elif directory.exists() and not directory.is_dir():
        why = "is a file"
    elif directory.is_dir() and any(directory.iterdir()):
        why = "is there already and not empty"
    else:
        return
    raise FormatError(f"{directory} {why}; name a new directory with --campaign")


@contextmanager
def _atomic_directory(directory: Path) -> Iterator[Path]:
    """Yield a temporary folder that is renamed to ``directory`` on success."""
    try:
        directory.parent.mkdir(parents=True, exist_ok=True)
        folder = Path(tempfile.mkdtemp(dir=directory.parent, prefix=f".{directory.name}."))
    except OSError as error:
        raise _unwritable(directory, error) from error
    try:
        yield folder
        folder.chmod(0o755)
        folder.replace(directory)
    except OSError as error:
        raise _unwritable(directory, error) from error
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _unwritable(directory: Path, error: OSError) -> FormatError:
    return FormatError(
        f"{directory} cannot be written: {error.strerror or error}; free some space, or choose "
        "another directory with --campaign"
    )
