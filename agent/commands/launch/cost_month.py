"""``autoresearch cost month``: searches on owned units and runs on rented GPUs, in one month."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from pydantic import Field
from rich.console import Console

from agent.commands.launch.cost_options import JsonOption, SetOption, rates_of, run_of
from agent.commands.launch.cost_tables import print_assumptions, print_section
from agent.commands.options import takes
from agent.workbench.console import say
from agent.workbench.places import existing_campaign
from autoresearch.values import Frozen
from funnel.cost.cluster import UNIT_TFLOPS
from funnel.cost.measured import Measured
from funnel.cost.month import MonthQuestion, compare_month, month_assumptions, month_section
from funnel.cost.usage import Usage, measured_usage
from funnel.cost.whole_bill import CloudRun, whole_bill


class MonthAsked(Frozen):
    """What is done in a month."""

    searches: int = Field(4, ge=1, description="Searches, on owned units.")
    runs: float = Field(1.0, ge=0, description="Final runs, rented; 0.5 is one in two months.")
    units: int = Field(1, ge=1, description="Units owned.")
    unit_tflops: float = Field(UNIT_TFLOPS, description="That a unit reaches in training.")


@takes(MonthAsked)
def month(
    *,
    asked: MonthAsked,
    campaign: Annotated[
        Path | None, typer.Option("--campaign", help="Take a search's hours from its rows.")
    ] = None,
    handoff: Annotated[
        Path | None, typer.Option("--handoff", help="Take the run from this launch plan.")
    ] = None,
    rates: SetOption = None,
    as_json: JsonOption = False,
) -> None:
    """A month of both: searches on units that are owned, final runs on GPUs that are rented.

    Hybrid = units × capex / life in months + searches × electricity + runs. Beside it: all of it
    rented, all of it owned, and from how many searches a month a unit pays.
    """
    chosen = rates_of(rates)
    directory = existing_campaign(campaign, None) if campaign else None
    bill = whole_bill(
        chosen,
        measured_usage(directory, chosen) if directory else Usage.supposed(chosen),
        run_of(handoff, directory) if handoff else CloudRun.supposed(chosen),
        Measured(),
    )
    question = MonthQuestion.model_validate(asked.model_dump())
    answer = compare_month(chosen, bill, question)
    section = month_section(chosen, bill, question, answer)
    assumptions = month_assumptions(chosen, question)
    if as_json:
        report = {
            "asked": question.model_dump(),
            section.name: section.values(),
            "verdict": answer.verdict(),
            "formulas": section.formulas(),
            "bill": bill.as_json(),
            "assumptions": assumptions,
        }
        typer.echo(json.dumps(report))
        return
    console = Console()
    print_section(console, section)
    say(console, answer.verdict(), "bold")
    print_assumptions(console, assumptions)
