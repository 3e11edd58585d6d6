"""Import another tool's file, or another campaign's journal, as a new campaign.

An imported campaign is a directory with ``imported.jsonl``; no process ever adds to it. For another
tool's campaign that file holds the measurements (:mod:`trajectory.formats.foreign`). For one of
this project's campaigns it holds only the provenance. The rows are then copied byte for byte to a
journal, and the trials' curves to their usual places.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from autoresearch.errors import FormatError
from autoresearch.layout import CURVE_FILE, IMPORTED_FILE, JOURNAL_FILE, TRIALS_DIR, is_trial_id
from trajectory.formats.foreign import (
    ForeignLine,
    Provenance,
    dump_foreign,
)
from trajectory.formats.imported import (
    NO_WISH,
    open_source,
    provenance_of,
    read_foreign,
    read_lines,
    recognised_format,
)
from trajectory.formats.own import OwnFile, read_journal
from trajectory.formats.source import ForeignFile, Source
from trajectory.formats.trackers.recorded import Wanted


def import_campaign(path: Path, directory: Path, wanted: Wanted = NO_WISH) -> Provenance:
    """Make ``directory`` a read-only campaign from a file or another campaign's directory.

    It creates the whole campaign or nothing.

    :param wanted: what to read of a tracker's store.

    :raises FormatError: if the directory is not empty, or the source is not a trajectory.
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
                raise FormatError(_nothing_in(source, found))
            provenance = provenance_of(source, found)
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


def _nothing_in(source: Source, found: ForeignFile) -> str:
    first = f"; line {found.skipped[0].line}: {found.skipped[0].why}" if found.skipped else ""
    return (
        f"{source.path} has no line that a {found.format} trajectory would have{first}; choose "
        "another file"
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
