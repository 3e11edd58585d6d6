"""``autoresearch stress``, ``attribute`` and ``ladder``: full training schedules of the winners."""

import json
from typing import Annotated

import typer
from pydantic import Field
from rich.text import Text

from agent.commands.options import JsonAtEndOption, takes
from agent.search.campaign import Campaign
from agent.search.experiment import RetryFailed, fresh_seeds
from agent.session.console import answer
from agent.session.experiments import ask_if_long, experiment
from agent.session.greeting import greet
from agent.session.places import CampaignOption, TrustOption, YesOption
from agent.session.session import Session, resumed
from autoresearch.campaign_files import replace_file
from autoresearch.errors import CampaignError
from autoresearch.files import writing_to
from autoresearch.options import AsOption
from autoresearch.program import quote
from autoresearch.values import Frozen, NonNegativeInt, Positive, PositiveInt
from autoresearch.words import duration_text, timestamp
from funnel.attribution.result import Attribution, AttributionPlan
from funnel.attribution.result import lines as attribution_lines
from funnel.cost.bill import use_usd
from funnel.cost.figures import usd_text
from funnel.cost.rates import read_rates
from funnel.ladder.experiment import Ladder
from funnel.ladder.plan import Planner, candidates_of
from funnel.ladder.points import LadderLog
from funnel.ladder.report import ladder_picture, result_json
from funnel.ladder.report import lines as ladder_lines
from funnel.ladder.shapes import measured_pace
from funnel.stress.experiment import StressPlan, StressTest
from funnel.stress.report import StressReport
from trainer.schema import AnyConfig, Config
from trajectory import ranking
from trajectory.report.svg import draw
from trajectory.rows import FinalistsRow, LadderAsked

MIN_STEPS = 50
MAX_STEPS = 10**7
LINES = 20
"""Largest number of lines printed while a run trains."""


class StressAsked(Frozen):
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


@takes(StressAsked)
def stress(
    *,
    asked: StressAsked,
    campaign: CampaignOption = None,
    trust: TrustOption = False,
    yes: YesOption = False,
    as_json: JsonAtEndOption = False,
) -> None:
    """Train the best for a full schedule and report which survive.

    Each run gets a verdict and its step: survives, spikes, plateaus, grad_blowup, diverges,
    nonfinite or failed. The same command resumes.
    """
    with resumed(campaign, as_json=as_json, trust=trust) as session:
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
        left_s = work.expected_left_s()
        cost = usd_text(use_usd(read_rates(), left_s))
        hours = f"{duration_text(left_s)} of the machine, electricity and write-off"
        greet(session, *work.announcement(), f"cost      about {cost}: {hours}")
        ask_if_long(work, yes=yes)
        report = StressReport.of(work, work.run())
        curves = f"curves    autoresearch report --campaign {quote(session.campaign.directory)}"
        lines: list[str | Text] = [*report.lines(), curves]
        answer(report.as_json(), lines, as_json=as_json, console=session.console)


FEWEST_STEPS = 10
USUAL_STEPS = 1000
FEW_LINES = 4
"""Largest number of lines printed while a run trains."""


class AttributionAsked(Frozen):
    """Options of an attribution."""

    steps: Annotated[int, Field(ge=FEWEST_STEPS, le=MAX_STEPS)] | None = Field(
        None,
        description="Steps of each run and its schedule. Default: the latest stress test's, else "
        f"{USUAL_STEPS}.",
    )
    seeds: PositiveInt = Field(4, description="Fresh seeds for each config.")
    retry_failed: RetryFailed = False


@takes(AttributionAsked)
def attribute(
    *,
    asked: AttributionAsked,
    config: Annotated[
        str | None,
        typer.Option(
            metavar="HASH",
            help="First digits of the config's hash. Default: the best finalist, else the best "
            "ranked.",
        ),
    ] = None,
    campaign: CampaignOption = None,
    trust: TrustOption = False,
    yes: YesOption = False,
    as_json: JsonAtEndOption = False,
) -> None:
    """Measure what each of the winner's changes is worth.

    Train the winner, the baseline and the winner without each change for a full schedule on fresh
    seeds. A change is worth what the score loses without it. `handoff` drops changes that harm.
    The same command resumes.
    """
    with resumed(campaign, as_json=as_json, trust=trust) as session:
        opened = session.campaign
        ended = next(iter(opened.results.newest(FinalistsRow, 1)), None)
        plan = AttributionPlan.of(
            opened.menu,
            _winner(opened, ended, config),
            budget=opened.settings.budget,
            steps=asked.steps or (ended.steps if ended else USUAL_STEPS),
            seeds=fresh_seeds(opened, "attribution", asked.seeds),
        )
        work = experiment(
            session, Attribution, retry_failed=asked.retry_failed, lines=FEW_LINES, plan=plan
        )
        greet(session, *work.announcement())
        ask_if_long(work, yes=yes)
        result = work.run()
        lines = attribution_lines(result, opened.menu.measure)
        answer(result, lines, as_json=as_json, console=session.console)


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


MIN_RUNGS, MAX_RUNGS = 3, 12


class LadderOptions(Frozen):
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
    retry_failed: RetryFailed = False


@takes(LadderOptions)
def ladder(
    *,
    asked: LadderOptions,
    campaign: CampaignOption = None,
    trust: TrustOption = False,
    yes: YesOption = False,
    as_json: JsonAtEndOption = False,
) -> None:
    """Train the winner at several sizes to see whether its lead lasts.

    The winner, the best of the latest stress test or else the incumbent, is compared with the
    baseline. The largest rung is predicted before it is trained. The same command resumes.
    """
    with resumed(campaign, as_json=as_json, trust=trust) as session:
        opened = session.campaign
        rows = list(opened.journal.rows())
        log = LadderLog.of(rows)
        planner = Planner(
            candidates=candidates_of(opened),
            asked=LadderAsked.model_validate(asked.model_dump(exclude={"retry_failed"})),
            seeds=fresh_seeds(opened, "ladder", asked.seeds),
            pace=measured_pace(rows, opened.corpus.info.vocab_size),
            corpus_tokens=opened.corpus.info.train_tokens,
            fits=lambda config: _fits(session, config),
        )
        # A plan stays as it is while its ladder runs, although newer short runs may change the
        # pace.
        made = (plan for plan in reversed(log.plans) if planner.would_make(plan))
        work = experiment(
            session,
            Ladder,
            retry_failed=asked.retry_failed,
            lines=FEW_LINES,
            log=log,
            plan=next(made, None) or planner.plan(timestamp()),
            pace=planner.pace,
        )
        greet(session, *work.announcement())
        ask_if_long(work, yes=yes)
        result = work.run()
        directory = opened.directory
        with writing_to(directory):
            pictures = draw(lambda: ladder_picture(result)).files
            for name, content in pictures.items():
                replace_file(directory, name, content)
        files = [str(directory / name) for name in pictures]
        lines: list[str | Text] = [*ladder_lines(result), f"plot      {', '.join(files)}"]
        fields = result_json(result) | {"plots": files}
        answer(fields, lines, as_json=as_json, console=session.console)


def _fits(session: Session, config: Config) -> bool:
    model = session.memory.model
    needed_gib = None if model is None else model.predict_gib(config)
    return model is None or needed_gib is None or needed_gib <= model.limit_gib
