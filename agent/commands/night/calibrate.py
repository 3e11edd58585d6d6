"""``autoresearch calibrate``: measure the noise of short runs, and how well they rank long ones."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from rich.console import Console

from agent.commands.options import JsonAtEndOption, UnsandboxedOption, option_of, takes
from agent.search.calibration.plan import check_calibratable
from agent.search.goal import Goal
from agent.settings.campaign import CampaignSettings
from agent.workbench.calibrating import FidelityAsked, calibrate_fidelity, report
from agent.workbench.campaign_run import chosen_settings, run_campaign
from agent.workbench.greeting import greet
from agent.workbench.places import CampaignOption, MenuOption, default_campaign
from agent.workbench.session import Session


@takes(FidelityAsked)
def calibrate(
    *,
    campaign: CampaignOption = None,
    menu: MenuOption = None,
    seeds: Annotated[
        int | None,
        option_of(CampaignSettings, "baseline_seeds", "--seeds", "Seeds of the baseline in total."),
    ] = None,
    fidelity: Annotated[
        bool, typer.Option("--fidelity", help="Measure how well short runs rank configs.")
    ] = False,
    asked: FidelityAsked,
    allow_unsandboxed: UnsandboxedOption = False,
    as_json: JsonAtEndOption = False,
) -> None:
    """Replicate the baseline and report how noisy a single run is.

    With --fidelity it trains configs from all over the menu, and from near its good ones, both
    short and long, and reports how well short runs rank long ones: for the campaign's own proxy
    metric and for other horizons, averaged weights, cooldowns, seeds, texts and lengths, each
    with its cost. From then on `top` shows the campaign's own figure.

    Stop it at any moment; the same command resumes it.
    """
    chosen: dict[str, Any] = {"menu": menu, "baseline_seeds": seeds}
    chosen = {name: value for name, value in chosen.items() if value is not None}
    directory = campaign or default_campaign(menu)
    if not fidelity:
        goal, unsandboxed = Goal(iterations=0), allow_unsandboxed
        run_campaign(directory, chosen, goal=goal, allow_unsandboxed=unsandboxed, as_json=as_json)
        return
    console = Console(stderr=as_json)
    settings, own_menu = chosen_settings(directory, chosen, console)
    check_calibratable(settings, own_menu, asked.steps)  # before a campaign is created
    with Session.opened(
        directory, settings, own_menu, console, allow_unsandboxed=allow_unsandboxed
    ) as session:
        greet(session)
        found = calibrate_fidelity(session, asked)
    if as_json:
        typer.echo(found.model_dump_json())
        return
    for line in report(found):
        console.print(line, soft_wrap=True, highlight=False)
