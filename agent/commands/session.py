"""One sitting with a campaign: everything chosen and opened, worked on, and closed again."""

from __future__ import annotations

import json
import shlex
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import typer
from rich.console import Console
from rich.text import Text

from agent.campaign import (
    Campaign,
    menu_of,
    new_settings,
    read_campaign_row,
    resumed_settings,
)
from agent.commands.corpora import prepared_corpus
from agent.commands.places import DEFAULT_MENU
from agent.display import Progress, display_for
from agent.judge import Rules
from agent.loop import Loop
from agent.menu import ProxyMenu, load_menu
from agent.proposers.choice import choose_proposer
from agent.rails import Rails
from agent.settings import (
    CampaignSettings,
    CudaEnvironment,
    data_dir,
    read_environment,
)
from agent.stopping import Interrupted, StopRequest
from agent.trials import TrialRunner
from trainer.envelope import choose_memory, envelope_path
from trainer.supervisor import LocalExecutor
from trainer.telemetry import (
    TELEMETRY_FILE,
    MeteredExecutor,
    Sampler,
    Telemetry,
    TelemetrySummary,
    choose_telemetry,
)
from trajectory.ranking import Noise


def run_campaign(
    directory: Path,
    chosen: dict[str, Any],
    *,
    iterations: int,
    prompts: Path | None = None,
    program: Path | None = None,
    allow_unsandboxed: bool = False,
    as_json: bool = False,
) -> None:
    """Create or resume the campaign and work on it until it holds ``iterations``.

    What the person chose is checked before anything is created.
    """
    console = Console(stderr=as_json)
    environment = read_environment()
    settings, menu = _settings(directory, chosen)
    rails = Rails(menu, budget=settings.budget, max_changes=settings.max_changes)
    choice = choose_proposer(
        settings, environment, rails, directory=directory, prompts=prompts, program=program
    )
    stop = StopRequest()
    try:
        with ExitStack() as resources:
            resources.enter_context(stop.listening())
            executor = resources.enter_context(LocalExecutor(allow_unsandboxed=allow_unsandboxed))
            corpus = prepared_corpus(settings, console)
            campaign = resources.enter_context(
                Campaign(
                    directory,
                    settings,
                    menu,
                    corpus,
                    sandbox=executor.describe(),
                    history_url=environment.history_url,
                )
            )
            memory = choose_memory(
                envelope_path(
                    data_dir() / "envelopes",
                    menu_sha256=menu.sha256,
                    backend=settings.backend,
                    device=settings.device,
                ),
                vocab_size=corpus.info.vocab_size,
                backend=settings.backend,
                device=settings.device,
                trial_limit_gib=settings.trial_memory_gib,
            )
            rails.memory = memory.model
            display = display_for(console, Progress(campaign, iterations))
            telemetry = _telemetry(settings)
            sampler = resources.enter_context(
                Sampler(
                    telemetry,
                    directory / TELEMETRY_FILE,
                    on_note=lambda text: _say(console, text, "yellow"),
                )
            )
            _greet(
                console,
                campaign,
                sandbox=executor.describe(),
                proposer=choice.description,
                memory=memory.description,
                telemetry=telemetry.description,
            )
            work = Loop(
                campaign=campaign,
                proposer=choice.proposer,
                rails=rails,
                rules=Rules(z_keep=settings.z_keep, max_runs=settings.max_runs),
                runner=TrialRunner(
                    directory / "trials",
                    campaign.trial_spec,
                    MeteredExecutor(executor, sampler),
                    campaign.evidence,
                    stop,
                    display,
                ),
                watcher=display,
                stop=stop,
                meter=sampler,
            )
            with display.showing():
                work.run(iterations)
            _conclude(console, campaign, sampler.summary(environment.usd_per_kwh), as_json=as_json)
    except Interrupted as interrupted:
        again = shlex.join(["autoresearch", *sys.argv[1:]])
        _say(console, f"{interrupted}. Go on with:\n  {again}")
        raise typer.Exit(130) from None


def _settings(directory: Path, chosen: dict[str, Any]) -> tuple[CampaignSettings, ProxyMenu]:
    row = read_campaign_row(directory)
    if row is not None:
        return resumed_settings(directory, row, chosen), menu_of(row)
    source = chosen.get("menu", DEFAULT_MENU)
    menu = load_menu(source)
    settings = new_settings(menu, source, chosen)
    _check_trainable(settings, menu)
    return settings, menu


def _check_trainable(settings: CampaignSettings, menu: ProxyMenu) -> None:
    """Refuse a device that is not there, or a backend that cannot train the baseline on it."""
    from trainer.child import check_trainable  # noqa: PLC0415 (torch; only a new campaign asks)

    check_trainable(menu.baseline, settings.backend, settings.device)


def _telemetry(settings: CampaignSettings) -> Telemetry:
    cuda = CudaEnvironment()
    return choose_telemetry(
        settings.device,
        visible_devices=cuda.cuda_visible_devices,
        device_order=cuda.cuda_device_order,
    )


def _say(console: Console, text: str, style: str = "") -> None:
    """One line as it is, whatever brackets a path or a model's name has."""
    console.print(Text(text, style=style), soft_wrap=True)


def _greet(
    console: Console,
    campaign: Campaign,
    *,
    sandbox: str,
    proposer: str,
    memory: str,
    telemetry: str,
) -> None:
    info = campaign.corpus.info
    _say(
        console,
        f"campaign  {campaign.directory} · menu {campaign.menu.name} · "
        f"{campaign.settings.budget} a trial",
    )
    _say(
        console,
        f"corpus    {info.name} · {info.tokenizer} · {info.train_bytes / 1e6:.3g} MB to train on, "
        f"{info.heldout_bytes:,} bytes held out",
    )
    _say(console, f"sandbox   {sandbox}")
    _say(console, f"memory    {memory}")
    _say(console, f"telemetry {telemetry}")
    _say(console, f"proposer  {proposer}")
    for notice in (campaign.journal.repaired, campaign.history.note):
        if notice:
            _say(console, notice, "yellow")


def _conclude(
    console: Console, campaign: Campaign, usage: TelemetrySummary, *, as_json: bool
) -> None:
    evidence = campaign.evidence
    noise = Noise.of(evidence.tally)
    sigma = noise.sigma if noise else None
    if as_json:
        summary = {
            "campaign": str(campaign.directory),
            "iterations": evidence.iterations,
            "configs": len(evidence.configs),
            "sigma_bpb": sigma,
            "sigma_dof": evidence.dof,
            "baseline_bpb": _mean(campaign, evidence.baseline_hash),
            "incumbent_bpb": _mean(campaign, evidence.incumbent_hash),
            "incumbent_hash": evidence.incumbent_hash,
            "telemetry": usage.model_dump(mode="json") if usage.samples else None,
        }
        typer.echo(json.dumps(summary))
        return
    if sigma is not None:
        _say(console, f"noise     sd {sigma:.4f} bpb a run, from {evidence.dof} degrees of freedom")
    if usage.samples:
        for line in usage.lines():
            _say(console, f"gpu       {line}")
    top = shlex.join(["autoresearch", "top", "--k", "10", "--campaign", str(campaign.directory)])
    _say(
        console,
        f"done      {evidence.iterations} iterations, {len(evidence.configs)} configs; cull them "
        f"with:\n  {top}",
    )


def _mean(campaign: Campaign, config_hash: str | None) -> float | None:
    return None if config_hash is None else campaign.evidence.configs[config_hash].mean
