"""Export a campaign as a table, as rows or as MLflow runs."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from agent.search.first_row import read_campaign_row
from autoresearch.errors import FormatError
from autoresearch.files import replacing
from autoresearch.layout import JOURNAL_FILE, TRIALS_DIR
from trainer.isolation.trial_files import read_curve
from trainer.spec import CurvePoint
from trajectory.formats.mlflow_runs import write_trials
from trajectory.formats.table import trials_table, write_csv, write_parquet
from trajectory.formats.tracked import tracked_trials
from trajectory.history.tables import hidden
from trajectory.journal import read_records, read_rows
from trajectory.rows import CampaignRow

_SCHEME = re.compile(r"[a-z][a-z0-9+.-]+:")


@dataclass(frozen=True, slots=True)
class Exported:
    """Count and place of what was written."""

    count: int
    of: str
    """Noun for what is counted: ``trials``."""
    where: str
    notes: tuple[str, ...] = ()
    """Names of what was left out, and the reasons."""


def campaign_row(directory: Path) -> CampaignRow:
    """Return the first row of the campaign to export.

    :raises FormatError: if the journal is empty.
    """
    row = read_campaign_row(directory)
    if row is None:
        raise FormatError(f"{directory / JOURNAL_FILE} is empty; there is nothing to export")
    return row


def study_name(directory: Path) -> str:
    """Return the name of a campaign's study or experiment, which no other campaign has."""
    return f"{directory.resolve().name} {campaign_row(directory).id}"


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """Yield a temporary file beside ``path`` that takes its place if the block succeeds.

    :raises FormatError: if ``path`` exists or cannot be written.
    """
    if _SCHEME.match(str(path)) or path.exists():
        raise FormatError(
            f"{path} exists already or is not a file's path; choose another --out, remove it, or "
            "for a database write sqlite:///PATH"
        )
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
    with whole_file(Path(where)) as new:
        try:
            yield str(new)
        except FormatError as error:
            raise FormatError(str(error).replace(str(new), where)) from error


def export_csv(directory: Path, where: str) -> Exported:
    """Write one line per trial as CSV."""
    table = trials_table(read_rows(directory / JOURNAL_FILE))
    with whole_file(Path(where)) as new, new.open("w", encoding="utf-8", newline="") as file:
        return Exported(write_csv(table, file), "lines", where)


def export_parquet(directory: Path, where: str) -> Exported:
    """Write the same table, typed, as Parquet."""
    table = trials_table(read_rows(directory / JOURNAL_FILE))
    with whole_file(Path(where)) as new:
        return Exported(write_parquet(table, new), "lines", where)


def export_jsonl(directory: Path, where: str) -> Exported:
    """Write the rows as stored; import rebuilds the same campaign from them."""
    count = 0
    with whole_file(Path(where)) as new, new.open("wb") as file:
        for record in read_records(directory / JOURNAL_FILE):
            file.write(record.raw.removesuffix(b"\n") + b"\n")
            count += 1
    return Exported(count, "rows", where)


def export_mlflow(directory: Path, where: str) -> Exported:
    """Write one run per trial with its curve, in an experiment named after the campaign."""
    if where.startswith("file:") and "://" not in where:  # the form in MLflow's documentation
        where = Path(where.removeprefix("file:")).absolute().as_uri()
    trials = directory / TRIALS_DIR
    known = {path.name for path in trials.iterdir()} if trials.is_dir() else set()
    without: list[str] = []

    def curve(trial_id: str) -> list[CurvePoint]:
        points = read_curve(trials / trial_id) if trial_id in known else []
        if not points:
            without.append(trial_id)
        return points

    with whole_database(where) as place:
        rows = tracked_trials(read_rows(directory / JOURNAL_FILE))
        count = write_trials(place, study_name(directory), rows, curve)
    notes = (f"{len(without)} trials have no curve on disk",) if without else ()
    return Exported(count, "runs", hidden(where), notes)
