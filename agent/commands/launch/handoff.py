"""``autoresearch handoff``: the cloud launch plan."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.console import Console
from rich.text import Text

from agent.settings.rates import read_rates
from agent.workbench.places import CampaignOption, MenuOption, existing_campaign
from funnel.cost.gpus import UTILISATION, find_gpu
from funnel.plan.bundle import refuse_foreign, write_bundle
from funnel.plan.case import read_case
from funnel.plan.handoff import Handoff, Wishes, make_handoff
from funnel.plan.handoff_files import handoff_files, plan_json
from funnel.plan.layout import Cluster
from funnel.target.architecture import load_target
from funnel.target.sizes import size_text


def handoff(
    target: Annotated[str, typer.Option(help="A shipped target's name or a TOML file.")],
    nodes: Annotated[int, typer.Option(min=1, max=4096, help="Rented machines.")] = 1,
    gpus: Annotated[int, typer.Option(min=1, max=64, help="GPUs of a machine.")] = 8,
    gpu: Annotated[str, typer.Option(help="h100, h200 or b200.")] = "h100",
    campaign: CampaignOption = None,
    menu: MenuOption = None,
    mfu: Annotated[
        float,
        typer.Option(min=0.01, max=1.0, help="Share of the GPUs' peak that training should get."),
    ] = UTILISATION,
    lr_rule: Annotated[
        Literal["mup", "sqrt_width"], typer.Option(help="How the learning rate is carried.")
    ] = "mup",
    global_batch: Annotated[
        int | None,
        typer.Option(min=1, help="Sequences a step. Default: as many tokens as the proxy's."),
    ] = None,
    hourly_usd: Annotated[
        float | None,
        typer.Option(min=0, help="One GPU for an hour. Default: H100_HOURLY_USD, H200_HOURLY_USD."),
    ] = None,
    bytes_per_token: Annotated[
        float | None,
        typer.Option(min=0.1, max=100, help="Of the cloud's tokenizer, mean, where it is known."),
    ] = None,
    out: Annotated[Path, typer.Option(help="Where the plan goes.")] = Path("handoff"),
    as_json: Annotated[bool, typer.Option("--json", help="Machine-readable output.")] = False,
) -> None:
    """Write the launch plan of a campaign's finalists: recipe, scripts, layout, money, forecast.

    It is made from the latest stress test, for the finalist with the lowest long-run mean; the
    others are there to fall back on. A plan that is already in its place is replaced, unless
    somebody changed it.
    """
    refuse_foreign(out)
    architecture = load_target(target)
    cluster = Cluster(nodes=nodes, gpus=gpus, gpu=find_gpu(gpu))
    plan = make_handoff(
        read_case(existing_campaign(campaign, menu)),
        architecture,
        cluster,
        Wishes(
            mfu=mfu,
            lr_rule=lr_rule,
            hourly_usd=hourly_usd,
            batch=global_batch,
            bytes_per_token=bytes_per_token,
        ),
        read_rates(),
    )
    files = handoff_files(plan, out)
    write_bundle(out, files)
    if as_json:
        typer.echo(json.dumps(plan_json(plan) | {"out": str(out), "files": sorted(files)}))
        return
    console = Console()
    for line in _lines(plan, out):
        console.print(Text(line), soft_wrap=True)


def _lines(plan: Handoff, out: Path) -> list[str]:
    winner, compute, points = plan.winner, plan.booking.compute, plan.forecast.points
    return [
        f"recipe    {out / winner.file} · {out / winner.script}",
        f"target    {plan.booking.target.name} · {size_text(winner.schedule.tokens)} tokens in "
        f"{winner.schedule.steps:,} steps of {winner.schedule.tokens_per_step:,}",
        f"layout    {winner.layout}, micro-batch {winner.layout.micro_batch}: "
        f"{winner.memory.total_gb:.1f} of {winner.memory.limit_gb:.1f} GB a GPU",
        f"time      {compute.hours:,.0f} hours at {compute.mfu:.0%} utilisation (stated)",
        f"money     ${compute.cost_usd:,.0f} at ${compute.gpu_hourly_usd:,.2f} a GPU-hour; the "
        f"first day ${compute.day_usd:,.0f}",
        f"forecast  {points[0].low_bpb:.3f} … {points[0].high_bpb:.3f} bits per byte at "
        f"{size_text(points[0].tokens)} tokens, {points[-1].low_bpb:.3f} … "
        f"{points[-1].high_bpb:.3f} at {size_text(points[-1].tokens)}",
        *(f"risk      {risk}" for risk in plan.risks),
        f"read      {out / 'README.md'}",
    ]
