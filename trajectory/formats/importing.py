"""Import another tool's file, or another campaign's journal, as a new campaign.

An imported campaign is a directory with ``imported.jsonl``; no process ever adds to it. For another
tool's campaign that file holds the measurements (:mod:`trajectory.formats.foreign`). For one of
this project's campaigns it holds only the provenance, beside a copy of the journal and the trials'
curves.
"""

import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from itertools import islice
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from autoresearch.campaign_files import replace_file, status_of
from autoresearch.errors import FormatError
from autoresearch.layout import IMPORTED_FILE, JOURNAL_FILE, is_trial_id
from autoresearch.values import explain
from autoresearch.words import timestamp
from trajectory.curves import copy_curve
from trajectory.formats import databases, loop_logs, mlflow_store, tensorboard_events, wandb_csv
from trajectory.formats.foreign import ForeignLine, ForeignRun, Provenance, parse_foreign
from trajectory.formats.source import MOST_LINES, ForeignFile, Line, Source, SourcePart
from trajectory.formats.tracker_stores import MAGIC, Folder
from trajectory.journal import records_of
from trajectory.rows import CampaignRow, Row, trials_of

_LOOKED_AT = 5
NO_WISH = SourcePart()
Reader = Callable[[Any, SourcePart], ForeignFile]


_READERS: Sequence[tuple[Callable[[list[Line]], bool], Reader]] = (
    (lambda lines: _has_keys(lines, {"op_code", "worker_id"}), databases.read),
    (wandb_csv.recognises, wandb_csv.read),
    (loop_logs.recognises_tsv, loop_logs.read_tsv),
    (loop_logs.recognises_single_knob, loop_logs.read_single_knob),
    (loop_logs.recognises_pi, loop_logs.read_pi),
)
"""Tests of a file's first lines, each with the reader of such a file."""


def _has_keys(lines: list[Line], keys: set[str]) -> bool:
    try:
        return bool(lines) and keys <= lines[0].json_object().keys()
    except ValueError:
        return False


def _reader_of(source: Source) -> Reader:
    """Return what reads this source.

    :raises FormatError: if it is none that can be imported.
    """
    reader: Reader | None = None
    if isinstance(source, Folder):
        is_mlflow = mlflow_store.recognises(source)
        reader = mlflow_store.read_files if is_mlflow else tensorboard_events.read
    elif source.data.startswith(MAGIC):
        reader = databases.read
    elif "tfevents" in source.path.name:
        reader = tensorboard_events.read_file
    else:
        lines = list(islice(source.lines(), _LOOKED_AT))
        reader = next((read for recognises, read in _READERS if recognises(lines)), None)
    if reader is None:
        raise FormatError(
            f"{source.path} cannot be imported: it is neither a journal of this tool, nor a "
            "single-knob loop's JSONL (baseline_val_bpb, baseline_cfg), nor pi-autoresearch's "
            "autoresearch.jsonl, nor an Optuna study, an MLflow store, a CSV of Weights & Biases "
            "or TensorBoard events, nor a results.tsv with the header "
            f"{', '.join(loop_logs.COLUMNS)}; if its beginning is damaged, remove the damaged "
            "lines"
        )
    return reader


@dataclass(frozen=True, slots=True)
class ImportedCampaign:
    """An imported campaign's contents."""

    provenance: Provenance
    runs: tuple[ForeignRun, ...]
    """Runs of another tool; empty if the campaign has a journal of this project."""

    @property
    def is_foreign(self) -> bool:
        """Whether another tool measured the runs."""
        return self.provenance.format != "journal"


@dataclass(frozen=True, slots=True)
class CampaignSource:
    """A campaign to learn from: any tool's, imported or not."""

    path: Path
    """Path that the user gave."""
    sha256: str
    """SHA-256 of the file that was read."""
    foreign: ImportedCampaign | None
    """Another tool's runs; None for a campaign of this project."""
    rows: tuple[Row, ...] = ()
    """Rows of this project's campaign; empty for another tool's."""
    data: bytes = b""
    """The journal's content."""

    @property
    def identity(self) -> str:
        """The campaign's id, or the hash of another tool's file. It is equal for every copy of the
        campaign."""
        if self.foreign is not None:
            return self.foreign.provenance.source_sha256
        first = self.rows[0]
        assert isinstance(first, CampaignRow)
        return first.id


def read_imported(path: Path) -> ImportedCampaign:
    """Read the imported campaign in a directory, or in an ``imported.jsonl`` at any path.

    :raises FormatError: if there is none, or a line of it is damaged.
    """
    return _read_lines(Source.read_in(path, IMPORTED_FILE) if path.is_dir() else Source.read(path))


