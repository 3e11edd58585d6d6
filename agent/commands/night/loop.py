"""``autoresearch loop`` and ``calibrate``: the night's work."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from agent.search.goal import Goal
from agent.settings.campaign import ProposerKind, ReferenceMode
from agent.workbench.places import CampaignOption, MenuOption, default_campaign
from agent.workbench.campaign_run import run_campaign
from trainer.spec import BackendName


def loop(
    iters: Annotated[
        int | None,
        typer.Option("--iters", min=0, help="Iterations to reach in all.  [default: 100]"),
    ] = None,
    trials: Annotated[
        int | None, typer.Option("--trials", min=0, help="End once so many trials ran in all.")
    ] = None,
    hours: Annotated[
        float | None, typer.Option("--hours", min=0, help="End after so much work in all.")
    ] = None,
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
    backend: Annotated[
        BackendName | None, typer.Option("--backend", help="Where models come from.")
    ] = None,
    device: Annotated[str | None, typer.Option("--device", help="cpu, cuda or cuda:N.")] = None,
    compile_: Annotated[
        bool | None,
        typer.Option("--compile/--no-compile", help="Train torch's blocks compiled. Default: no."),
    ] = None,
    baseline_seeds: Annotated[
        int | None, typer.Option("--baseline-seeds", min=2, help="The noise is measured on them.")
    ] = None,
    z_keep: Annotated[
        float | None, typer.Option("--z", min=0, help="Standard errors a gain must exceed.")
    ] = None,
    z_drop: Annotated[
        float | None,
        typer.Option("--z-drop", min=0, help="Standard errors of hope a race goes on with."),
    ] = None,
    first_drop: Annotated[
        float | None,
        typer.Option("--first-drop", help="Loss on the first pair, in sd, that ends a race."),
    ] = None,
    max_runs: Annotated[
        int | None, typer.Option("--max-runs", min=2, help="Most common seeds of a race.")
    ] = None,
    max_changes: Annotated[
        int | None, typer.Option("--max-changes", min=1, help="Most knobs a proposal turns.")
    ] = None,
    llm_share: Annotated[
        float | None,
        typer.Option("--llm-share", min=0, max=1, help="Of iterations the model may override."),
    ] = None,
    llm_warmup: Annotated[
        int | None, typer.Option("--llm-warmup", min=0, help="Iterations before the model's first.")
    ] = None,
    prompt_tokens: Annotated[
        int | None, typer.Option("--prompt-tokens", min=1000, help="What a prompt may hold.")
    ] = None,
    prompts: Annotated[
        Path | None,
        typer.Option("--prompts", help="A folder whose templates replace the shipped ones."),
    ] = None,
    program: Annotated[
        Path | None, typer.Option("--program", help="Your research directions, for the LLM.")
    ] = None,
    prior: Annotated[
        list[Path] | None,
        typer.Option(
            "--prior",
            help="An earlier campaign, or a file that import takes, for the proposers to learn "
            "from; again for each.",
        ),
    ] = None,
    log: Annotated[
        list[str] | None,
        typer.Option(
            "--log",
            help="Send what happens to mlflow[:URI], wandb[:PROJECT] or tensorboard[:DIR]; again "
            "for each.",
        ),
    ] = None,
    seed: Annotated[
        int | None, typer.Option("--seed", min=0, help="Root of every random choice.")
    ] = None,
    threads: Annotated[
        int | None, typer.Option("--threads", min=1, help="CPU threads of a trial.")
    ] = None,
    trial_wall_s: Annotated[
        float | None, typer.Option("--trial-wall-s", min=1, help="A trial's time limit.")
    ] = None,
    trial_memory_gib: Annotated[
        float | None, typer.Option("--trial-memory-gib", min=0.1, help="A trial's memory limit.")
    ] = None,
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
    """Propose, train, measure, keep or discard, until the campaign has had ITERS iterations, TRIALS
    trials or HOURS of work, whichever is given and comes first.

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
        backend=backend,
        device=device,
        compile=compile_,
        baseline_seeds=baseline_seeds,
        z_keep=z_keep,
        z_drop=z_drop,
        first_drop=first_drop,
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
        goal=Goal.asked(iters, trials, hours),
        prompts=prompts,
        program=program,
        priors=prior or (),
        log=log or (),
        allow_unsandboxed=allow_unsandboxed,
        as_json=as_json,
    )


def calibrate(
    campaign: CampaignOption = None,
    menu: MenuOption = None,
    seeds: Annotated[
        int | None, typer.Option("--seeds", min=2, help="Baseline replicates, in all.")
    ] = None,
    allow_unsandboxed: Annotated[bool, typer.Option("--allow-unsandboxed")] = False,
    as_json: Annotated[bool, typer.Option("--json")] = False,
) -> None:
    """Replicate the baseline and say how noisy one run is: what decisions are measured against."""
    run_campaign(
        campaign or default_campaign(menu),
        _given(menu=menu, baseline_seeds=seeds),
        goal=Goal(iterations=0),
        allow_unsandboxed=allow_unsandboxed,
        as_json=as_json,
    )


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
