"""What a run logger is: something that is told events, one after the other, until it is closed.

It may fail and it may hang, for it talks to other programs. So it never runs in the loop's thread
(:mod:`agent.loggers.background`), and everything it is told is a frozen value.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeAlias

from autoresearch.values import Scalar
from trainer.spec import CurvePoint, TrialSpec
from trajectory.rows import BaselineRow, CampaignRow, IterationRow, Role, TrialRecord


@dataclass(frozen=True, slots=True)
class CampaignFacts:
    """What a logger knows of the campaign from the start."""

    directory: Path
    id: str
    config: dict[str, Scalar]
    """What it is measured with, for the tracker's page of settings."""

    @property
    def name(self) -> str:
        """The directory's name and the campaign's id, as two directories may have one name."""
        return f"{self.directory.resolve().name} {self.id}"

    @classmethod
    def of(cls, directory: Path, row: CampaignRow) -> CampaignFacts:
        return cls(
            directory,
            row.id,
            {
                "campaign_id": row.id,
                "menu": row.menu_name,
                "menu_sha256": row.menu_sha256,
                **_ruler(row),
                "budget": str(row.budget),
                "horizon_steps": row.horizon_steps or "budget",
                "backend": row.backend,
                "device": row.device,
                "reference": row.reference,
                "seed": row.seed,
            },
        )


def _ruler(row: CampaignRow) -> dict[str, str]:
    """The text that is trained on, or the script whose score it is."""
    if row.corpus is not None:
        return {"corpus": row.corpus.name, "corpus_sha256": row.corpus.sha256}
    if row.script is None:
        return {}
    return {
        "script": row.script.directory,
        "script_sha256": row.script.sha256,
        "unit": row.measured_in.unit,
        "direction": row.measured_in.direction,
    }


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


@dataclass(frozen=True, slots=True)
class TrialEnded:
    """A trial ended. One that was taken up from before a stop has not begun here."""

    trial: TrialRecord


RunEvent: TypeAlias = TrialBegan | TrialPoint | TrialEnded | BaselineRow | IterationRow


class RunLogger(Protocol):
    """The seam where an experiment tracker plugs in."""

    def log(self, event: RunEvent) -> None:
        """Take in one event. Whatever it raises ends this logger and nothing else."""
        ...

    def close(self) -> None:
        """See everything through to where it belongs."""
        ...


def iteration_metrics(row: IterationRow) -> dict[str, float]:
    """The numbers of an iteration, each with its unit in its name; only those that there are."""
    decision = row.decision
    numbers = {
        "estimate_bpb": decision.estimate_bpb,
        "reference_bpb": decision.reference_bpb,
        "delta_bpb": decision.delta,
        "stderr_bpb": decision.stderr,
        "kept": float(decision.action == "keep"),
        "refused": float(not row.verdict.allowed),
        "runs": float(len(row.trials)),
        "wall_s": row.wall_s,
        "energy_wh": row.energy_wh,
        "proposer_latency_s": row.proposer.latency_s,
    }
    return {name: value for name, value in numbers.items() if value is not None}
