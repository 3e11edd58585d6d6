"""Convert trials for experiment trackers: parameters, metrics, tags, and times."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TypeAlias

from autoresearch.values import Scalar
from trainer.schema import AnyConfig, CurvePoint, Measured, TrialFailed
from trajectory.rows import BaselineRow, IterationRow, Row, RowOfOneRun, TrialRecord, trials_of

NOT_METRICS = {"status", "backend", "device", "precision", "texts", "checkpoints_bpb", "direction"}
Described: TypeAlias = BaselineRow | IterationRow | RowOfOneRun
"""Rows with trials and a config that they hold."""
CURVE_METRICS = ("loss", "lr", "grad_norm", "tokens", "elapsed_s")
"""Fields of a CurvePoint to report for each logged step, with their names and units."""


@dataclass(frozen=True, slots=True)
class Tracked:
    """One trial, ready for a tracker."""

    trial: TrialRecord
    config: AnyConfig | None
    """The trial's config; None if no earlier row describes it."""
    tags: dict[str, str] = field(default_factory=dict)
    ended_s: float = 0.0
    """Seconds since 1970."""

    @property
    def began_s(self) -> float:
        return self.ended_s - self.trial.wall_s

    @property
    def params(self) -> dict[str, Scalar]:
        """The config's fields, and the seed."""
        config = self.config.canonical() if self.config is not None else {}
        return {**config, "seed": self.trial.seed}

    @property
    def metrics(self) -> dict[str, float]:
        """Every number of the result under its own name; no score for a failure."""
        return metrics_of(self.trial.result)


def metrics_of(result: Measured | TrialFailed) -> dict[str, float]:
    """Return every number of a result under its own name, which includes its unit."""
    values = result.model_dump(exclude=NOT_METRICS | {"message"}, exclude_none=True)
    return {name: float(value) for name, value in values.items()}


def curve_metrics(point: CurvePoint) -> dict[str, float]:
    """Return the numbers of one logged step."""
    known = ((name, getattr(point, name)) for name in CURVE_METRICS)
    return {name: float(value) for name, value in known if value is not None}


def tracked_trials(rows: Iterable[Row]) -> Iterator[Tracked]:
    """Yield every trial of a campaign, with the time when it ended.

    A trial that ran beside others records its end. Other trials of a row ran one after the other,
    and the last ended when the row was written.
    """
    configs: dict[str, AnyConfig] = {}
    for row in rows:
        if not isinstance(row, Described):
            continue
        if row.config is not None and row.config_hash is not None:
            configs[row.config_hash] = row.config
        trials = trials_of(row)
        end_s = seconds_of(row.at)
        for index, trial in enumerate(trials):
            tags = {
                "kind": row.kind,
                "role": trial.role,
                "status": trial.result.status,
                "config_hash": trial.config_hash,
            }
            if isinstance(trial.result, TrialFailed):
                tags["message"] = trial.result.message
            if isinstance(row, IterationRow):
                tags |= {
                    "iter": str(row.iter),
                    "proposer": row.proposer.kind,
                    "action": row.decision.action,
                    "reason": row.proposal.reason if row.proposal is not None else "",
                }
            yield Tracked(
                trial=trial,
                config=configs.get(trial.config_hash),
                tags=tags,
                ended_s=(end_s - sum(later.wall_s for later in trials[index + 1 :]))
                if trial.at is None
                else seconds_of(trial.at),
            )


def seconds_of(at: str) -> float:
    """Return a row's time in seconds since 1970; 0 if it is not ISO 8601, as only in an edited
    journal."""
    try:
        moment = datetime.fromisoformat(at)
    except ValueError:
        return 0.0
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
