"""Import another tool's file, or another campaign's journal, as a new campaign.

An imported campaign is a directory with ``imported.jsonl``; no process ever adds to it. For another
tool's campaign that file holds the measurements (:mod:`trajectory.formats.foreign`). For one of
this project's campaigns it holds only the provenance. The rows are then copied byte for byte to a
journal, and the trials' curves to their usual places.

Rows of a damaged journal are kept as far as they are self-contained. A row is left out if it is
invalid, repeats an iteration, or refers to a config that only a left-out row describes.
"""

import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import ValidationError

from autoresearch.errors import FormatError
from autoresearch.layout import CURVE_FILE, IMPORTED_FILE, JOURNAL_FILE, TRIALS_DIR, is_trial_id
from autoresearch.values import explain
from trajectory.formats.foreign import (
    ForeignLine,
    FormatName,
    Measure,
    Provenance,
    dump_foreign,
)
from trajectory.formats.imported import (
    NO_WISH,
    ImportedCampaign,
    open_source,
    provenance_of,
    read_foreign,
    read_lines,
    recognised_format,
)
from trajectory.formats.source import MOST_BYTES, ForeignFile, Line, Source
from trajectory.formats.trackers.stores import Wanted
from trajectory.rows import (
    SCHEMA,
    BaselineRow,
    CampaignRow,
    IterationRow,
    Row,
    RowOfOneRun,
    parse_row,
    trials_of,
)


@dataclass(slots=True)
class OwnFile(ForeignFile):
    """The valid lines of a journal of this project, and the lines left out."""

    format: FormatName = "journal"
    measure: Measure = "val_bpb"
    lines: list[Line] = field(default_factory=list)
    trial_ids: set[str] = field(default_factory=set)


def read_journal(source: Source) -> OwnFile:
    """Read a journal, leaving out lines that are not valid rows.

    :raises FormatError: if the first line is not a campaign row, because later rows depend on it.
    """
    own = OwnFile()
    configs: set[str] = set()
    iterations: set[int] = set()
    for line in source.lines(most=MOST_BYTES):
        try:
            row = _row(line, first=not own.lines)
            _stands(row, configs, iterations, own.trial_ids)
        except ValueError as error:
            if not own.lines:
                raise FormatError(
                    f"{source.path} cannot be imported: its first line is not a campaign row of "
                    f"this version ({error}); restore it from a copy"
                ) from error
            own.skip(line, str(error))
            continue
        own.lines.append(line)
    return own


def _row(line: Line, *, first: bool) -> Row:
    """Parse a line as a row.

    :raises ValueError: if the line is not a row that is allowed here.
    """
    try:
        row = parse_row(line.raw)
    except ValidationError as error:
        raise ValueError(explain(error)) from error
    if isinstance(row, CampaignRow) != first:
        raise ValueError(f"a row of kind {row.kind!r} is not expected here")
    if isinstance(row, CampaignRow) and row.schema_ > SCHEMA:
        raise ValueError(f"row format {row.schema_} is newer than {SCHEMA}, the newest known here")
    return row


def _stands(row: Row, configs: set[str], iterations: set[int], trial_ids: set[str]) -> None:
    """Check that a row is self-contained, and record what it describes.

    :raises ValueError: if the row needs a missing one, or repeats one.
    """
    trials = trials_of(row)
    described: set[str] = set()
    if isinstance(row, IterationRow):
        if row.iter in iterations:
            raise ValueError(f"iteration {row.iter} is there already")
        if row.config_hash is not None and row.verdict.allowed:
            described.add(row.config_hash)
    elif isinstance(row, BaselineRow):
        described.add(row.config_hash)
    for trial in trials:
        if trial.trial_id in trial_ids:
            raise ValueError(f"trial {trial.trial_id} is there already")
        # A row outside the search describes the config of its own trial only.
        known = trial.config_hash in configs or trial.config_hash in described
        if not (known or isinstance(row, RowOfOneRun)):
            raise ValueError(
                f"trial {trial.trial_id} is of config {trial.config_hash[:12]}, which no row "
                "taken in describes"
            )
    if isinstance(row, IterationRow):
        iterations.add(row.iter)
    configs |= described
    trial_ids |= {trial.trial_id for trial in trials}


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
    source = open_source(path)
    format_ = recognised_format(source)
    if format_ == "journal":
        own = read_journal(source)
        lines = tuple(line.raw for line in own.lines)
        return CampaignSource(path, source.sha256, None, lines, len(own.skipped))
    if format_ == "imported":
        provenance, runs = read_lines(source)
    else:
        found = read_foreign(source, format_, NO_WISH)
        provenance, runs = provenance_of(source, found), tuple(found.runs)
    campaign = ImportedCampaign(source.path.parent, provenance, runs)
    return CampaignSource(path, source.sha256, campaign, (), len(provenance.skipped))


def import_campaign(path: Path, directory: Path, wanted: Wanted = NO_WISH) -> Provenance:
    """Make ``directory`` a read-only campaign from a file or another campaign's directory.

    It creates the whole campaign or nothing.

    :param wanted: what to read of a tracker's store.

    :raises FormatError: if the directory is not empty, or the source is not a trajectory, or has
        another metric than the one wanted.
    """
    _refuse_unless_new(directory)
    source = open_source(path)
    recognised = recognised_format(source)
    with _atomic_directory(directory) as folder:
        if recognised == "imported":
            provenance, _ = read_lines(source)
            (folder / IMPORTED_FILE).write_bytes(source.data)
        elif recognised == "journal":
            own = read_journal(source)
            provenance = provenance_of(source, own)
            (folder / JOURNAL_FILE).write_bytes(b"".join(line.raw + b"\n" for line in own.lines))
            _copy_curves(source.path.parent, folder, own)
            _write_lines(folder / IMPORTED_FILE, [provenance])
        else:
            found = read_foreign(source, recognised, wanted)
            if not found.runs:
                skipped = found.skipped
                first = f"; line {skipped[0].line}: {skipped[0].why}" if skipped else ""
                raise FormatError(
                    f"{source.path} has no line that a {found.format} trajectory would have"
                    f"{first}; choose another file"
                )
            provenance = provenance_of(source, found)
            _write_lines(folder / IMPORTED_FILE, [provenance, *found.runs])
        if wanted.metric and wanted.metric[:60] != provenance.measure:
            raise FormatError(
                f"{source.path} holds one score, {provenance.measure}, and not "
                f"{wanted.metric!r:.60}; leave --metric out"
            )
    return provenance


def imported_count(directory: Path) -> tuple[int, str]:
    """Return the number of items in an imported campaign and their name: ``row`` for a journal,
    ``run`` for another tool's file."""
    journal = directory / JOURNAL_FILE
    if journal.is_file():
        return journal.read_bytes().count(b"\n"), "row"
    # The first line is the provenance.
    return (directory / IMPORTED_FILE).read_bytes().count(b"\n") - 1, "run"


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
    raise FormatError(f"{directory} {why}; choose a new directory with --campaign")


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