def read_campaign_source(path: Path, wanted: SourcePart = NO_WISH) -> CampaignSource:
    """Read a campaign's directory, a journal, an ``imported.jsonl`` or another tool's file.

    :raises FormatError: if it is not a trajectory.
    :raises JournalError: if it is a damaged journal.
    """
    source = _open_source(path)
    is_json = source.data.lstrip(b"\xef\xbb\xbf \r\n").startswith(b"{")
    lines = list(islice(source.lines(), 1)) if is_json else []
    kind = lines[0].json_object().get("kind") if _has_keys(lines, {"kind"}) else None
    if kind == "campaign":
        rows = tuple(one.row for one in records_of(BytesIO(source.data), source.path))
        return CampaignSource(path, source.sha256, None, rows, source.data)
    if kind == "imported":
        return CampaignSource(path, source.sha256, _read_lines(source))
    found = _reader_of(source)(source, wanted)
    if not found.runs:
        first = f"; line {found.skipped[0].line}: {found.skipped[0].why}" if found.skipped else ""
        lacks = f"no line that a {found.format} trajectory would have{first}"
        raise FormatError(f"{source.path} has {lacks}; choose another file")
    provenance = _provenance(source.path, source.sha256, found)
    return CampaignSource(path, source.sha256, ImportedCampaign(provenance, tuple(found.runs)))


def _provenance(path: Path, sha256: str, found: ForeignFile) -> Provenance:
    return Provenance(
        format=found.format,
        source=str(path),
        source_sha256=sha256,
        imported_at=timestamp(),
        measure=found.measure,
        skipped=tuple(found.skipped),
    )


def import_campaign(path: Path, directory: Path, wanted: SourcePart = NO_WISH) -> ImportedCampaign:
    """Make ``directory`` a read-only campaign from a file or another campaign's directory.

    It creates the whole campaign or nothing.

    :param wanted: what to read of a tracker's store.
    :raises FormatError: if the directory is not empty, or the source is not a trajectory, or has
        another metric than the one wanted.
    :raises JournalError: if the source is a damaged journal.
    """
    _refuse_unless_new(directory)
    source = read_campaign_source(path, wanted)
    campaign = source.foreign
    journal = path / JOURNAL_FILE if path.is_dir() else path
    if campaign is None:
        ours = ForeignFile(format="journal", measure="val_bpb")
        campaign = ImportedCampaign(_provenance(journal, source.sha256, ours), ())
    measure = campaign.provenance.measure
    if wanted.metric and wanted.metric[:60] != measure:
        raise FormatError(
            f"{path} holds one score, {measure}, and not {wanted.metric!r:.60}; leave --metric out"
        )
    with _atomic_directory(directory) as folder:
        if source.foreign is None:
            replace_file(folder, JOURNAL_FILE, source.data)
            for trial_id in {trial.trial_id for row in source.rows for trial in trials_of(row)}:
                if is_trial_id(trial_id):
                    copy_curve(journal.resolve().parent, folder, trial_id)
        lines: list[ForeignLine] = [campaign.provenance, *campaign.runs]
        text = "".join(f"{line.model_dump_json(by_alias=True)}\n" for line in lines)
        replace_file(folder, IMPORTED_FILE, text)
    return campaign


def _open_source(path: Path) -> Source:
    """Read the file to import, or the one that a campaign's directory holds.

    :raises FormatError: if the directory holds none.
    """
    if not path.is_dir():
        return Source.read(path)
    for name in (JOURNAL_FILE, IMPORTED_FILE):
        if status_of(path, name) is not None:
            return Source.read_in(path, name)
    folder = Folder.read(path)
    if folder.files:
        return folder
    raise FormatError(
        f"{path} holds no campaign (no {JOURNAL_FILE}), no MLflow store and no TensorBoard events; "
        "give a campaign's directory, or the file to import"
    )


def _read_lines(source: Source) -> ImportedCampaign:
    """Read the lines of an ``imported.jsonl``.

    :raises FormatError: if a line is damaged.
    """
    parsed: list[ForeignLine] = []
    for line in source.lines(MOST_LINES + 1):
        try:
            parsed.append(parse_foreign(line.raw))
        except ValidationError as error:
            why = f"is damaged ({explain(error)[:300]}); import the campaign again"
            raise FormatError(f"line {line.number} of {source.path} {why}") from error
    provenance, runs = parsed[0], [one for one in parsed[1:] if isinstance(one, ForeignRun)]
    if not isinstance(provenance, Provenance) or len(runs) < len(parsed) - 1:
        why = "has a first line that is none, or two; import the campaign again"
        raise FormatError(f"{source.path} {why}")
    return ImportedCampaign(provenance, tuple(runs))


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
