"""``autoresearch calibrate``: measure the noise of short runs, and how well they rank long ones."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Annotated, Any

import typer
from pydantic import Field
from rich.console import Console
from rich.text import Text

from agent.commands.options import JsonAtEndOption, takes
from agent.search.calibration import Calibration
from agent.search.calibration_plan import MOST_LONG_SEEDS, CalibrationPlan, check_calibratable
from agent.search.experiment import RetryFailed
from agent.search.stopping import Goal
from agent.session.campaign_run import SessionOptions, chosen_settings, run_campaign
from agent.session.console import answer, print_lines
from agent.session.experiments import experiment
from agent.session.greeting import greet
from agent.session.places import (
    CampaignOption,
    TrustOption,
    default_campaign,
    latest_campaign,
)
from agent.session.session import Session
from autoresearch.values import Frozen
from autoresearch.words import counted
from trainer.corpus.second_text import holdout_split
from trajectory.calibrated import Calibrated
from trajectory.statistics.fidelity import FEWEST


class FidelityAsked(Frozen):
    """The options of a calibration."""

    configs: int = Field(
        40, ge=FEWEST, le=10_000, description="With --fidelity: configs to train short and long."
    )
    steps: int = Field(1000, ge=50, le=10**7, description="With --fidelity: steps of a long run.")
    long_seeds: int = Field(
        1,
        ge=1,
        le=MOST_LONG_SEEDS,
        description="With --fidelity: long runs of each config; two show how noisy one is.",
    )
    retry_failed: RetryFailed = False


@takes(FidelityAsked)
def calibrate(
    *,
    campaign: CampaignOption = None,
    menu: Annotated[
        str | None,
        typer.Option("--menu", metavar="TEXT", help="Menu of a campaign that has not begun."),
    ] = None,
    seeds: Annotated[
        int | None,
        typer.Option("--seeds", min=2, metavar="N", help="Seeds of the baseline in total."),
    ] = None,
    fidelity: Annotated[
        bool, typer.Option("--fidelity", help="Measure how well short runs rank configs.")
    ] = False,
    asked: FidelityAsked,
    trust: TrustOption = False,
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
        options = SessionOptions(as_json=as_json, trust=trust)
        run_campaign(directory, chosen, Goal(iterations=0), options)
        return
    console = Console(stderr=as_json)
    settings, own_menu = chosen_settings(directory, chosen, console, trust=trust)
    check_calibratable(settings, own_menu, asked.steps)  # before a campaign is created
    with Session.opened(directory, settings, own_menu, console) as session:
        greet(session)
        found = calibrate_fidelity(session, asked)
    answer(found, report(found), as_json=as_json, console=console)


def calibrate_fidelity(session: Session, asked: FidelityAsked) -> Calibrated:
    """Run the runs of the calibration that the journal lacks, and print the progress.

    :raises Interrupted: if the user stopped it; everything finished is on disk.
    :raises AutoresearchError: if nothing can be calibrated.
    """
    campaign = session.campaign
    holdout = holdout_split(campaign.corpus)
    means = CalibrationPlan.means(campaign.settings)
    memory = session.memory.model
    plan = CalibrationPlan(
        campaign,
        train_tokens=None if holdout is None else holdout.train_tokens,
        configs=asked.configs,
        long_steps=asked.steps,
        long_seeds=asked.long_seeds,
        memory=None if memory is None else replace(memory, means=means),
    )
    work = experiment(session, Calibration, retry_failed=asked.retry_failed, plan=plan)
    print_lines(session.console, work.announcement())
    return work.run()


def report(found: Calibrated) -> Iterator[Text]:
    """Yield the result for a terminal, the headline first."""
    yield Text(found.headline, style="bold")
    yield Text(
        "rank correlations with the score of long runs on other seeds, with 95 % intervals; gain "
        "is Spearman less the campaign's own; forgone is what the config that a metric ranks first "
        "loses to the best in the long run, in bpb",
        style="dim",
    )
    yield Text(
        f"{'proxy metric':<36} {'Spearman':<20} {'Kendall':>7}  {'gain':<22} "
        f"{f'best {found.best_n}':<21} {'forgone':>7}",
        style="bold",
    )
    for metric in found.proxy_metrics:
        over = metric.gain
        gain = "" if over is None else f"{over.value:+.2f} ({over.lo:+.2f} … {over.hi:+.2f})"
        best = "" if metric.best is None else str(metric.best)
        yield Text(
            f"{metric.name:<36} {metric.spearman!s:<20} "
            f"{metric.kendall.value:>7.2f}  {gain:<22} {best:<21} {metric.forgone_bpb:>7.4f}"
        )
    left_out = (
        (found.nonfinite, "became non-finite in a long run and ranks last"),
        (found.left_out, "more ran out of memory or time, or crashed, and is left out"),
    )
    for count, what in left_out:
        if count:
            yield Text(f"{counted(count, 'config')} {what}", style="dim")
    if found.long_runs:
        yield Text(
            f"one long run ranks as the mean of the others does: Spearman {found.long_runs}",
            style="dim",
        )
    if found.advised is None:
        yield Text(
            "no other proxy metric ranks surely better than the campaign's own (by an "
            f"interval that holds for all {len(found.proxy_metrics) - 1} at once)"
        )
    else:
        yield Text(
            f"ranks surely better: {found.advised.name}; a new campaign may measure "
            "so (loop --set horizon_steps=…, average=… or cooldown_steps=…)",
            style="green",
        )
