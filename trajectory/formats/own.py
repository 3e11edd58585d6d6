"""Read another campaign's journal of this project line by line.

Rows of a damaged journal are kept as far as they are self-contained. A row is left out if it is
invalid, repeats an iteration, or refers to a config that only a left-out row describes.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from pydantic import ValidationError

from autoresearch.errors import FormatError
from autoresearch.values import explain
from trajectory.formats.foreign import FormatName, Measure, Skipped
from trajectory.formats.source import MOST_BYTES, Line, Source, skip
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
class OwnFile:
    """The valid lines of a journal, and the lines left out."""

    format: FormatName = "journal"
    measure: Measure = "val_bpb"
    accept_delta_frac: None = None
    lines: list[Line] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)
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
            skip(own.skipped, line, str(error))
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
