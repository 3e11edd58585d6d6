"""Define what is exported, and export it as a table, as rows or as MLflow runs."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from autoresearch.errors import FormatError
from autoresearch.files import replacing
from autoresearch.layout import IMPORTED_FILE, JOURNAL_FILE, TRIALS_DIR
from trainer.isolation.trial_files import read_curve
from trainer.spec import CurvePoint
from trajectory.formats.imported import ImportedCampaign
from trajectory.formats.mlflow_runs import write_runs, write_trials
from trajectory.formats.table import Table, runs_table, trials_table
from trajectory.formats.table_files import write_csv, write_parquet
from trajectory.formats.tracked import tracked_trials
from trajectory.history.tables import hidden
from trajectory.journal import read_records, read_rows
from trajectory.rows import CampaignRow, Row

_SCHEME = re.compile(r"[a-z][a-z0-9+.-]+:")


@dataclass(frozen=True, slots=True)
class Subject:
    """Campaign to export."""

    directory: Path
    foreign: ImportedCampaign | None
    """Another tool's measurements; None for a campaign of this tool."""

    def rows(self) -> Iterator[Row]:
        """Yield the rows of a campaign of this tool, in the journal's order."""
        return read_rows(self.directory / JOURNAL_FILE)

    def campaign(self) -> CampaignRow:
        """Return the campaign's first row.

        :raises FormatError: if the journal is empty.
        """
        first = next(self.rows(), None)
        if not isinstance(first, CampaignRow):
            raise FormatError(
                f"{self.directory / JOURNAL_FILE} is empty; there is nothing to export"
            )
        return first

    @property
    def name(self) -> str:
        """Name of the campaign's directory."""
        return self.directory.resolve().name


@dataclass(frozen=True, slots=True)
class Exported:
    """Count and place of what was written."""

    count: int
    of: str
    """Noun for what is counted: ``trials``."""
    where: str
    notes: tuple[str, ...] = ()
    """Names of what was left out, and the reasons."""


@contextmanager
def whole_file(path: Path, *, overwrite: bool) -> Iterator[Path]:
    """Yield a temporary file beside ``path`` that replaces it if the block succeeds.

    :raises FormatError: if ``path`` exists and may not be overwritten, or cannot be written.
    """
    if _SCHEME.match(str(path)) and not path.exists():
        raise FormatError(
            f"{path} is neither a path nor a complete URL; for a file with that name put ./ before "
            "it, for a database write sqlite:///PATH"
        )
    if path.exists() and not path.is_file():
        raise FormatError(f"{path} is a directory or a device; set --out to a file")
    if path.exists() and not overwrite:
        raise FormatError(f"{path} exists already; choose another --out, or add --overwrite")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as file:
            yield Path(file.name)
    except OSError as error:
        raise FormatError(
            f"{path} cannot be written: {error.strerror or error}; free some space, or choose "
            "another place with --out"
        ) from error


@contextmanager
def whole_database(where: str) -> Iterator[str]:
    """Yield a new SQLite file that becomes ``where`` if the block succeeds.

    An existing file, or whatever a URL names, is extended in place.

    :raises FormatError: as :func:`whole_file`.
    """
    if "://" in where or Path(where).is_file():
        yield where
        return
    with whole_file(Path(where), overwrite=False) as new:
        try:
            yield str(new)
        except FormatError as error:
            raise FormatError(str(error).replace(str(new), where)) from error


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


def export_mlflow(subject: Subject, where: str) -> Exported:
    """Write one run per trial with its curve, in an experiment named after the campaign."""
    if where.startswith("file:") and "://" not in where:  # the form in MLflow's documentation
        where = Path(where.removeprefix("file:")).absolute().as_uri()
    foreign = subject.foreign
    if foreign is not None:
        with whole_database(where) as place:
            count = write_runs(place, subject.name, foreign.runs, foreign.provenance.measure)
        return Exported(count, "runs", hidden(where))
    trials = subject.directory / TRIALS_DIR
    known = {path.name for path in trials.iterdir()} if trials.is_dir() else set()
    without: list[str] = []

    def curve(trial_id: str) -> list[CurvePoint]:
        points = read_curve(trials / trial_id) if trial_id in known else []
        if not points:
            without.append(trial_id)
        return points

    campaign_id = subject.campaign().id
    experiment = f"{subject.name} {campaign_id}"
    with whole_database(where) as place:
        try:
            count = write_trials(place, experiment, tracked_trials(subject.rows()), curve)
        except FormatError as error:
            if place != where:  # a new file, which is removed
                raise
            stays = f"the runs written before it remain in the experiment {experiment!r}"
            raise FormatError(f"{error} ({stays})") from error
    notes = (f"{len(without)} trials have no curve on disk",) if without else ()
    return Exported(count, "runs", hidden(where), notes)
