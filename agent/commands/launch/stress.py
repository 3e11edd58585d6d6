"""``autoresearch stress``: long runs of the search's best configs."""

from __future__ import annotations

import json
from typing import Annotated

import typer
from pydantic import Field

from agent.commands.options import JsonAtEndOption, takes
from agent.search.experiment import RetryFailed, fresh_seeds
from agent.workbench.experiments import experiment
from agent.workbench.greeting import greet
from agent.workbench.places import CampaignOption, existing_campaign
from agent.workbench.session import resumed
from autoresearch.options import AsOption
from autoresearch.values import Frozen, NonNegativeInt, PositiveInt
from funnel.stress.experiment import StressPlan, StressTest
from funnel.stress.plot import save_plot
from funnel.stress.report import StressReport
from trajectory import ranking

MIN_STEPS = 50
MAX_STEPS = 10**7
LINES = 20
"""Largest number of lines printed while a run trains."""


class Asked(Frozen):
    """Options of a stress test."""

    top: PositiveInt = Field(3, description="Best configs to run.")
    first: PositiveInt | None = Field(
        None,
        description="Best configs on the first seed; the best --top of them get the others. "
        "Default: as --top.",
    )
    steps: Annotated[int, AsOption(bounds=(MIN_STEPS, None))] = Field(
        1000, ge=MIN_STEPS, le=MAX_STEPS, description="Steps of each run and its schedule."
    )
    seeds: PositiveInt = Field(
        2, description="Fresh seeds per config; two show how noisy a run is."
    )
    spread: NonNegativeInt = Field(
        0, description="Configs spread over the whole ranking, to test the ranking."
    )
    baseline: bool = Field(True, description="Run the baseline beside them.")
    retry_failed: RetryFailed = False


@takes(Asked)
def stress(
    *,
    asked: Asked,
    campaign: CampaignOption = None,
    as_json: JsonAtEndOption = False,
) -> None:
    """Train the best for a full schedule and report which survive.

    Each run gets a verdict and its step: survives, spikes, plateaus, grad_blowup, diverges,
    nonfinite or failed. The same command resumes.
    """
    directory = existing_campaign(campaign)
    with resumed(directory, as_json=as_json) as session:
        evidence = session.campaign.evidence
        plan = StressPlan.of(
            ranking.top(evidence, len(evidence.configs)),
            top=asked.top,
            first=asked.first,
            spread=asked.spread,
            baseline_hash=evidence.baseline_hash if asked.baseline else None,
            steps=asked.steps,
            seeds=fresh_seeds(session.campaign, "stress", asked.seeds),
        )
        work = experiment(
            session, StressTest, retry_failed=asked.retry_failed, lines=LINES, plan=plan
        )
        greet(session, *work.announcement())
        report = StressReport.of(work, work.run())
        unit = "nats per token" if session.own is None else "as the command printed it"
        files = save_plot(*report.panels(), directory / f"stress-{asked.steps}", unit=unit)
        if as_json:
            typer.echo(json.dumps(report.as_json() | {"plots": [str(file) for file in files]}))
            return
        for line in report.lines():
            session.console.print(line, soft_wrap=True, highlight=False)
        session.say(f"plot      {', '.join(map(str, files))}")
