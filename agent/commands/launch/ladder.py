"""``autoresearch ladder``: train the winner and the baseline at several sizes and lengths."""

from __future__ import annotations

import json

import typer
from pydantic import Field

from agent.commands.options import JsonAtEndOption, takes
from agent.search.experiment import RetryFailed, fresh_seeds
from agent.workbench.experiments import experiment
from agent.workbench.greeting import greet
from agent.workbench.places import CampaignOption, existing_campaign
from agent.workbench.session import Session, resumed
from autoresearch.values import Frozen, NonNegativeInt, Positive, PositiveInt
from autoresearch.words import timestamp
from funnel.ladder.experiment import Ladder
from funnel.ladder.pace import measured_pace
from funnel.ladder.plan import Planner, candidates_of
from funnel.ladder.plot import save_ladder_plot
from funnel.ladder.points import LadderLog
from funnel.ladder.report import lines, result_json
from trainer.spec import Config
from trajectory.ladder_plan import LadderAsked, LadderPlanRow

MIN_RUNGS, MAX_RUNGS = 3, 12


class Asked(Frozen):
    """Options of a ladder."""

    rungs: int = Field(
        5,
        ge=MIN_RUNGS,
        le=MAX_RUNGS,
        description="Number of sizes; the largest has twelve times the smallest's parameters.",
    )
    hours: Positive = Field(
        1.0, description="Hours that all runs may take, estimated from this campaign's speed."
    )
    seeds: PositiveInt = Field(2, description="Seeds per rung; the two largest rungs have one.")
    tokens_per_param: Positive = Field(
        20.0, description="Length of a rung's run; 20 is compute-optimal at scale."
    )
    rates: NonNegativeInt = Field(
        0,
        le=3,
        description="Further learning rates to try on each side, a factor of two apart; none "
        "on the two largest rungs.",
    )
    retry_failed: RetryFailed = False


@takes(Asked)
def ladder(
    *,
    asked: Asked,
    campaign: CampaignOption = None,
    as_json: JsonAtEndOption = False,
) -> None:
    """Train the winner at several sizes to see whether its lead lasts.

    The winner, the best of the latest stress test or else the incumbent, is compared with the
    baseline. The largest rung is predicted before it is trained. The same command resumes.
    """
    directory = existing_campaign(campaign)
    with resumed(directory, as_json=as_json) as session:
        work = _prepare(session, asked)
        greet(session, *work.announcement())
        result = work.run()
        files = save_ladder_plot(result, directory / "ladder")
        if as_json:
            typer.echo(json.dumps(result_json(result) | {"plots": [str(file) for file in files]}))
            return
        for line in lines(result):
            session.console.print(line, soft_wrap=True, highlight=False)
        session.say(f"plot      {', '.join(map(str, files))}")


def _prepare(session: Session, asked: Asked) -> Ladder:
    campaign = session.campaign
    rows = list(campaign.journal.rows())
    log = LadderLog.of(rows)
    planner = Planner(
        candidates=candidates_of(campaign, rows),
        asked=LadderAsked.model_validate(asked.model_dump(exclude={"retry_failed"})),
        seeds=fresh_seeds(campaign, "ladder", asked.seeds),
        pace=measured_pace(rows, campaign.corpus.info.vocab_size),
        corpus_tokens=campaign.corpus.info.train_tokens,
        fits=lambda config: _fits(session, config),
    )
    return experiment(
        session,
        Ladder,
        retry_failed=asked.retry_failed,
        lines=4,
        log=log,
        plan=_plan(log, planner),
        pace=planner.pace,
    )


def _plan(log: LadderLog, planner: Planner) -> LadderPlanRow:
    """Return the latest plan with these options, or a new plan if there is none.

    A plan stays as it is while its ladder runs, although newer short runs may change the pace.
    """
    for plan in reversed(log.plans):
        if planner.would_make(plan):
            return plan
    return planner.plan(timestamp())


def _fits(session: Session, config: Config) -> bool:
    model = session.memory.model
    needed_gib = None if model is None else model.predict_gib(config)
    return model is None or needed_gib is None or needed_gib <= model.limit_gib
