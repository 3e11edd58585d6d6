"""``autoresearch cost``: the money, from rates to break-even."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from pydantic import Field, ValidationError
from rich.console import Console

from agent.commands.launch.cost_month import month
from agent.commands.launch.cost_options import JsonOption, SetOption, rates_of, run_of
from agent.commands.launch.cost_tables import (
    print_assumptions,
    print_cost,
    print_section,
    print_timeline,
)
from agent.commands.options import takes
from agent.workbench.console import say
from agent.workbench.places import existing_campaign
from autoresearch.errors import SettingsError
from autoresearch.values import Frozen, explain
from funnel.cost import timeline as cost_timeline
from funnel.cost.argument import cost_report
from funnel.cost.cluster import (
    HOURS_PER_MONTH,
    UNIT_TFLOPS,
    ClusterQuestion,
    GpuName,
    cluster_assumptions,
    cluster_section,
    compare_cluster,
    usual_tflops,
)
from funnel.cost.measured import measured_of
from funnel.cost.speed import choose_speed, positive
from funnel.cost.usage import Usage, measured_usage
from funnel.target.architecture import load_target

app = typer.Typer(invoke_without_command=True)


@app.callback()
def cost(
    context: typer.Context,
    campaign: Annotated[
        Path | None,
        typer.Option(
            "--campaign", help="Take seconds, energy and iterations from this campaign's rows."
        ),
    ] = None,
    handoff: Annotated[
        Path | None,
        typer.Option("--handoff", help="Take the final run from this launch plan's directory."),
    ] = None,
    rates: SetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Compute the cost of a search here and in the cloud, and payoff.

    Rates come from H100_HOURLY_USD, H200_HOURLY_USD, B200_HOURLY_USD, SPARK_KW, KWH_USD,
    SPARK_CAPEX_USD, SPARK_LIFE_YEARS, ITER_SECONDS, CAMPAIGN_ITERS, FINAL_NODE_HOURS,
    WRONG_PICK_RATE, WRONG_PICK_RATE_AFTER, TARGET_SCALE, H100_SPEEDUP, PREEMPTIONS_PER_DAY,
    CHECKPOINT_HOURS and RESTART_HOURS, in the environment or by --set; the published ones are the
    defaults, where there are such. With --handoff the run, its price and its hours are the plan's.

    Cost of use S = hours × capex / (life × 8,766 h) + kWh × price. Final run F = 8 × GPU-hour ×
    hours. Savings = p × F − S. Break-even p = S / F.
    """
    if context.invoked_subcommand is not None:
        if campaign or handoff or rates or as_json:
            raise typer.BadParameter(f"give options after {context.invoked_subcommand}")
        return
    chosen = rates_of(rates)
    directory = existing_campaign(campaign, None) if campaign else None
    usage = measured_usage(directory, chosen) if directory else Usage.supposed(chosen)
    report = cost_report(
        chosen,
        usage,
        run=run_of(handoff, directory) if handoff else None,
        measured=measured_of(directory) if directory else None,
    )
    if as_json:
        typer.echo(json.dumps(report.as_json()))
        return
    print_cost(Console(), report)


