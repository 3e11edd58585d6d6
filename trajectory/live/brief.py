"""Summaries for the live page: small, without data that the page requests separately."""

import math
from collections.abc import Iterable
from typing import Any, Literal

from autoresearch.values import Frozen, Scalar
from autoresearch.words import brief
from trainer.schema import Direction, TrialFailed
from trajectory.headline import Headline
from trajectory.ranking import Posteriors
from trajectory.reading import Results
from trajectory.report.canvas import score_limits
from trajectory.rows import IterationRow
from trajectory.statistics.intervals import of_runs


class Incumbent(Frozen):
    """The best config by evidence."""

    iter: int
    """The iteration that first proposed it; 0 for the baseline."""
    config_hash: str
    n: int
    """Seeds measured."""


class Step(Frozen):
    """One incumbent, and when it became the incumbent."""

    iter: int
    """The iteration after which it became the incumbent; 0 for the baseline."""
    objective: float
    """Its posterior mean now; the score that it was kept with is biased by luck."""


class Brief(Frozen):
    """One finished iteration, as a line of the table and a mark in the chart."""

    iter: int
    at: str
    proposer: str
    action: Literal["keep", "discard", "none"]
    changes: dict[str, Scalar]
    config_hash: str | None
    objective: float | None
    """Mean over the candidate's seeds; None if nothing was measured."""
    stderr: float | None
    """Standard error of ``delta``."""
    delta: float | None
    """Difference to the reference; negative is better."""
    runs: int
    failed: str | None
    """The candidate's failure status, or the rail that refused it."""
    n: int
    """Seeds behind ``objective``."""
    wall_s: float
    energy_wh: float | None


class Status(Frozen):
    """A campaign at one moment."""

    state: Literal["running", "paused", "silent", "done"]
    """``done``: nothing is in flight, and the campaign reached its iterations, was confirmed or
    imported, or none of its files changed for a minute. ``silent``: no file changed for a minute
    although something is in flight."""
    silent_s: float
    iterations: int
    until: int | None
    """Number of iterations that the running loop is to reach; None if no loop has recorded it."""
    keeps: int
    pace_s: float | None
    """Mean wall time of the latest iterations."""
    eta_s: float | None
    """``pace_s`` times the iterations left."""
    unit: str
    """Unit of every score."""
    direction: Direction
    """With ``maximise``, every score and difference here is negated, so that lower is better.
    Displays negate it again."""
    digits: int
    """Decimals of a score to show."""
    headline: Headline
    """The result so far."""
    incumbent: Incumbent | None
    incumbents: tuple[Step, ...]
    """All incumbents so far, in order."""
    believed_objective: float | None
    """The incumbent's posterior mean."""
    gain: float | None
    """Posterior mean of the incumbent's difference to the baseline (:mod:`trajectory.ranking`), not
    the difference on the seeds that chose it; negative is better."""
    gain_lo: float | None
    gain_hi: float | None
    """Its 95 % interval."""
    sigma: float | None
    """Standard deviation of one run within a config."""
    run_half: float | None
    """Half the 95 % interval of one run's score; for a mean of n runs, divide it by the root of
    n."""
    baseline_objective: float | None
    """The baseline's posterior mean."""
    baseline_lo: float | None
    baseline_hi: float | None
    """Its 95 % interval."""
    scale: tuple[float, float]
    """Ends of the axis of scores (:mod:`trajectory.report.canvas`)."""
    failures: dict[str, int]
    energy_wh: float | None
    lanes: int | None = None
    """Most trials that ran at the same time; None if only one did."""
    lanes_in_use: float | None = None
    """Share of the lanes' time during which they ran trials."""
    lanes_in_use_of_hour: float | None = None
    """The same share, over the hour before the newest row."""


def brief_of(row: IterationRow) -> Brief:
    """Return the summary of a row."""
    decision = row.decision
    failed: str | None = next(
        (
            trial.result.status
            for trial in row.trials
            if trial.role == "candidate" and isinstance(trial.result, TrialFailed)
        ),
        None,
    )
    if not row.verdict.allowed:
        failed = f"refused: {row.verdict.rail}" if row.verdict.rail else "refused"
    return Brief(
        iter=row.iter,
        at=row.at,
        proposer=row.proposer.name,
        action=decision.action,
        changes={name: brief(name, one) for name, one in row.proposal.changes.items()}
        if row.proposal
        else {},
        config_hash=row.config_hash,
        objective=_finite(decision.estimate_objective),
        stderr=_finite(decision.stderr),
        delta=_finite(decision.delta),
        runs=len(row.trials),
        failed=failed,
        n=max(1, decision.pairs),
        wall_s=row.wall_s,
        energy_wh=row.energy_wh,
    )


def _finite(number: float | None) -> float | None:
    return number if number is not None and math.isfinite(number) else None


def estimates(state: Results, briefs: Iterable[Brief]) -> dict[str, Any]:
    """Return the fields of a status that hold estimates.

    :param briefs: all finished iterations.
    """
    evidence, posteriors = state.evidence, Posteriors.of(state.evidence)
    noise = posteriors.noise
    best = next(iter(posteriors.of_configs([evidence.incumbent_hash or ""])), None)
    baseline = posteriors.baseline_estimate()
    objectives = posteriors.objectives(reign.config_hash for reign in state.reigns)
    steps = tuple(
        Step(iter=reign.iter, objective=objectives[reign.config_hash])
        for reign in state.reigns
        if reign.config_hash in objectives
    )
    gain = (best.delta_vs_baseline, best.delta_lo, best.delta_hi) if best else (None,) * 3
    return {
        "headline": Headline.of(posteriors, state.confirmed(), state.campaign),
        "incumbent": Incumbent(iter=best.iter, config_hash=best.config_hash, n=best.n)
        if best
        else None,
        "incumbents": steps,
        "believed_objective": best.objective if best else None,
        "gain": gain[0],
        "gain_lo": gain[1],
        "gain_hi": gain[2],
        "sigma": noise.sigma if noise else None,
        "run_half": noise.half_interval() if noise else None,
        "baseline_objective": baseline.value if baseline else None,
        "baseline_lo": baseline.lo if baseline else None,
        "baseline_hi": baseline.hi if baseline else None,
        "scale": score_limits(
            [of_runs(one.objective, one.n, noise) for one in briefs if one.objective is not None],
            baseline,
            [step.objective for step in steps],
            noise,
        ),
    }
