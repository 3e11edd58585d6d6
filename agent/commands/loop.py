"""``autoresearch loop`` and ``calibrate``: the night's work."""

from __future__ import annotations

import json
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from agent.campaign import (
    Campaign,
    menu_of,
    new_settings,
    read_campaign_row,
    resumed_settings,
)
from agent.commands.corpora import prepared_corpus
from agent.display import Progress, display_for
from agent.judge import Rules
from agent.loop import Loop
from agent.menu import ProxyMenu, load_menu
from agent.proposers.choice import choose_proposer
from agent.rails import Rails
from agent.settings import CampaignSettings, ProposerKind, ReferenceMode, read_environment
from agent.stopping import Interrupted, StopRequest
from agent.trials import TrialRunner
from trainer.supervisor import LocalExecutor
from trajectory.ranking import Noise

DEFAULT_MENU = "cpu-tiny"

CampaignOption = Annotated[
    Path | None,
    typer.Option("--campaign", help="The campaign's directory. Default: runs/MENU."),
]
MenuOption = Annotated[
    str | None, typer.Option("--menu", help="A shipped menu's name or a TOML file.")
]


def loop(
    iters: Annotated[int, typer.Option("--iters", min=0, help="Iterations to reach in all.")] = 100,
    campaign: CampaignOption = None,
    menu: MenuOption = None,
    corpus: Annotated[
        str | None,
        typer.Option("--corpus", help="stdlib, a file, a folder, hf:NAME, or a prepared corpus."),
    ] = None,
    tokenizer: Annotated[
        str | None, typer.Option("--tokenizer", help="bytes, bpe:VOCAB or file:PATH.")
    ] = None,
    budget: Annotated[
        str | None, typer.Option("--budget", help="'60 steps', '2e6 tokens' or '30 seconds'.")
    ] = None,
    horizon: Annotated[
        str | None,
        typer.Option("--horizon", help="Steps the schedule is meant for, or 'budget'."),
    ] = None,
    proposer: Annotated[
        ProposerKind | None, typer.Option("--proposer", help="Who proposes.")
    ] = None,
    reference: Annotated[
        ReferenceMode | None, typer.Option("--reference", help="What proposals edit.")
    ] = None,
    device: Annotated[str | None, typer.Option("--device", help="cpu, cuda or cuda:N.")] = None,
    baseline_seeds: Annotated[int | None, typer.Option("--baseline-seeds", min=2)] = None,
    z_keep: Annotated[
        float | None, typer.Option("--z", min=0, help="Standard errors a gain must exceed.")
    ] = None,
    max_runs: Annotated[int | None, typer.Option("--max-runs", min=2)] = None,
    max_changes: Annotated[int | None, typer.Option("--max-changes", min=1)] = None,
    llm_share: Annotated[float | None, typer.Option("--llm-share", min=0, max=1)] = None,
    llm_warmup: Annotated[int | None, typer.Option("--llm-warmup", min=0)] = None,
    prompt_tokens: Annotated[int | None, typer.Option("--prompt-tokens", min=1000)] = None,
    prompts: Annotated[
        Path | None,
        typer.Option("--prompts", help="A folder whose templates replace the shipped ones."),
    ] = None,
    program: Annotated[
        Path | None, typer.Option("--program", help="Your research directions, for the LLM.")
    ] = None,
    seed: Annotated[int | None, typer.Option("--seed", min=0)] = None,
    threads: Annotated[int | None, typer.Option("--threads", min=1)] = None,
    trial_wall_s: Annotated[float | None, typer.Option("--trial-wall-s", min=1)] = None,
    trial_memory_gib: Annotated[float | None, typer.Option("--trial-memory-gib", min=0.1)] = None,
    prune: Annotated[
        bool | None, typer.Option("--prune/--no-prune", help="Stop hopeless trials early.")
    ] = None,
    allow_unsandboxed: Annotated[
        bool, typer.Option("--allow-unsandboxed", help="Go on where the kernel lacks Landlock.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="End with one JSON object on standard output.")
    ] = False,
) -> None:
    """Propose, train, measure, keep or discard, until the campaign holds ITERS iterations.

    Where the campaign's directory holds some already, it goes on from there.
    """
    chosen = _given(
        menu=menu,
        corpus=corpus,
        tokenizer=tokenizer,
        budget=budget,
        horizon_steps=_horizon(horizon),
        proposer=proposer,
        reference=reference,
        device=device,
        baseline_seeds=baseline_seeds,
        z_keep=z_keep,
        max_runs=max_runs,
        max_changes=max_changes,
        llm_share=llm_share,
        llm_warmup=llm_warmup,
        prompt_tokens=prompt_tokens,
        seed=seed,
        threads=threads,
        trial_wall_s=trial_wall_s,
        trial_memory_gib=trial_memory_gib,
        prune=prune,
    )
    run_campaign(
        campaign or default_campaign(menu),
        chosen,
        iterations=iters,
        prompts=prompts,
        program=program,
        allow_unsandboxed=allow_unsandboxed,
        as_json=as_json,
    )


def calibrate(
    campaign: CampaignOption = None,
    menu: MenuOption = None,
    seeds: Annotated[int, typer.Option("--seeds", min=2, help="Baseline replicates.")] = 5,
    allow_unsandboxed: Annotated[bool, typer.Option("--allow-unsandboxed")] = False,
    as_json: Annotated[bool, typer.Option("--json")] = False,
) -> None:
    """Replicate the baseline and say how noisy one run is: what decisions are measured against."""
    run_campaign(
        campaign or default_campaign(menu),
        _given(menu=menu, baseline_seeds=seeds),
        iterations=0,
        allow_unsandboxed=allow_unsandboxed,
        as_json=as_json,
    )


def default_campaign(menu: str | None) -> Path:
    """``runs/NAME`` in the current directory."""
    return Path("runs") / Path(menu or DEFAULT_MENU).stem


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
    """Create or resume the campaign and work on it until it holds ``iterations``."""
    console = Console(stderr=as_json)
    environment = read_environment()
    settings, menu = _settings(directory, chosen)
    rails = Rails(menu, budget=settings.budget, max_changes=settings.max_changes)
    choice = choose_proposer(
        settings, environment, rails, directory=directory, prompts=prompts, program=program
    )
    stop = StopRequest()
    with ExitStack() as resources:
        resources.enter_context(stop.listening())
        executor = resources.enter_context(LocalExecutor(allow_unsandboxed=allow_unsandboxed))
        corpus = prepared_corpus(settings, console)
        opened = resources.enter_context(
            Campaign(
                directory,
                settings,
                menu,
                corpus,
                sandbox=executor.describe(),
                history_url=environment.history_url,
            )
        )
        display = display_for(console, Progress(opened, iterations))
        _greet(console, opened, executor.describe(), choice.description)
        work = Loop(
            campaign=opened,
            proposer=choice.proposer,
            rails=rails,
            rules=Rules(z_keep=settings.z_keep, max_runs=settings.max_runs),
            runner=TrialRunner(
                directory / "trials",
                opened.trial_spec,
                executor,
                opened.evidence,
                stop,
                display,
            ),
            watcher=display,
            stop=stop,
        )
        try:
            with display.showing():
                work.run(iterations)
        except Interrupted as interrupted:
            console.print(
                f"{interrupted}. Resume with:\n"
                f"  autoresearch loop --iters {iterations} --campaign {directory}",
                highlight=False,
                soft_wrap=True,
            )
            raise typer.Exit(130) from None
        _conclude(console, opened, as_json=as_json)


def _settings(directory: Path, chosen: dict[str, Any]) -> tuple[CampaignSettings, ProxyMenu]:
    row = read_campaign_row(directory)
    if row is not None:
        return resumed_settings(directory, row, chosen), menu_of(row)
    source = chosen.get("menu", DEFAULT_MENU)
    menu = load_menu(source)
    return new_settings(menu, source, chosen), menu


def _greet(console: Console, campaign: Campaign, sandbox: str, proposer: str) -> None:
    info = campaign.corpus.info
    for line in (
        f"campaign  {campaign.directory} · menu {campaign.menu.name} · "
        f"{campaign.settings.budget} a trial",
        f"corpus    {info.name} · {info.tokenizer} · {info.train_bytes / 1e6:.1f} MB to train on, "
        f"{info.heldout_bytes:,} bytes held out",
        f"sandbox   {sandbox}",
        f"proposer  {proposer}",
    ):
        console.print(line, highlight=False, soft_wrap=True)
    for notice in (campaign.journal.repaired, campaign.history.note):
        if notice:
            console.print(notice, style="yellow", highlight=False, soft_wrap=True)


def _conclude(console: Console, campaign: Campaign, *, as_json: bool) -> None:
    evidence = campaign.evidence
    noise = Noise.of(evidence.tally)
    sigma = noise.sigma if noise else None
    summary = {
        "campaign": str(campaign.directory),
        "iterations": evidence.iterations,
        "configs": len(evidence.configs),
        "sigma_bpb": sigma,
        "sigma_dof": evidence.dof,
        "baseline_bpb": _mean(campaign, evidence.baseline_hash),
        "incumbent_bpb": _mean(campaign, evidence.incumbent_hash),
        "incumbent_hash": evidence.incumbent_hash,
    }
    if as_json:
        typer.echo(json.dumps(summary))
        return
    if sigma is not None:
        console.print(
            f"noise     sd {sigma:.4f} bpb a run, from {evidence.dof} degrees of freedom",
            highlight=False,
        )
    console.print(
        f"done      {evidence.iterations} iterations, {len(evidence.configs)} configs; cull them "
        f"with:\n  autoresearch top --k 10 --campaign {campaign.directory}",
        highlight=False,
        soft_wrap=True,
    )


def _mean(campaign: Campaign, config_hash: str | None) -> float | None:
    return None if config_hash is None else campaign.evidence.configs[config_hash].mean


def _given(**options: Any) -> dict[str, Any]:
    """The options a person gave, by the names of the settings."""
    return {name: value for name, value in options.items() if value is not None}


def _horizon(text: str | None) -> int | str | None:
    if text is None or text == "budget":
        return text
    try:
        return int(text)
    except ValueError:
        raise typer.BadParameter(
            f"{text!r} is neither a number of steps nor 'budget'", param_hint="--horizon"
        ) from None
