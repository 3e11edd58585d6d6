"""Choose the two recipes that a campaign's ladder compares."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from agent.search.campaign import Campaign
from autoresearch.errors import CampaignError
from trainer.spec import Config, TrialOk, gpt
from trajectory.ladder_plan import Recipe
from trajectory.rows import FinalistsRow, Row, StressRow


@dataclass(frozen=True, slots=True)
class Candidates:
    """The two recipes, and the schedule that they were found with."""

    winner: Config
    chosen_by: Literal["stress", "search"]
    baseline: Config
    source_steps: int
    """Steps of the schedule that their learning rates were found with."""

    def recipes(self) -> Iterator[tuple[Recipe, Config]]:
        """Yield each recipe with its name; only the winner, if it is the baseline itself."""
        yield "winner", self.winner
        if self.baseline != self.winner:
            yield "baseline", self.baseline


def candidates_of(campaign: Campaign, rows: Sequence[Row]) -> Candidates:
    """Return the baseline and the winner: the best of the latest stress test, else the incumbent.

    :param rows: the rows of the journal.
    :raises CampaignError: if nothing was measured.
    """
    finalist = best_finalist(rows)
    if finalist is not None:
        config, steps = finalist
        return Candidates(config, "stress", gpt(campaign.menu.baseline), steps)
    incumbent = campaign.evidence.incumbent_hash
    if incumbent is None:
        raise CampaignError(
            "nothing was measured in this campaign yet, so there is nothing to make a ladder of; "
            "run autoresearch loop first"
        )
    entry = campaign.evidence.configs[incumbent]
    settings = campaign.settings
    horizon = settings.horizon_steps or settings.budget.steps(entry.config.tokens_per_step)
    if horizon is None:  # a budget in seconds: use the most steps reached
        measured = campaign.history.measurements(incumbent)
        horizon = max(getattr(record.result, "steps", 0) or 0 for record in measured)
    return Candidates(gpt(entry.config), "search", gpt(campaign.menu.baseline), horizon)


def best_finalist(rows: Sequence[Row]) -> tuple[Config, int] | None:
    """Return the best finalist of the latest stress test that has any, and the steps of its runs'
    schedule."""
    latest = next((r for r in reversed(rows) if isinstance(r, FinalistsRow) and r.finalists), None)
    if latest is None:
        return None
    name = latest.finalists[0].config_hash
    for row in reversed(rows):
        if isinstance(row, StressRow) and (row.config_hash, row.steps) == (name, latest.steps):
            result = row.trial.result
            return gpt(row.config), result.steps if isinstance(result, TrialOk) else latest.steps
    return None
