"""What the page needs of a campaign: small, and free of everything it has to ask for."""

from __future__ import annotations

import math
from typing import Literal

from autoresearch.values import Frozen, Scalar
from trainer.spec import Direction, TrialFailed
from trajectory.confirmed import ConfirmedConfig
from trajectory.evidence import Evidence
from trajectory.rows import IterationRow


class Incumbent(Frozen):
    """The best config by evidence."""

    iter: int
    """0: the baseline."""
    config_hash: str
    n: int
    """Seeds measured."""


class Step(Frozen):
    """One incumbent's time."""

    iter: int
    """The iteration after which it was the incumbent; 0: the baseline."""
    objective: float
    """Its posterior mean now; the score it was kept with is a lucky one."""


class Brief(Frozen):
    """One finished iteration, as a line of the table and a mark in the chart."""

    iter: int
    at: str
    proposer: str
    action: Literal["keep", "discard", "none"]
    changes: dict[str, Scalar]
    config_hash: str | None
    objective: float | None
    """Mean over the candidate's seeds; None where nothing was measured."""
    stderr: float | None
    """Standard error of ``delta``."""
    delta: float | None
    """Against the reference; negative is better."""
    runs: int
    failed: str | None
    """How the candidate failed, or the rail that refused it."""
    n: int
    """Seeds behind ``objective``."""
    wall_s: float
    energy_wh: float | None


class Status(Frozen):
    """A campaign at one moment."""

    state: Literal["running", "paused", "silent", "done"]
    """``done``: nothing is in flight, and it has reached its iterations, was confirmed or imported,
    or none of its files changed for a minute. ``silent``: none changed for a minute although
    something is in flight."""
    caught_up: bool
    """False while a long journal is still being read."""
    silent_s: float
    iterations: int
    until: int | None
    """Iterations the loop at work is to reach, where one is at work and says so."""
    keeps: int
    pace_s: float | None
    """Mean wall time of the latest iterations."""
    eta_s: float | None
    """``pace_s`` times the iterations left."""
    unit: str
    """What every score is of."""
    direction: Direction
    """``maximise``: every number of a score here is its negative, of which lower is better, and
    every difference of scores likewise. Whoever shows one turns it back."""
    digits: int
    """Decimals of a score that are shown."""
    finding: str
    """What it found, in one clause."""
    incumbent: Incumbent | None
    incumbents: tuple[Step, ...]
    """All there were, in their order."""
    believed_objective: float | None
    """The incumbent's posterior mean."""
    gain: float | None
    """The incumbent's difference to the baseline as believed (:mod:`trajectory.ranking`), not on
    the seeds that chose it; negative is better."""
    gain_lo: float | None
    gain_hi: float | None
    """Its 95 % interval."""
    confirmed: ConfirmedConfig | None
    """What fresh runs say of the incumbent, where there were any."""
    sigma: float | None
    """Standard deviation of one run within a config."""
    run_half: float | None
    """Half the 95 % interval of one run's score; a mean of n has it over the root of n."""
    baseline_objective: float | None
    """What the baseline is believed to score."""
    baseline_lo: float | None
    baseline_hi: float | None
    """Its 95 % interval."""
    scale: tuple[float, float]
    """The ends of the axis of scores (:mod:`trajectory.statistics.score_axis`)."""
    failures: dict[str, int]
    energy_wh: float | None
    lanes: int | None = None
    """Trials that ran at once, at most; None where one did at a time."""
    lanes_in_use: float | None = None
    """The share of the lanes' time in which a trial ran on them."""
    lanes_in_use_of_hour: float | None = None
    """The same, by the rows of the hour before the newest."""


def incumbent_of(evidence: Evidence) -> Incumbent | None:
    """The incumbent; None before anything was measured."""
    best = evidence.configs.get(evidence.incumbent_hash or "")
    if best is None or not best.n:
        return None
    return Incumbent(iter=best.iter, config_hash=best.config_hash, n=best.n)


def brief_of(row: IterationRow) -> Brief:
    """The row in short."""
    decision = row.decision
    return Brief(
        iter=row.iter,
        at=row.at,
        proposer=row.proposer.kind,
        action=decision.action,
        changes=row.proposal.changes if row.proposal else {},
        config_hash=row.config_hash,
        objective=_finite(decision.estimate_bpb),
        stderr=_finite(decision.stderr),
        delta=_finite(decision.delta),
        runs=len(row.trials),
        failed=_failure(row),
        n=max(1, decision.pairs),
        wall_s=row.wall_s,
        energy_wh=row.energy_wh,
    )


def _failure(row: IterationRow) -> str | None:
    if not row.verdict.allowed:
        return f"refused: {row.verdict.rail}" if row.verdict.rail else "refused"
    failed = (
        trial.result.status
        for trial in row.trials
        if trial.role == "candidate" and isinstance(trial.result, TrialFailed)
    )
    return next(failed, None)


def _finite(number: float | None) -> float | None:
    return number if number is not None and math.isfinite(number) else None
