"""``autoresearch cost``: compute cost, from rates to break-even."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from agent.search.first_row import read_campaign_row
from agent.settings.rates import Rates, read_rates
from agent.workbench.console import say
from agent.workbench.places import existing_campaign
from autoresearch.errors import HandoffError, SettingsError
from funnel.cost.argument import argument_view
from funnel.cost.bill import CloudRun, make_bill, planned_run
from funnel.cost.figures import View
from funnel.cost.gpus import find_gpu
from funnel.cost.measured import measured_of
from funnel.cost.ownership import cluster_view, month_view
from funnel.cost.speed import choose_speed, positive
from funnel.cost.timeline import Phase, Timeline, TrainedModel, plan_timeline
from funnel.cost.usage import Usage, measured_usage
from funnel.plan.handoff_files import PLAN_FILE
from funnel.target.architecture import load_target

app = typer.Typer(invoke_without_command=True)

CampaignOption = Annotated[
    Path | None,
    typer.Option("--campaign", help="Use this campaign's measured seconds, energy and speed."),
]
HandoffOption = Annotated[
    Path | None,
    typer.Option("--handoff", help="Use the final run of this launch plan's directory."),
]
SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="NAME=VALUE",
        help="Set a rate, like --set KWH_USD=0.30. Repeatable.",
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Machine-readable output.")]


@app.callback()
def cost(
    context: typer.Context,
    campaign: CampaignOption = None,
    handoff: HandoffOption = None,
    rates: SetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Compute the cost of a search here and in the cloud, and payoff.

    Rates come from H100_HOURLY_USD, H200_HOURLY_USD, B200_HOURLY_USD, SPARK_KW, KWH_USD,
    SPARK_CAPEX_USD, SPARK_LIFE_YEARS, ITER_SECONDS, CAMPAIGN_ITERS, FINAL_NODE_HOURS,
    WRONG_PICK_RATE, WRONG_PICK_RATE_AFTER, TARGET_SCALE, H100_SPEEDUP, PREEMPTIONS_PER_DAY,
    CHECKPOINT_HOURS, RESTART_HOURS, SPARK_TFLOPS, SPARK_GIB, SPARK_SCALING, GPU_UTILISATION and
    HOURS_PER_MONTH, in the environment or by --set; published rates are the defaults. With
    --handoff the final run is the plan's.

    Cost of use S = hours × capex / (life × 8,766 h) + kWh × price. Final run F = 8 × GPU-hour ×
    hours. Savings = p × F − S. Break-even p = S / F.
    """
    if context.invoked_subcommand is not None:
        if campaign or handoff or rates or as_json:
            raise typer.BadParameter(f"give options after {context.invoked_subcommand}")
        return
    chosen = _rates(rates)
    directory = existing_campaign(campaign) if campaign else None
    usage = measured_usage(directory, chosen) if directory else Usage.supposed(chosen)
    measured = measured_of(directory) if directory else None
    bill = make_bill(chosen, usage, _run(handoff, directory), measured)
    found = bill.measured.lines()
    before = [*usage.lines(), *(f"measured  {line}" for line in found)]
    _show(argument_view(chosen, usage, bill), before, as_json=as_json)


