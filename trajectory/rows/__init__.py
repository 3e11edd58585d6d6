"""Define the rows of trajectory.jsonl: every fact that a campaign records, as frozen types.

Proposals and verdicts are in :mod:`trajectory.proposals`. The values of a ladder's plan, a
confirmation and a calibration are in modules of their own.
"""

from typing import Annotated, TypeAlias

from pydantic import Field, TypeAdapter
from pydantic_core import from_json

from autoresearch.redaction import redact
from trajectory.ladder_plan import LadderPlanRow, LadderPredictionRow
from trajectory.rows.outside import (
    AttributionRow,
    CalibratedRow,
    CalibrationRow,
    ConfirmedRow,
    ConfirmRow,
    Finalist,
    FinalistsRow,
    LadderRow,
    RowOfOneRun,
    StressOutcome,
    StressPurpose,
    StressRow,
    StressVerdict,
)
from trajectory.rows.protocol import EvaluationProtocol
from trajectory.rows.search import (
    SCHEMA,
    BaselineRow,
    CampaignRow,
    Decision,
    EventRow,
    IterationRow,
    Role,
    TrialRecord,
)

__all__ = [
    "SCHEMA",
    "AttributionRow",
    "BaselineRow",
    "CalibratedRow",
    "CalibrationRow",
    "CampaignRow",
    "ConfirmRow",
    "ConfirmedRow",
    "Decision",
    "EvaluationProtocol",
    "EventRow",
    "Finalist",
    "FinalistsRow",
    "IterationRow",
    "LadderPlanRow",
    "LadderPredictionRow",
    "LadderRow",
    "Role",
    "Row",
    "RowOfOneRun",
    "StressOutcome",
    "StressPurpose",
    "StressRow",
    "StressVerdict",
    "TrialRecord",
    "dump_row",
    "parse_row",
    "trials_of",
]

_Known: TypeAlias = (
    CampaignRow
    | BaselineRow
    | IterationRow
    | StressRow
    | FinalistsRow
    | AttributionRow
    | LadderPlanRow
    | LadderPredictionRow
    | LadderRow
    | ConfirmRow
    | ConfirmedRow
    | CalibrationRow
    | CalibratedRow
    | EventRow
)
Row: TypeAlias = _Known | RowOfOneRun
_ROW: TypeAdapter[Row] = TypeAdapter(Annotated[_Known, Field(discriminator="kind")])


def trials_of(row: Row) -> tuple[TrialRecord, ...]:
    """Return the trials that a row records."""
    if isinstance(row, IterationRow):
        return row.trials
    return (row.trial,) if isinstance(row, BaselineRow | RowOfOneRun) else ()


def parse_row(line: str | bytes) -> Row:
    """Parse one line of a journal as a row.

    Text was made safe when the row was written. It is made safe again only if it holds a secret of
    this environment or numbers that JSON lacks, as after an edit or in a copy from elsewhere.

    :raises pydantic.ValidationError: if the line is not a valid row.
    """
    row = _ROW.validate_json(line)
    said = line if isinstance(line, str) else line.decode()
    if "NaN" in said or "Infinity" in said or redact(said) != said:
        return _ROW.validate_python(from_json(line))
    return row


def dump_row(row: Row) -> str:
    """Return a row as one line of JSON, ``kind`` first, without a newline."""
    return row.model_dump_json(by_alias=True)
