"""``autoresearch loop``: run the search."""

import re
from pathlib import Path
from typing import Annotated, Any

import typer

from agent.commands.options import JsonAtEndOption, ProposerCommandOption, takes
from agent.loggers.notices import Notifier
from agent.search.campaign_start import set_settings
from agent.search.stopping import Goal
from agent.session.campaign_run import SessionOptions, run_campaign
from agent.session.places import TrustOption, default_campaign, say_if_new
from agent.settings.campaign import CampaignSettings
from funnel.targets.architecture import load_target, shipped_targets

ItersOption = Annotated[
    int | None,
    typer.Option(
        "--iters",
        min=0,
        metavar="N",
        help="Stop after N iterations in total. Default: 100 without --trials and --hours.",
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
CampaignOption = Annotated[
    Path | None,
    typer.Option("--campaign", help="A directory. Default: runs/ and the menu's name."),
]
ProgramOption = Annotated[
    Path | None,
    typer.Option(
        "--program", metavar="PATH", help="Text file with your research directions for the model."
    ),
]
CallsOption = Annotated[
    int | None,
    typer.Option(
        "--proposer-calls",
        min=1,
        metavar="N",
        help="Most calls of --proposer-command in one campaign. Default: 100.",
    ),
]
MoneyOption = Annotated[
    float | None,
    typer.Option(
        "--proposer-usd",
        min=0.01,
        metavar="X",
        help="Stop calling --proposer-command in one campaign after US$ X, if it reports its cost. "
        "Default: 5.",
    ),
]
PriorOption = Annotated[
    list[Path] | None,
    typer.Option(
        "--prior",
        metavar="PATH",
        help="Earlier campaign, or a file that `import` reads, to learn from. Repeatable. Default: "
        "the newest with the same menu in the same folder; `none` for none.",
    ),
]
LogOption = Annotated[
    list[str] | None,
    typer.Option(
        "--log",
        metavar="TRACKER",
        help="mlflow[:URI], wandb[:PROJECT] or tensorboard[:FOLDER]. Repeatable.",
    ),
]
NotifyOption = Annotated[
    list[str] | None,
    typer.Option(
        "--notify",
        metavar="URL",
        help="Send notices to a service of Apprise; AUTORESEARCH_NOTIFY_URLS adds more. "
        "Repeatable.",
    ),
]
KeepsOption = Annotated[
    bool, typer.Option("--notify-keeps", help="Send a notice for each keep, too.")
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

VerboseOption = Annotated[
    bool,
    typer.Option(
        "--verbose",
        "-v",
        help="Print a script's command, what it may read, and where its score is found.",
    ),
]

SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="NAME=VALUE",
        help="Set a further setting of campaign.toml, such as max_runs=6 or prune=false. "
        "Repeatable; an unknown name lists them.",
    ),
]


PANELS = {
    "Options": ("iters", "hours", "campaign", "menu", "corpus"),
    "How long": ("trials", "confirm"),
    "What is searched": ("prior", "seed"),
    "Evaluation": ("tokenizer", "budget", "backend"),
    "Proposer": (
        *("proposer", "program", "llm_share", "prompt_tokens"),
        *("proposer_command", "proposer_calls", "proposer_usd"),
    ),
    "Judge and other settings": ("baseline_seeds", "further"),
    "Machine": (
        *("device", "lanes", "threads", "executor"),
        *("trial_memory_gib", "allow_unsandboxed", "trust"),
    ),
    "Output": ("log", "notify", "notify_keeps", "git", "verbose", "as_json"),
}
"""The options of ``loop --help`` by panel; the first panel holds those that everyone needs."""


@takes(CampaignSettings, PANELS, partly=True)
def loop(
    *,
    iters: ItersOption = None,
    trials: TrialsOption = None,
    hours: HoursOption = None,
    campaign: CampaignOption = None,
    asked: dict[str, Any],
    further: SetOption = None,
    program: ProgramOption = None,
    proposer_command: ProposerCommandOption = None,
    proposer_calls: CallsOption = None,
    proposer_usd: MoneyOption = None,
    prior: PriorOption = None,
    log: LogOption = None,
    notify: NotifyOption = None,
    notify_keeps: KeepsOption = False,
    git: GitOption = False,
    confirm: ConfirmOption = True,
    verbose: VerboseOption = False,
    trust: TrustOption = False,
    as_json: JsonAtEndOption = False,
) -> None:
    """Search for a better config: propose, train, judge, keep, repeat.

    The loop stops at the first limit: --iters, --trials or --hours. It resumes a campaign that
    exists, and ends with `confirm`.
    """
    options = SessionOptions(
        program=program,
        model={
            "proposer_command": proposer_command,
            "proposer_calls": proposer_calls,
            "proposer_usd": proposer_usd,
        },
        priors=prior or (),
        log=log or (),
        git=git,
        target_tokens=_target_tokens,
        notifier=Notifier(notify or (), keeps=notify_keeps),
        confirming=confirm,
        as_json=as_json,
        verbose=verbose,
        trust=trust,
    )
    directory = campaign or default_campaign(asked.get("menu"))
    if campaign is None and asked.get("menu") is None:
        say_if_new(directory)
    settings = asked | set_settings(further or ())
    run_campaign(directory, settings, Goal.asked(iters, trials, hours), options)


def _target_tokens(menu_name: str) -> int | None:
    """Return the token budget of the shipped target whose proxies the menu has; None for any other
    menu.

    The menu is recognized by the name that ``menu from-target`` gave it.
    """
    target = re.sub("(-tiny)?-ratios$", "", menu_name)
    is_proxy = target in shipped_targets() and target != menu_name
    return load_target(target).tokens if is_proxy else None
