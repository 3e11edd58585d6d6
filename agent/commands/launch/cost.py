"""``autoresearch cost``: compute cost, from rates to break-even."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

import typer
from pydantic import Field
from rich.text import Text

from agent.commands.options import JsonOption, fill, takes
from agent.search.campaign_start import read_campaign_row
from agent.session.console import answer
from agent.session.places import existing_campaign
from autoresearch.errors import HandoffError, SettingsError
from autoresearch.layout import JOURNAL_FILE
from autoresearch.values import Frozen, NonNegative, PositiveInt
from funnel.cost.argument import argument_view
from funnel.cost.bill import Bill, CloudRun, make_bill, plan_of, planned_run
from funnel.cost.figures import View, usd_text
from funnel.cost.gpus import find_gpu
from funnel.cost.measured import SearchUsage, measured_of, measured_usage
from funnel.cost.ownership import cluster_view, month_view
from funnel.cost.rates import Rates, read_rates
from funnel.plan.handoff_files import PLAN_FILE
from funnel.plan.timeline import measured_speed, own_arithmetic, rated_speed, timeline_view
from funnel.targets.architecture import load_target
from trajectory.reading import Results

CostView: TypeAlias = Literal["search", "cluster", "month", "timeline"]
OPTIONS: dict[CostView, set[str]] = {
    "search": {"campaign", "handoff"},
    "cluster": {"gpus", "gpu"},
    "month": {"searches", "runs", "units", "campaign", "handoff"},
    "timeline": {"target", "units", "campaign"},
}
"""The options of each view; all views take the rates and ``--json``."""
ViewArgument = Annotated[CostView, typer.Argument(help="What to compute.", show_default=True)]
RatesOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="NAME=VALUE", help="Set a rate, like --set KWH_USD=0.30. Repeatable."
    ),
]


class CostOptions(Frozen):
    """Options of the views that can be given once."""

    campaign: Path | None = Field(
        None, description="Use this campaign's measured seconds, energy and speed."
    )
    handoff: Path | None = Field(
        None,
        description="Use the final run of this launch plan's directory. Default: handoff, if it is "
        "a plan of the campaign.",
    )
    gpus: Annotated[int, Field(ge=1, le=10**9)] = Field(8, description="cluster: rented GPUs.")
    gpu: str = Field("h100", description="cluster: h100, h200 or b200.")
    searches: PositiveInt = Field(4, description="month: searches, on owned units.")
    runs: NonNegative = Field(1.0, description="month: final runs, rented.")
    units: PositiveInt = Field(1, description="month, timeline: units owned.")
    target: str = Field("llama-7b", description="timeline: a shipped target's name or a TOML file.")


@takes(CostOptions, partly=True)
def cost(
    *,
    view: ViewArgument = "search",
    asked: dict[str, Any],
    rates: RatesOption = None,
    as_json: JsonOption = False,
) -> None:
    """Compute the cost of a search here and in the cloud, and payoff.

    search: what a search costs here and in the cloud, and when it pays. cluster: units owned
    against GPUs rented. month: searches on owned units and final runs on rented GPUs. timeline:
    days of a target's training on owned units.

    Rates come from the environment or --set; docs/money.md lists them with their defaults.
    """
    for name in set(asked) - OPTIONS[view]:
        takes = ", ".join(f"--{option}" for option in sorted(OPTIONS[view]))
        raise typer.BadParameter(f"cost {view} has no --{name}; it takes {takes}")
    pairs = [text.partition("=") for text in rates or ()]
    for name, equals, _ in pairs:
        if not equals:
            raise SettingsError(f"--set {name} has no value; write it like KWH_USD=0.30")
    chosen = read_rates({name.strip(): value.strip() for name, _, value in pairs})
    options = fill(CostOptions, asked)
    directory = existing_campaign(options.campaign) if options.campaign else None
    before: list[str] = []
    if view == "cluster":
        shown = cluster_view(chosen, find_gpu(options.gpu), options.gpus)
    elif view == "timeline":
        speed = measured_speed(directory) if directory else rated_speed(chosen)
        shown = timeline_view(load_target(options.target), speed, chosen, options.units)
    else:
        usage = measured_usage(directory, chosen) if directory else SearchUsage.supposed(chosen)
        run = _run(options.handoff, directory)
        if view == "month":
            amounts = options.model_dump(include={"searches", "runs", "units"})
            shown = month_view(chosen, make_bill(chosen, usage, run), **amounts)
        else:
            bill = make_bill(chosen, usage, run, measured_of(directory) if directory else None)
            before = [*usage.lines(), *_measured_lines(bill, directory), _plan_line(chosen, run)]
            shown = argument_view(chosen, usage, bill)
    answer(shown.as_json(), _lines(shown, before), as_json=as_json)


def _measured_lines(bill: Bill, campaign: Path | None) -> Iterator[str]:
    yield from (f"measured  {line}" for line in bill.measured.lines())
    if campaign is not None:
        paid = usd_text(bill.search.usd)
        yield f"search    cost {paid}, by its time and energy, long runs included"
        yield f"result    {Results(campaign / JOURNAL_FILE).headline().line}"


def _plan_line(rates: Rates, run: CloudRun | None) -> str:
    if run is not None:
        return f"plan      costs {usd_text(run.usd)}, as {run.source} priced it"
    hours, usd = own_arithmetic(rates)
    return (
        f"plan      none: {rates.final_node_hours:g} h on 8 H100 are the article's assumption; by "
        f"this product's arithmetic llama-7b takes {hours:,.0f} h there, {usd_text(usd)} at the "
        "same price"
    )


def _run(handoff: Path | None, campaign: Path | None) -> CloudRun | None:
    """Return the plan's run; None without a plan.

    :raises HandoffError: if the named plan belongs to another campaign.
    """
    row = read_campaign_row(campaign) if campaign else None
    if handoff is None:
        return plan_of(row.id if row else None)
    planned_for, run = planned_run(handoff / PLAN_FILE)
    if row is not None and row.id != planned_for:
        raise HandoffError(
            f"{handoff} is the launch plan of the campaign {planned_for}, and {campaign} is "
            f"{row.id}; choose a plan and a campaign that belong together"
        )
    return run


def _lines(view: View, before: list[str]) -> Iterator[str | Text]:
    yield from before
    for section in view.sections:
        yield Text(f"\n{section.title}", style="bold")
        for figure in section.figures:
            words = f"  {figure.label:<56} {figure.text():>12}   "
            yield Text.assemble(words, (figure.formula, "cyan"))
    if view.verdict:
        yield Text(view.verdict, style="bold")
    yield Text("\nassumed", style="bold")
    for assumption in view.assumptions:
        yield Text(f"  {assumption}", style="dim")
