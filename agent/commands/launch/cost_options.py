"""What the commands about money have in common: rates, and whose run is billed."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from agent.search.first_row import read_campaign_row
from agent.settings.rates import Rates, read_rates
from autoresearch.errors import HandoffError, SettingsError
from funnel.cost.whole_bill import CloudRun, planned_run
from funnel.plan.handoff_files import PLAN_FILE

SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="NAME=VALUE",
        help="A rate by its published name, over the environment's: --set KWH_USD=0.30.",
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Machine-readable output.")]


def run_of(handoff: Path, campaign: Path | None) -> CloudRun:
    """The plan's run.

    :raises HandoffError: where it is another campaign's.
    """
    of, run = planned_run(handoff / PLAN_FILE)
    row = read_campaign_row(campaign) if campaign else None
    if row is not None and row.id != of:
        raise HandoffError(
            f"{handoff} is the launch plan of the campaign {of}, and {campaign} is {row.id}; name "
            "the plan and the campaign that belong together"
        )
    return run


def rates_of(overrides: list[str] | None) -> Rates:
    """The rates, with those of ``--set`` over the environment's.

    :raises SettingsError: where one makes no sense.
    """
    pairs = [text.partition("=") for text in overrides or ()]
    for name, equals, _ in pairs:
        if not equals:
            raise SettingsError(f"--set {name} has no value; write it like KWH_USD=0.30")
    return read_rates({name.strip(): value.strip() for name, _, value in pairs})
