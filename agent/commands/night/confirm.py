"""``autoresearch confirm``: the best on fresh seeds and fresh text, before anything is told."""

from __future__ import annotations

from typing import Annotated

import typer

from agent.commands.options import JsonAtEndOption, UnsandboxedOption, takes
from agent.workbench.confirming import ConfirmAsked, told
from agent.workbench.confirming import confirm as confirmed
from agent.workbench.places import CampaignOption, MenuOption, existing_campaign
from agent.workbench.sitting import resumed

HeldoutOption = Annotated[
    list[str] | None,
    typer.Option("--heldout", help="A text to score besides: a file or folder; again for each."),
]


@takes(ConfirmAsked)
def confirm(
    *,
    asked: ConfirmAsked,
    heldout: HeldoutOption = None,
    campaign: CampaignOption = None,
    menu: MenuOption = None,
    allow_unsandboxed: UnsandboxedOption = False,
    as_json: JsonAtEndOption = False,
) -> None:
    """Train the best configs and the baseline on fresh seeds, and score them on fresh text.

    The text is the last documents of the corpus' train split, which these
    runs do not train on and no trial of the search scored, and whatever
    --heldout names. What is told of the search's choice is what these runs
    say of it, whatever the search claimed.

    It may be stopped at any moment. Run the same command again, and only what
    is not in the journal yet is run.
    """
    directory = existing_campaign(campaign, menu)
    with resumed(directory, allow_unsandboxed=allow_unsandboxed, as_json=as_json) as sitting:
        sitting.greet()
        found = confirmed(sitting, asked, heldout or ())
    if as_json:
        typer.echo(found.model_dump_json())
        return
    for line in told(found):
        sitting.console.print(line, soft_wrap=True, highlight=False)
