"""The attribution that a campaign's journal holds, for the launch plan."""

from __future__ import annotations

from pathlib import Path

from agent.menu.files import menu_of
from autoresearch.errors import CampaignError
from autoresearch.layout import JOURNAL_FILE
from funnel.attribution.plan import AttributionPlan
from funnel.attribution.report import AttributionResult
from funnel.attribution.runs import plan_worths
from trainer.spec import Config
from trajectory.journal import read_rows
from trajectory.rows import AttributionRow, CampaignRow


def read_attribution(directory: Path, winner: Config) -> AttributionResult | None:
    """What was measured of this winner's changes, by its latest attribution; None where none was.

    :raises JournalError: where the journal is damaged.
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
    return AttributionResult.of(plan, plan_worths(plan, rows), rows)