@app.command()
def cluster(
    gpus: Annotated[int, typer.Option(help="Rented GPUs.", min=1, max=10**9)] = 8,
    gpu: Annotated[str, typer.Option(help="GPU model: h100, h200 or b200.")] = "h100",
    rates: SetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Desktop units owned against GPUs rented: how many, a month of each, the break-even month.

    Units = GPUs × GPU TFLOP/s / (unit TFLOP/s × scaling), rounded up. Owned a month = units ×
    (capex / life in months + kW × hours × price). Rented a month = GPUs × GPU-hour × hours.
    Break-even month = capex / (rent − power).
    """
    _show(cluster_view(_rates(rates), find_gpu(gpu), gpus), [], as_json=as_json)


@app.command()
def month(
    searches: Annotated[int, typer.Option(help="Searches per month, on owned units.", min=1)] = 4,
    runs: Annotated[float, typer.Option(help="Final runs per month, rented.", min=0)] = 1.0,
    units: Annotated[int, typer.Option(help="Units owned.", min=1)] = 1,
    campaign: CampaignOption = None,
    handoff: HandoffOption = None,
    rates: SetOption = None,
    as_json: JsonOption = False,
) -> None:
    """A month of both: searches on units that are owned, final runs on GPUs that are rented.

    Hybrid = units × capex / life in months + searches × electricity + runs. Beside it: all of it
    rented, all of it owned, and from how many searches a month a unit pays.
    """
    chosen = _rates(rates)
    directory = existing_campaign(campaign) if campaign else None
    usage = measured_usage(directory, chosen) if directory else Usage.supposed(chosen)
    bill = make_bill(chosen, usage, _run(handoff, directory))
    view = month_view(chosen, bill, searches=searches, runs=runs, units=units)
    _show(view, [], as_json=as_json)


@app.command()
def timeline(
    target: Annotated[
        str, typer.Option(help="A shipped target's name or a TOML file.")
    ] = "llama-7b",
    tokens: Annotated[float | None, typer.Option(help="Default: the target's budget.")] = None,
    phase: Annotated[
        list[str] | None,
        typer.Option(
            metavar="SEQ:SHARE",
            help="Context length and share of the tokens; repeat. Default: the target's, all.",
        ),
    ] = None,
    tokens_per_s: Annotated[
        float | None, typer.Option(help="Of one unit, measured on the target itself.")
    ] = None,
    campaign: CampaignOption = None,
    units: Annotated[int, typer.Option(help="Machines.", min=1)] = 1,
    rates: SetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Days of each phase of a curriculum, and the parallelism it needs.

    FLOPs a token = 6 × weights in matrix products + 6 × layers × d_model × context. Tokens/s =
    units × scaling × measured FLOP/s / FLOPs a token. Days = tokens × share / tokens/s / 86,400.
    Sharded where the model's state and one sequence's activations exceed 90 % of a unit.
    """
    architecture = load_target(target)
    model = TrainedModel.of(architecture)
    directory = existing_campaign(campaign) if campaign else None
    planned = plan_timeline(
        architecture.name,
        model,
        choose_speed(model.flops_per_token(architecture.seq_len), tokens_per_s, directory),
        _rates(rates),
        units=units,
        tokens=architecture.tokens if tokens is None else positive("--tokens", tokens),
        phases=[Phase.parse(text) for text in phase or (f"{architecture.seq_len}:1",)],
    )
    if as_json:
        typer.echo(json.dumps(planned.as_json()))
        return
    console = Console()
    _print_timeline(console, planned)
    _print_assumptions(console, planned.assumptions())


def _rates(overrides: list[str] | None) -> Rates:
    """Return the rates; those of ``--set`` override the environment's.

    :raises SettingsError: if one of them is invalid.
    """
    pairs = [text.partition("=") for text in overrides or ()]
    for name, equals, _ in pairs:
        if not equals:
            raise SettingsError(f"--set {name} has no value; write it like KWH_USD=0.30")
    return read_rates({name.strip(): value.strip() for name, _, value in pairs})


def _run(handoff: Path | None, campaign: Path | None) -> CloudRun | None:
    """Return the plan's run; None without a plan.

    :raises HandoffError: if the plan belongs to another campaign.
    """
    if handoff is None:
        return None
    planned_for, run = planned_run(handoff / PLAN_FILE)
    row = read_campaign_row(campaign) if campaign else None
    if row is not None and row.id != planned_for:
        raise HandoffError(
            f"{handoff} is the launch plan of the campaign {planned_for}, and {campaign} is "
            f"{row.id}; name the plan and the campaign that belong together"
        )
    return run


def _show(view: View, before: list[str], *, as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps(view.as_json()))
        return
    console = Console()
    for line in before:
        say(console, line)
    for section in view.sections:
        say(console, f"\n{section.title}", "bold")
        for figure in section.figures:
            words = f"  {figure.label:<56} {figure.text():>12}   "
            console.print(Text.assemble(words, (figure.formula, "cyan")), soft_wrap=True)
    if view.verdict:
        say(console, view.verdict, "bold")
    _print_assumptions(console, view.assumptions)


def _print_assumptions(console: Console, stated: tuple[str, ...]) -> None:
    say(console, "\nassumed", "bold")
    for assumption in stated:
        say(console, f"  {assumption}", "dim")


def _print_timeline(console: Console, planned: Timeline) -> None:
    speed, params, tokens = planned.speed, planned.model.params, planned.tokens
    say(
        console,
        f"target    {planned.target} · {params / 1e9:.4g} B parameters · "
        f"{tokens / 1e9:,.4g} B tokens\n"
        f"speed     {speed.tokens_per_s:,.0f} tokens/s × {speed.flops_per_token / 1e9:.4g} GFLOPs "
        f"= {speed.tflops:.3g} TFLOP/s a unit ({speed.source})\n"
        f"units     {planned.units} of {planned.rates.spark_gib:g} GiB\n",
    )
    header = f"{'context':>8} {'share':>6} {'tokens':>9} {'tokens/s':>10} {'days':>10}"
    say(console, f"{header}   {'state':>9} {'sequence':>9}   needs", "bold")
    for plan in planned.phases:
        say(
            console,
            f"{plan.seq_len:>8,} {plan.share:>6.0%} {plan.tokens / 1e9:>7,.4g} B "
            f"{plan.tokens_per_s:>10,.4g} {plan.days:>10,.4g}   {plan.state_gib:>5,.0f} GiB "
            f"{plan.activations_gib:>5,.0f} GiB   {plan.needs()}",
            "" if plan.fits else "yellow",
        )
    say(console, f"{'all':>8} {'':>6} {tokens / 1e9:>7,.4g} B {'':>10} {planned.days:>10,.4g}")