@app.command()
def cluster(
    gpus: Annotated[int, typer.Option(help="Rented GPUs.")] = 8,
    gpu: Annotated[GpuName, typer.Option(help="Which.")] = "h100",
    hourly_usd: Annotated[
        float | None,
        typer.Option(help="Of one GPU, USD. Default: the rates'."),
    ] = None,
    gpu_tflops: Annotated[
        float | None,
        typer.Option(help="That a GPU reaches in training. Default: 40 % of its data sheet's."),
    ] = None,
    unit_tflops: Annotated[
        float, typer.Option(help="That a desktop unit reaches in training.")
    ] = UNIT_TFLOPS,
    scaling: Annotated[
        float, typer.Option(help="Share of the units' added-up speed left when together.")
    ] = 1.0,
    hours_per_month: Annotated[
        float, typer.Option(help="Hours in use, of either.")
    ] = HOURS_PER_MONTH,
    rates: SetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Desktop units owned against GPUs rented: how many, a month of each, the break-even month.

    Units = GPUs × GPU TFLOP/s / (unit TFLOP/s × scaling), rounded up. Owned a month = units ×
    (capex / life in months + kW × hours × price). Rented a month = GPUs × GPU-hour × hours.
    Break-even month = capex / (rent − power).
    """
    chosen = rates_of(rates)
    reached = usual_tflops(gpu) if gpu_tflops is None else gpu_tflops
    asked = _cluster_question(gpus, gpu, reached, hourly_usd, unit_tflops, scaling, hours_per_month)
    answer = compare_cluster(chosen, asked)
    section = cluster_section(chosen, asked, answer)
    assumptions = cluster_assumptions(asked)
    if as_json:
        report = {
            "rates": chosen.model_dump(),
            "asked": asked.model_dump(),
            section.name: section.values(),
            "pays_within_life": answer.pays_within_life,
            "formulas": section.formulas(),
            "assumptions": assumptions,
        }
        typer.echo(json.dumps(report))
        return
    console = Console()
    print_section(console, section)
    say(console, answer.verdict(), "bold")
    print_assumptions(console, assumptions)


app.command()(month)


class TimelineAsked(Frozen):
    """What is to be trained, and on what; the target says what is left out."""

    target: str = Field("llama-7b", description="A shipped target's name or a TOML file.")
    tokens: float | None = Field(None, description="Default: the target's budget.")
    params: float | None = Field(
        None, description="Default: the target's; else its shape grown to this."
    )
    tokens_per_s: float | None = Field(
        None, description="Of one unit, measured on the target itself or on --measured-params."
    )
    measured_params: float | None = Field(
        None, description="Parameters of the model --tokens-per-s was measured on."
    )
    units: int = Field(1, description="Machines.")
    efficiency: float = Field(
        1.0, description="Share of the units' added-up speed left when together."
    )
    device_gib: float = Field(128.0, description="Memory of one unit.")


@app.command()
@takes(TimelineAsked)
def timeline(
    *,
    asked: TimelineAsked,
    phase: Annotated[
        list[str] | None,
        typer.Option(
            metavar="SEQ:SHARE",
            help="Context length and share of the tokens; repeat. Default: the target's, all.",
        ),
    ] = None,
    campaign: Annotated[
        Path | None,
        typer.Option("--campaign", help="Take the measured speed from its rows."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Days of each phase of a curriculum, and the parallelism it needs.

    FLOPs a token = 6 × weights in matrix products + 6 × layers × d_model × context. Tokens/s =
    units × efficiency × measured FLOP/s / FLOPs a token. Days = tokens × share / tokens/s / 86,400.
    Sharded where the model's state and one sequence's activations exceed 90 % of a unit.
    """
    architecture = load_target(asked.target)
    model = cost_timeline.TrainedModel.of(architecture)
    if asked.params is not None:
        model = model.scaled(positive("--params", asked.params))
    speed = choose_speed(
        model.flops_per_token(architecture.seq_len),
        asked.tokens_per_s,
        asked.measured_params,
        existing_campaign(campaign, None) if campaign else None,
    )
    phases = [cost_timeline.Phase.parse(text) for text in phase or ()]
    tokens = asked.tokens
    question = cost_timeline.question(
        tokens=cost_timeline.default_tokens(architecture, model) if tokens is None else tokens,
        phases=phases or [cost_timeline.Phase(seq_len=architecture.seq_len, share=1.0)],
        units=asked.units,
        efficiency=asked.efficiency,
        device_gib=asked.device_gib,
    )
    planned = cost_timeline.Timeline.of(architecture.name, model, speed, question)
    if as_json:
        typer.echo(json.dumps(planned.as_json()))
        return
    print_timeline(Console(), planned)


def _cluster_question(
    gpus: int,
    gpu: GpuName,
    gpu_tflops: float,
    hourly_usd: float | None,
    unit_tflops: float,
    scaling: float,
    hours_per_month: float,
) -> ClusterQuestion:
    try:
        return ClusterQuestion(
            gpus=gpus,
            gpu=gpu,
            gpu_tflops=gpu_tflops,
            gpu_hourly_usd=hourly_usd,
            unit_tflops=unit_tflops,
            scaling=scaling,
            hours_per_month=hours_per_month,
        )
    except ValidationError as error:
        raise SettingsError(f"these cannot be compared: {explain(error)}") from error
