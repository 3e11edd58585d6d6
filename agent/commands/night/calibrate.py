"""``autoresearch calibrate``: measure the noise of short runs, and how well they rank long ones."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from rich.console import Console

from agent.commands.options import JsonAtEndOption, option_of, takes
from agent.search.calibration.plan import check_calibratable
from agent.search.goal import Goal
from agent.settings.campaign import CampaignSettings
from agent.workbench.calibrating import FidelityAsked, calibrate_fidelity, report
from agent.workbench.campaign_run import SessionOptions, chosen_settings, run_campaign
from agent.workbench.greeting import greet
from agent.workbench.places import CampaignOption, default_campaign, latest_campaign
from agent.workbench.session import Session


@takes(FidelityAsked)
def calibrate(
    *,
    campaign: CampaignOption = None,
    menu: Annotated[
        str | None,
        option_of(CampaignSettings, "menu", "--menu", "Menu of a campaign that has not begun."),
    ] = None,
    seeds: Annotated[
        int | None,
        option_of(CampaignSettings, "baseline_seeds", "--seeds", "Seeds of the baseline in total."),
    ] = None,
    fidelity: Annotated[
        bool, typer.Option("--fidelity", help="Measure how well short runs rank configs.")
    ] = False,
    asked: FidelityAsked,
    as_json: JsonAtEndOption = False,
) -> None:
    """Replicate the baseline and report how noisy a single run is.

    With --fidelity it trains configs from all over the menu short and long, and reports how well
    the campaign's own proxy metric, and others, rank long runs. The same command resumes.
    """
    given = {"menu": menu, "baseline_seeds": seeds}
    chosen: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    directory = campaign or (default_campaign(menu) if menu else latest_campaign())
    if not fidelity:
        run_campaign(directory, chosen, Goal(iterations=0), SessionOptions(as_json=as_json))
        return
    console = Console(stderr=as_json)
    settings, own_menu = chosen_settings(directory, chosen, console)
    check_calibratable(settings, own_menu, asked.steps)  # before a campaign is created
    with Session.opened(directory, settings, own_menu, console) as session:
        greet(session)
        found = calibrate_fidelity(session, asked)
    if as_json:
        typer.echo(found.model_dump_json())
        return
    for line in report(found):
        console.print(line, soft_wrap=True, highlight=False)
