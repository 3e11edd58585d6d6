"""``autoresearch loop``: run the search."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any

import typer

from agent.commands.options import JsonAtEndOption, UnsandboxedOption, takes_some
from agent.loggers.notices import Notifier
from agent.search.goal import Goal
from agent.settings.campaign import CampaignSettings
from agent.workbench.campaign_run import run_campaign
from agent.workbench.places import CampaignOption, default_campaign
from funnel.target.architecture import load_target, shipped_targets

ItersOption = Annotated[
    int | None,
    typer.Option(
        "--iters",
        min=0,
        metavar="N",
        help="Stop after N iterations in total. Default: 100, unless --trials or --hours is given.",
    ),
]
TrialsOption = Annotated[
    int | None,
    typer.Option("--trials", min=0, metavar="N", help="Stop after N trials in total."),
]
HoursOption = Annotated[
    float | None,
    typer.Option("--hours", min=0, metavar="X", help="Stop after X hours of work in total."),
]
PromptsOption = Annotated[
    Path | None,
    typer.Option(
        "--prompts", metavar="PATH", help="Folder whose templates replace the shipped prompts."
    ),
]
ProgramOption = Annotated[
    Path | None,
    typer.Option(
        "--program", metavar="PATH", help="Text file with your research directions for the model."
    ),
]
PriorOption = Annotated[
    list[Path] | None,
    typer.Option(
        "--prior",
        metavar="PATH",
        help="Earlier campaign, or a file that `import` reads, for the proposer to learn from. "
        "Repeatable.",
    ),
]
LogOption = Annotated[
    list[str] | None,
    typer.Option(
        "--log",
        metavar="TRACKER",
        help="Send results to mlflow, wandb or tensorboard; a URI, project or folder may follow "
        "after a colon. Repeatable.",
    ),
]
NotifyOption = Annotated[
    list[str] | None,
    typer.Option(
        "--notify",
        metavar="URL",
        help="Send a notice at the end, and when an error stops the loop, through any service of "
        "Apprise. Repeatable; AUTORESEARCH_NOTIFY_URLS adds more.",
    ),
]
KeepsOption = Annotated[
    bool, typer.Option("--notify-keeps", help="Send a notice for each kept config, too.")
]
GitOption = Annotated[
    bool,
    typer.Option(
        "--git", help="Commit each keep to a branch of your script's repository (see own-trainer)."
    ),
]
ConfirmOption = Annotated[
    bool,
    typer.Option(
        "--confirm/--no-confirm", help="At the end, confirm the best on fresh seeds and text."
    ),
]


PANELS = {
    "Options": ("iters", "hours", "campaign", "menu", "corpus"),
    "How long": ("trials", "confirm"),
    "What is searched": ("reference", "max_changes", "prior", "seed"),
    "Evaluation": (
        *("tokenizer", "budget", "horizon_steps", "cooldown_steps", "average", "reserve_holdout"),
        *("backend", "compile", "cudnn_attention"),
    ),
    "Proposer": (*("proposer", "program", "llm_share", "prompt_tokens", "prompts"),),
    "Judge": (
        "baseline_seeds",
        "max_runs",
        "z_keep",
        "z_drop",
        "early_stopping_threshold",
        "prune",
    ),
    "Machine": (
        *("device", "lanes", "threads", "executor", "device_kind"),
        *("trial_wall_s", "trial_memory_gib", "allow_unsandboxed"),
    ),
    "Output": ("log", "notify", "notify_keeps", "git", "as_json"),
}
"""The options of ``loop --help`` by panel; the first panel holds those that everyone needs."""


@takes_some(CampaignSettings, PANELS)
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
    notify: NotifyOption = None,
    notify_keeps: KeepsOption = False,
    git: GitOption = False,
    confirm: ConfirmOption = True,
    allow_unsandboxed: UnsandboxedOption = False,
    as_json: JsonAtEndOption = False,
) -> None:
    """Search for a better config: propose, train, judge, keep, repeat.

    The loop stops at the first limit reached: --iters, --trials or --hours. If the campaign
    exists, the loop resumes it. At the end it trains the three best configs and the baseline on
    six fresh seeds and scores them on text that the search was not scored on (see `confirm`).
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
        git=git,
        target_tokens=_target_tokens,
        notifier=Notifier(notify or (), keeps=notify_keeps),
        confirming=confirm,
        allow_unsandboxed=allow_unsandboxed,
        as_json=as_json,
    )


def _target_tokens(menu_name: str) -> int | None:
    """Return the token budget of the shipped target whose proxies the menu has; None for any other
    menu.

    The menu is recognized by the name that ``menu from-target`` gave it.
    """
    target = re.sub("-(proxy|tiny)$", "", menu_name)
    is_proxy = target in shipped_targets() and target != menu_name
    return load_target(target).tokens if is_proxy else None
