"""The result of an attribution: each of the winner's changes, and what it was worth."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from agent.menu.files import menu_of
from autoresearch.errors import CampaignError
from autoresearch.layout import JOURNAL_FILE
from autoresearch.values import Frozen, PositiveInt, Scalar
from funnel.attribution.plan import AttributionPlan, TakenBack
from funnel.attribution.worth import Estimate, worths
from trainer.spec import Config
from trajectory.journal import read_rows
from trajectory.rows import AttributionRow, CampaignRow


class ChangeWorth(Frozen):
    """One change of the winner's, and the cost of undoing it alone."""

    knob: str
    baseline: Scalar
    winner: Scalar
    worth: Estimate | None
    """Worth in bits per byte, above zero if the change helps beside all others. None if not
    measured."""
    why_not: str = ""
    """The reason that the change was not measured."""


class AttributionResult(Frozen):
    """The worth of each of the winner's changes."""

    winner_hash: str
    steps: PositiveInt
    """Steps of a run."""
    seeds: tuple[int, ...]
    gain: Estimate | None
    changes: tuple[ChangeWorth, ...]
    """Changes in the menu's order."""
    remainder: Estimate | None
    """The gain that no change has alone."""

    @classmethod
    def of(cls, plan: AttributionPlan, rows: Sequence[AttributionRow]) -> AttributionResult:
        """Return the worth of a plan's changes, from its rows.

        :param rows: the newest first. Of a seed run twice, the newest score counts.
        """
        measured: dict[tuple[str, int], float] = {}
        for row in rows:
            if row.steps == plan.steps and row.trial.objective is not None:
                measured.setdefault((row.config_hash, row.trial.seed), row.trial.objective)
        scores = {
            name: {
                seed: measured[name, seed] for seed in plan.seeds[::-1] if (name, seed) in measured
            }
            for name in (config.config_hash for config in plan.configs)
        }
        found = worths(
            scores,
            plan.winner.config_hash,
            plan.baseline.config_hash,
            [change.config.config_hash if change.config else None for change in plan.changes],
        )
        return cls(
            winner_hash=plan.winner.config_hash,
            steps=plan.steps,
            seeds=plan.seeds,
            gain=found.gain,
            changes=tuple(
                ChangeWorth(
                    knob=change.knob,
                    baseline=change.baseline,
                    winner=change.winner,
                    worth=worth,
                    why_not="" if worth else change.why_not or _failures(rows, change),
                )
                for change, worth in zip(plan.changes, found.changes, strict=True)
            ),
            remainder=found.remainder,
        )

    @property
    def harmful(self) -> tuple[str, ...]:
        """Knobs whose change makes the winner worse: the whole interval is below zero."""
        return tuple(c.knob for c in self.changes if c.worth is not None and c.worth.harms)


def _failures(rows: Sequence[AttributionRow], change: TakenBack) -> str:
    """Return how the runs without this change ended, if they have no score."""
    ended = [
        row.trial.result.status
        for row in rows
        if row.config == change.config and row.trial.objective is None
    ]
    if not ended:
        return "no run of it has ended yet"
    return f"without it {len(ended)} of its runs ended with no score ({', '.join(ended)})"


def read_attribution(directory: Path, winner: Config) -> AttributionResult | None:
    """Return the result of the latest attribution of this winner's changes; None if there is none.

    :raises JournalError: if the journal is damaged.
    """
    first: CampaignRow | None = None
    rows: list[AttributionRow] = []
    for row in read_rows(directory / JOURNAL_FILE):
        if isinstance(row, CampaignRow):
            first = row
        elif isinstance(row, AttributionRow):
            rows.insert(0, row)
    latest = next((row for row in rows if row.winner_hash == winner.config_hash), None)
    if first is None or latest is None:
        return None
    seeds = {row.trial.seed for row in rows if row.steps == latest.steps}
    try:
        plan = AttributionPlan.of(
            menu_of(first),
            winner,
            budget=first.budget,
            steps=latest.steps,
            seeds=sorted(seeds, reverse=True),
        )
    except CampaignError:
        return None
    return AttributionResult.of(plan, rows)
