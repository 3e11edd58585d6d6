"""``autoresearch handoff`` and ``verify``: the launch plan, and the run's first day."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer
from pydantic import Field
from rich.text import Text

from agent.commands.options import JsonOption, takes
from agent.session.console import answer
from agent.session.greeting import epochs_text
from agent.session.places import CampaignOption, existing_campaign
from autoresearch.errors import AutoresearchError, SettingsError
from autoresearch.safe_text import plain
from autoresearch.values import Frozen, PositiveInt
from funnel.cost.gpus import find_gpu
from funnel.cost.rates import read_rates
from funnel.forecast.cloud_log import CloudLog, TokenCount, read_cloud_log
from funnel.forecast.verification import ForecastVerdict, Question, Verification
from funnel.forecast.verification import verify as judge_log
from funnel.ladder.result import read_ladder
from funnel.plan.booking import USUAL_PREEMPTIONS, Terms
from funnel.plan.bundle import refuse_foreign, write_bundle
from funnel.plan.case import read_case
from funnel.plan.handoff import Handoff, Wishes, make_handoff
from funnel.plan.handoff_files import handoff_files, plan_json, read_planned
from funnel.plan.layout import Cluster
from funnel.plan.risks import LaunchVerdict
from funnel.plan.utilisation import read_measured
from funnel.targets.architecture import TargetArchitecture, load_target
from funnel.targets.shape import size_text


class HandoffOptions(Frozen):
    """Options of a launch plan."""

    target: str = Field(description="A shipped target's name or a TOML file.")
    nodes: int = Field(1, ge=1, le=4096, description="Rented machines.")
    gpus: int = Field(8, ge=1, le=64, description="GPUs per machine.")
    gpu: str = Field("h100", description="h100, h200 or b200.")
    mfu: Annotated[float, Field(ge=0.01, le=1.0)] | None = Field(
        None,
        description="Model FLOPs utilization, 0 to 1. Default: computed.",
    )
    measured: Path | None = Field(
        None, description="Output of `preflight.sh speed`, used instead of the computed speed."
    )
    spot: bool = Field(
        False, description="Plan for spot machines, which can be interrupted at any time."
    )
    global_batch: PositiveInt | None = Field(
        None,
        description="Sequences per step, which decide rate and decay. Default: by a scaling law.",
    )
    bytes_per_token: Annotated[float, Field(ge=0.1, le=100)] | None = Field(
        None, description="Mean bytes per token of the large run's tokenizer, if known."
    )
    anyway: bool = Field(False, description="Write the scripts although the plan advises against.")
    out: Path = Field(Path("handoff"), description="Folder for the plan.")


@takes(HandoffOptions)
def handoff(
    *,
    campaign: CampaignOption = None,
    asked: HandoffOptions,
    as_json: JsonOption = False,
) -> None:
    """Write the launch plan: recipe, scripts, layout, cost, forecast.

    The plan is for the best finalist of the latest stress test. It replaces an earlier plan unless
    someone has edited that. Its verdict is the exit code: 0 GO, 3 NOT YET, 4 DO NOT LAUNCH. The
    last writes no script without --anyway.
    """
    out = asked.out
    refuse_foreign(out)
    architecture = load_target(asked.target)
    cluster = Cluster(nodes=asked.nodes, gpus=asked.gpus, gpu=find_gpu(asked.gpu))
    rates = read_rates()
    wishes = Wishes(
        mfu=asked.mfu,
        batch=asked.global_batch,
        bytes_per_token=_bytes_per_token(asked, architecture, as_json=as_json),
        terms=Terms(
            spot=asked.spot,
            preemptions_per_day=rates.preemptions_per_day or USUAL_PREEMPTIONS,
        ),
        measured=read_measured(asked.measured) if asked.measured else None,
    )
    case = read_case(existing_campaign(campaign))
    best = case.candidates[0]
    ladder = read_ladder(case.directory, of=(best.config, best.horizon_steps))
    plan = make_handoff(case, architecture, cluster, wishes, rates, ladder=ladder)
    files = handoff_files(plan, out, anyway=asked.anyway)
    write_bundle(out, files)
    fields = plan_json(plan) | {"out": str(out), "files": sorted(files)}
    answer(fields, _lines(plan, out), as_json=as_json)
    if code := _LAUNCH_CODES[plan.verdict]:
        raise typer.Exit(code)


def _bytes_per_token(
    asked: HandoffOptions, target: TargetArchitecture, *, as_json: bool
) -> float | None:
    """Return the bytes per token of the run's tokenizer: the option's, the target file's, or what a
    person at a terminal answers."""
    known = asked.bytes_per_token or target.bytes_per_token
    if known or as_json or not (sys.stdin.isatty() and sys.stdout.isatty()):
        return known
    said = typer.prompt(
        f"bytes per token of {target.name}'s tokenizer on your text, so that verify can compare "
        "its loss (tokenizers of 128,256 tokens have about 4.4; empty: unknown)",
        default="",
        show_default=False,
    )
    try:
        return float(said) if said.strip() else None
    except ValueError as error:
        raise SettingsError(
            f"{said!r} is not a number of bytes; give it with --bytes-per-token"
        ) from error


def epochs_of(plan: Handoff) -> float:
    """Return how many epochs the run makes over the campaign's corpus.

    The count is by bytes if the cloud tokenizer's bytes per token are known, else as if its tokens
    were the campaign's.
    """
    corpus, tokens = plan.case.row.text, plan.winner.schedule.tokens
    bytes_per_token = plan.run.bytes_per_token
    if bytes_per_token is None:
        return tokens / corpus.train_tokens
    return tokens * bytes_per_token / corpus.train_bytes


def _lines(plan: Handoff, out: Path) -> list[str | Text]:
    winner, compute = plan.winner, plan.booking.compute
    lines: list[str | Text] = [
        f"recipe    {out / winner.file} · {out / winner.script}",
        f"target    {plan.booking.target.name} · {size_text(winner.schedule.tokens)} tokens in "
        f"{winner.schedule.steps:,} steps of {winner.schedule.tokens_per_step:,}",
        "data      the campaign's corpus would be gone through "
        f"{epochs_text(epochs_of(plan))} times",
        f"layout    {winner.layout}, micro-batch {winner.layout.micro_batch}: "
        f"{winner.memory.total_gb:.1f} of {winner.memory.limit_gb:.1f} GB a GPU",
        f"time      {compute.hours:,.0f} hours at {compute.mfu:.0%} utilisation "
        f"({compute.speed.words()}); with interruptions {winner.operations.hours:,.0f}",
        f"money     ${compute.cost_usd:,.0f} at ${compute.gpu_hourly_usd:,.2f} a GPU-hour; the "
        f"first day ${compute.day_usd:,.0f}",
    ]
    if plan.forecast is not None:
        first, last = plan.forecast.points[0], plan.forecast.points[-1]
        lines.append(
            f"forecast  {first.low_bpb:.3f} … {first.high_bpb:.3f} bits per byte at "
            f"{size_text(first.tokens)} tokens, {last.low_bpb:.3f} … {last.high_bpb:.3f} at "
            f"{size_text(last.tokens)}"
        )
    borne = [reason.text for reason in plan.reasons if reason.verdict == "GO"]
    lines += [f"risk      {text}" for text in borne]
    lines += [f"read      {out / 'README.md'}", Text(f"verdict   {plan.verdict}", style="bold")]
    for reason in plan.reasons:
        if reason.verdict != "GO":
            lines.append(f"          {reason.verdict}: {reason.text}")
    if plan.verdict == "DO NOT LAUNCH":
        lines.append("          no launch script is written without --anyway")
    return lines


_LAUNCH_CODES: dict[LaunchVerdict, int] = {"GO": 0, "NOT YET": 3, "DO NOT LAUNCH": 4}


CANNOT_TELL = 3
"""Exit code for a run that is neither confirmed nor broken."""
CANNOT_READ = 4
"""Exit code for a log or plan that cannot be read."""
SHOWN = 12
_EXIT_CODES: dict[ForecastVerdict, int] = {
    "within": 0,
    "broken": 1,
    "too_early": CANNOT_TELL,
    "no_band": CANNOT_TELL,
}
_STYLES = {"yes": "green", "no": "bold red", "unknown": "yellow"}
_QUESTIONS: dict[Question, str] = {
    "learning": "is it learning?",
    "stable": "is it stable?",
    "in place": "is it where it should be?",
}


def verify(
    log: Annotated[
        Path,
        typer.Option(help="The cloud run's losses: CSV, JSON lines or the trainer's output."),
    ],
    handoff: Annotated[
        Path, typer.Option(help="The launch plan's directory, or its forecast.json.")
    ] = Path("handoff"),
    bytes_per_token: Annotated[
        float | None,
        typer.Option(
            min=0.1,
            max=100,
            help="Mean bytes per token of the cloud run's tokenizer, if it is not the plan's.",
        ),
    ] = None,
    log_every: Annotated[
        int | None,
        typer.Option(min=1, help="Steps between two losses, for a log without step numbers."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Judge a cloud run: learning, stable, where it should be?

    Exit code 0: yes to all three. 1: no to one of them. 3: too early to tell, or there is no usable
    forecast. 4: the log or the plan cannot be read.
    """
    try:
        run, forecast = read_planned(handoff)
        count = TokenCount(run.tokens_per_step, run.seq_len, log_every)
        losses = read_cloud_log(log, count)
        found = judge_log(losses, run, forecast, bytes_per_token)
    except AutoresearchError as error:
        typer.echo(f"error: {plain(str(error))}", err=True)
        raise typer.Exit(CANNOT_READ) from error
    answer(found, _verdict_lines(found, losses), as_json=as_json)
    if code := _EXIT_CODES[found.verdict]:
        raise typer.Exit(code)


