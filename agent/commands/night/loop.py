"""``autoresearch loop``: the night's work."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any

import typer

from agent.commands.options import JsonAtEndOption, UnsandboxedOption, takes_some
from agent.menu.files import load_menu
from agent.search.first_row import read_campaign_row
from agent.search.goal import Goal
from agent.settings.campaign import CampaignSettings
from agent.workbench.campaign_run import run_campaign
from agent.workbench.places import DEFAULT_MENU, CampaignOption, default_campaign
from autoresearch.options import AsOption
from funnel.target.architecture import load_target, shipped_targets

ItersOption = Annotated[
    int | None,
    typer.Option("--iters", min=0, help="Iterations to reach in all.  [default: 100]"),
]
TrialsOption = Annotated[
    int | None, typer.Option("--trials", min=0, help="End once so many trials ran in all.")
]
HoursOption = Annotated[
    float | None, typer.Option("--hours", min=0, help="End after so much work in all.")
]
PromptsOption = Annotated[
    Path | None,
    typer.Option("--prompts", help="A folder whose templates replace the shipped ones."),
    AsOption(before="seed"),
]
ProgramOption = Annotated[
    Path | None,
    typer.Option("--program", help="Your research directions, for the LLM."),
    AsOption(before="seed"),
]
PriorOption = Annotated[
    list[Path] | None,
    typer.Option(
        "--prior",
        help="An earlier campaign, or a file that import takes, for the proposers to learn from; "
        "again for each.",
    ),
    AsOption(before="seed"),
]
LogOption = Annotated[
    list[str] | None,
    typer.Option(
        "--log",
        help="Send what happens to mlflow[:URI], wandb[:PROJECT] or tensorboard[:DIR]; again for "
        "each.",
    ),
    AsOption(before="seed"),
]
ConfirmOption = Annotated[
    bool,
    typer.Option(
        "--confirm/--no-confirm", help="End by confirming what was found on fresh seeds and text."
    ),
]


@takes_some(CampaignSettings)
def loop(
    *,
    iters: ItersOption = None,
    trials: TrialsOption = None,
    hours: HoursOption = None,
    campaign: CampaignOption = None,
    asked: dict[str, Any],
    prompts: PromptsOption = None,
    program: ProgramOption = None,
    prior: PriorOption = None,
    log: LogOption = None,
    confirm: ConfirmOption = True,
    allow_unsandboxed: UnsandboxedOption = False,
    as_json: JsonAtEndOption = False,
) -> None:
    """Propose, train, measure, keep or discard, until the campaign has had ITERS iterations, TRIALS
    trials or HOURS of work, whichever is given and comes first.

    Where the campaign's directory holds some already, it goes on from there.

    At the end, where something was kept, the three best and the baseline are
    trained on six fresh seeds and scored on fresh text (see confirm).
    """
    directory = campaign or default_campaign(asked.get("menu"))
    run_campaign(
        directory,
        asked,
        goal=Goal.asked(iters, trials, hours),
        prompts=prompts,
        program=program,
        priors=prior or (),
        log=log or (),
        target_tokens=_target_tokens(directory, asked.get("menu")),
        confirming=confirm,
        allow_unsandboxed=allow_unsandboxed,
        as_json=as_json,
    )


def _target_tokens(directory: Path, menu: str | None) -> int | None:
    """The budget of the shipped target whose proxies the menu has, by the name that ``menu
    from-target`` gave it; None for any other menu."""
    row = read_campaign_row(directory)
    name = row.menu_name if row else load_menu(menu or DEFAULT_MENU).name
    target = re.sub("-(proxy|tiny)$", "", name)
    return load_target(target).tokens if target in shipped_targets() and target != name else None
