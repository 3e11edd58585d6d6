"""Define the rows of trajectory.jsonl: every fact that a campaign records, as frozen types.

Proposals and verdicts are in :mod:`trajectory.proposals`. The values of a confirmation and a
calibration are in modules of their own.
"""

from typing import Annotated, TypeAlias

from pydantic import Field, TypeAdapter

from trajectory.proposals import parse_safe
from trajectory.rows.outside import (
    AttributionRow,
    CalibratedRow,
    CalibrationRow,
    ConfirmedRow,
    ConfirmRow,
    Finalist,
    FinalistsRow,
    LadderAsked,
    LadderPlanRow,
    LadderPredictionRow,
    LadderRow,
    LadderRun,
    PredictedLoss,
    Recipe,
    RowOfOneRun,
    StressOutcome,
    StressPurpose,
    StressRow,
    StressVerdict,
)
from trajectory.rows.protocol import EvaluationProtocol, Rules
from trajectory.rows.search import (
    SCHEMA,
    BaselineRow,
    CampaignRow,
    Decision,
    EventRow,
    IterationRow,
    Role,
    SpaceRow,
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
    "LadderAsked",
    "LadderPlanRow",
    "LadderPredictionRow",
    "LadderRow",
    "LadderRun",
    "PredictedLoss",
    "Recipe",
    "Role",
    "Row",
    "RowOfOneRun",
    "Rules",
    "SpaceRow",
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
    | SpaceRow
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

    :raises pydantic.ValidationError: if the line is not a valid row.
    """
    return parse_safe(_ROW, line)


def dump_row(row: Row) -> str:
    """Return a row as one line of JSON, ``kind`` first, without a newline."""
    return row.model_dump_json(by_alias=True)