def _verdict_lines(found: Verification, log: CloudLog) -> Iterator[Text]:
    for one in found.answers:
        since = "" if one.step is None else f" since step {one.step:,}"
        yield Text.assemble(
            f"{_QUESTIONS[one.question]:<26}",
            (f"{one.answer}{since}", _STYLES[one.answer]),
            f": {one.reason}",
        )
    if found.windows:
        yield Text(
            f"{'step':>10} {'tokens':>8} {'bpb':>8} {'low':>8} {'middle':>8} {'high':>8}",
            style="bold",
        )
    stride = -(-len(found.windows) // SHOWN) or 1
    for window in found.windows[::-1][::stride][::-1]:
        yield Text(
            f"{window.step:>10,} {size_text(window.tokens):>8} {window.bpb:>8.4f} "
            f"{window.low_bpb:>8.4f} {window.middle_bpb:>8.4f} {window.high_bpb:>8.4f}",
            style="red" if abs(window.off) > 1 else "",
        )
    parts = [f"{len(log.points):,} losses"]
    if log.repeated:
        parts.append(f"{log.repeated:,} repeated after a restart, and counted once")
    if log.ranks > 1:
        parts.append(f"the mean of {log.ranks} processes")
    if found.bytes_per_token is not None:
        parts.append(f"nats a token / (ln 2 × {found.bytes_per_token:.4g} bytes)")
    yield Text("; ".join(parts), style="dim")
