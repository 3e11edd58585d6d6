"""``autoresearch confirm``: train the best again on fresh seeds and text before reporting them."""

from typing import Annotated

import typer

from agent.commands.options import JsonAtEndOption, takes
from agent.session.conclusion import ConfirmAsked, report
from agent.session.conclusion import confirm as confirmed
from agent.session.console import answer
from agent.session.greeting import greet
from agent.session.places import CampaignOption, TrustOption, YesOption
from agent.session.session import resumed


@takes(ConfirmAsked)
def confirm(
    *,
    asked: ConfirmAsked,
    heldout: Annotated[
        list[str] | None,
        typer.Option("--heldout", help="Further text to score: a file or folder. Repeatable."),
    ] = None,
    campaign: CampaignOption = None,
    trust: TrustOption = False,
    yes: YesOption = False,
    as_json: JsonAtEndOption = False,
) -> None:
    """Train the best again on fresh seeds and score them on fresh text.

    The fresh text is the end of the train split: these runs do not train on it, and no trial of the
    search was scored on it. The confirmed gain is that of the search's first choice. The same
    command resumes.
    """
    with resumed(campaign, as_json=as_json, trust=trust) as session:
        greet(session)
        found = confirmed(session, asked, heldout or (), yes=yes)
        lines = report(found, session.campaign.results.headline())
    answer(found, lines, as_json=as_json, console=session.console)
