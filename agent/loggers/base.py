"""Interface of run loggers, which receive events one after another until closed.

A logger talks to other programs, so it may fail or hang. It therefore never runs in the loop's
thread (:mod:`agent.loggers.background`), and all its inputs are frozen values.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol, TypeAlias

from autoresearch.values import Scalar
from trainer.schema import CurvePoint, TrialSpec
from trajectory.formats.tracked import curve_metrics, metrics_of
from trajectory.rows import BaselineRow, CampaignRow, IterationRow, Role, TrialRecord


@dataclass(frozen=True, slots=True)
class CampaignFacts:
    """Facts about the campaign that a logger knows from the start."""

    directory: Path
    id: str
    config: dict[str, Scalar]
    """Settings that define the measurement, for the tracker's page of settings."""

    @property
    def name(self) -> str:
        """Directory name and campaign id, since two directories may have the same name."""
        return f"{self.directory.resolve().name} {self.id}"

    @classmethod
    def of(cls, directory: Path, row: CampaignRow) -> CampaignFacts:
        data: dict[str, str] = {}
        if row.corpus is not None:
            data = {"corpus": row.corpus.name, "corpus_sha256": row.corpus.sha256}
        elif row.script is not None:
            data = {
                "script": row.script.directory,
                "script_sha256": row.script.sha256,
                "unit": row.measured_in.unit,
                "direction": row.measured_in.direction,
            }
        return cls(
            directory,
            row.id,
            {
                "campaign_id": row.id,
                "menu": row.menu_name,
                "menu_sha256": row.menu_sha256,
                **data,
                "budget": str(row.budget),
                "horizon_steps": row.horizon_steps or "budget",
                "backend": row.backend,
                "device": row.device,
                "reference": row.reference,
                "seed": row.seed,
            },
        )


@dataclass(frozen=True, slots=True)
class TrialBegan:
    """A trial was started."""

    spec: TrialSpec
    role: Role


@dataclass(frozen=True, slots=True)
class TrialPoint:
    """A running trial logged a step."""

    trial_id: str
    point: CurvePoint


RunEvent: TypeAlias = TrialBegan | TrialPoint | TrialRecord | BaselineRow | IterationRow
"""A record is that of a trial that ended. A trial resumed from before a stop has no start event."""


class RunLogger(Protocol):
    """Interface that connects an experiment tracker."""

    def log(self, event: RunEvent) -> None:
        """Process one event. Whatever it raises ends this logger and nothing else."""

    def close(self) -> None:
        """Flush and close everything."""


@dataclass(frozen=True, slots=True)
class Numbers:
    """The numbers of one event, each with its unit in its name."""

    group: Literal["trial", "result", "iteration", "baseline"]
    """``trial`` is a point of a trial's curve, ``result`` what the trial ended with."""
    values: dict[str, float]
    step: int
    trial_id: str | None = None
    """The trial that they belong to; None for the campaign's own numbers."""


def numbers_of(event: RunEvent) -> Numbers | None:
    """Return an event's numbers; None if it has none."""
    if isinstance(event, TrialPoint):
        return Numbers("trial", curve_metrics(event.point), event.point.step, event.trial_id)
    if isinstance(event, TrialRecord):
        return Numbers("result", metrics_of(event.result), 0, event.trial_id)
    if isinstance(event, BaselineRow) and event.trial.objective is not None:
        return Numbers("baseline", {"objective": event.trial.objective}, event.trial.seed)
    if not isinstance(event, IterationRow):
        return None
    decision = event.decision
    numbers = {
        "estimate_objective": decision.estimate_objective,
        "reference_objective": decision.reference_objective,
        "delta": decision.delta,
        "stderr": decision.stderr,
        "kept": float(decision.action == "keep"),
        "refused": float(not event.verdict.allowed),
        "runs": float(len(event.trials)),
        "wall_s": event.wall_s,
        "energy_wh": event.energy_wh,
        "proposer_latency_s": event.proposer.latency_s,
    }
    known = {name: value for name, value in numbers.items() if value is not None}
    return Numbers("iteration", known, event.iter)
