"""``autoresearch stress``: long runs of the night's best."""

from __future__ import annotations

import json
from typing import Annotated

import typer
from rich.console import Console

from agent.menu.files import menu_of
from agent.search.campaign import Campaign, read_campaign_row
from agent.search.campaign_settings import resumed_settings
from agent.workbench.places import CampaignOption, MenuOption, existing_campaign, refuse_imported
from agent.workbench.sitting import Sitting, interruptible
from autoresearch.errors import CampaignError
from funnel.stress.display import StressDisplay
from funnel.stress.plan import LongRunSpec, StressPlan, fresh_seeds
from funnel.stress.plot import save_plot
from funnel.stress.report import StressReport, announcement
from funnel.stress.runs import StressTest
from trajectory import ranking

MIN_STEPS = 50
MAX_STEPS = 10**7


def stress(
    top: Annotated[int, typer.Option("--top", min=1, help="Best configs to run.")] = 3,
    steps: Annotated[
        int,
        typer.Option(
            "--steps", min=MIN_STEPS, max=MAX_STEPS, help="Of a run, and of its whole schedule."
        ),
    ] = 1000,
    seeds: Annotated[
        int,
        typer.Option("--seeds", min=1, help="Fresh seeds for each; two tell how noisy a run is."),
    ] = 2,
    spread: Annotated[
        int,
        typer.Option(
            "--spread", min=0, help="Configs spread over the whole ranking, to test the ranking."
        ),
    ] = 0,
    baseline: Annotated[
        bool, typer.Option("--baseline/--no-baseline", help="Run the baseline beside them.")
    ] = True,
    retry_failed: Annotated[
        bool,
        typer.Option(
            "--retry-failed", help="Run again what ended for want of memory or time, or crashed."
        ),
    ] = False,
    campaign: CampaignOption = None,
    menu: MenuOption = None,
    allow_unsandboxed: Annotated[
        bool, typer.Option("--allow-unsandboxed", help="Go on where the kernel lacks Landlock.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="End with one JSON object on standard output.")
    ] = False,
) -> None:
    """Train the best distinct configs for a full schedule: which stand it?

    Each run gets a verdict: survives, spikes (and recovers), plateaus,
    grad_blowup, diverges, nonfinite or failed, with the step it happened at.

    It may be stopped at any moment. Run the same command again, and only what
    is not in the journal yet is run, an interrupted run from its start.

    Long runs never count in the ranking of short ones.
    """
    console = Console(stderr=as_json)
    directory = existing_campaign(campaign, menu)
    refuse_imported(directory)
    row = read_campaign_row(directory)
    if row is None:
        raise CampaignError(f"{directory} holds an empty journal; start with: autoresearch loop")
    settings = resumed_settings(directory, row, {})
    with (
        interruptible(console),
        Sitting.opened(
            directory, settings, menu_of(row), console, allow_unsandboxed=allow_unsandboxed
        ) as sitting,
    ):
        plan = _plan(sitting.campaign, top, spread, baseline, steps, seeds)
        work = _prepare(sitting, plan, retry_failed=retry_failed)
        sitting.greet(*announcement(work))
        report = StressReport.of(work, work.run())
        files = save_plot(*report.panels(), directory / f"stress-{steps}")
        if as_json:
            typer.echo(json.dumps(report.as_json() | {"plots": [str(file) for file in files]}))
            return
        for line in report.lines():
            console.print(line, soft_wrap=True, highlight=False)
        sitting.say(f"plot      {', '.join(map(str, files))}")


def _plan(
    campaign: Campaign, top: int, spread: int, baseline: bool, steps: int, seeds: int
) -> StressPlan:
    evidence = campaign.evidence
    used = {
        seed for entry in evidence.configs.values() for seed in (*entry.scores, *entry.failed_seeds)
    }
    return StressPlan.of(
        ranking.top(evidence, len(evidence.configs)),
        top=top,
        spread=spread,
        baseline_hash=evidence.baseline_hash if baseline else None,
        steps=steps,
        seeds=fresh_seeds(campaign.settings.seed, used, seeds),
    )


def _prepare(sitting: Sitting, plan: StressPlan, *, retry_failed: bool) -> StressTest:
    campaign = sitting.campaign
    long_run = LongRunSpec(campaign, plan.steps)
    display = StressDisplay(sitting.console, campaign.menu.baseline)
    return StressTest(
        campaign=campaign,
        plan=plan,
        long_run=long_run,
        runner=sitting.runner(long_run, display),
        watcher=display,
        stop=sitting.stop,
        meter=sitting.sampler,
        retry_failed=retry_failed,
    )
