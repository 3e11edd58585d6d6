"""``autoresearch attribute``: measure the worth of each of the winner's changes."""

from __future__ import annotations

import json
from typing import Annotated

import typer
from pydantic import Field

from agent.commands.options import JsonAtEndOption, takes
from agent.search.campaign import Campaign
from agent.search.experiment import RetryFailed, fresh_seeds
from agent.workbench.experiments import experiment
from agent.workbench.greeting import greet
from agent.workbench.places import CampaignOption, existing_campaign
from agent.workbench.session import resumed
from autoresearch.errors import CampaignError
from autoresearch.values import Frozen, PositiveInt
from funnel.attribution.experiment import Attribution
from funnel.attribution.result import AttributionPlan, lines
from trainer.spec import AnyConfig
from trajectory import ranking
from trajectory.rows import FinalistsRow

MIN_STEPS, MAX_STEPS = 10, 10**7
USUAL_STEPS = 1000
LINES = 4
"""Largest number of lines printed while a run trains."""


class Asked(Frozen):
    """Options of an attribution."""

    steps: Annotated[int, Field(ge=MIN_STEPS, le=MAX_STEPS)] | None = Field(
        None,
        description="Steps of each run and its schedule. Default: the latest stress test's, else "
        f"{USUAL_STEPS}.",
    )
    seeds: PositiveInt = Field(4, description="Fresh seeds for each config.")
    retry_failed: RetryFailed = False


@takes(Asked)
def attribute(
    *,
    asked: Asked,
    config: Annotated[
        str | None,
        typer.Option(
            metavar="HASH",
            help="First digits of the config's hash. Default: the best finalist, else the best "
            "ranked.",
        ),
    ] = None,
    campaign: CampaignOption = None,
    as_json: JsonAtEndOption = False,
) -> None:
    """Measure what each of the winner's changes is worth.

    Train the winner, the baseline and the winner without each change for a full schedule on fresh
    seeds. A change is worth what the score loses without it. `handoff` drops changes that harm.
    The same command resumes.
    """
    directory = existing_campaign(campaign)
    with resumed(directory, as_json=as_json) as session:
        plan = _plan(session.campaign, asked, config)
        work = experiment(
            session, Attribution, retry_failed=asked.retry_failed, lines=LINES, plan=plan
        )
        greet(session, *work.announcement())
        result = work.run()
        if as_json:
            typer.echo(result.model_dump_json())
            return
        for line in lines(result, session.campaign.menu.measure):
            session.console.print(line, soft_wrap=True, highlight=False)


def _plan(campaign: Campaign, asked: Asked, wanted: str | None) -> AttributionPlan:
    ended = next(iter(campaign.history.newest(FinalistsRow, 1)), None)
    return AttributionPlan.of(
        campaign.menu,
        _winner(campaign, ended, wanted),
        budget=campaign.settings.budget,
        steps=asked.steps or (ended.steps if ended else USUAL_STEPS),
        seeds=fresh_seeds(campaign, "attribution", asked.seeds),
    )


def _winner(campaign: Campaign, ended: FinalistsRow | None, wanted: str | None) -> AnyConfig:
    """
    :raises CampaignError: if there is no winner, or if the requested hash is not a config's.
    """
    configs = campaign.evidence.configs
    if wanted is not None:
        found = [entry.config for name, entry in configs.items() if name.startswith(wanted)]
        if len(found) != 1:
            raise CampaignError(
                f"{json.dumps(wanted)} begins the hash of {len(found)} configs of this campaign; "
                "give the first digits of one, as autoresearch top --json has them"
            )
        return found[0]
    if ended is not None and ended.finalists:
        return configs[ended.finalists[0].config_hash].config
    ranked = ranking.top(campaign.evidence, 1)
    if not ranked:
        raise CampaignError(
            "nothing was measured in this campaign yet, so there is no winner; run autoresearch "
            "loop first"
        )
    return ranked[0].config
