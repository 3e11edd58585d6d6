"""``autoresearch compare``: compare training backends on this machine."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, get_args

import typer
from pydantic import Field
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from agent.commands.options import fill, takes
from agent.menu.files import ProxyMenu, load_menu
from agent.session.console import answer, say
from agent.session.lane_opening import AUTO, chosen_device, device_telemetry
from agent.session.places import measurements_of
from agent.settings.environment import read_environment
from autoresearch.files import replace_file, writing
from autoresearch.layout import TELEMETRY_FILE
from autoresearch.values import Frozen, PositiveInt
from trainer.corpus.prepare import random_corpus, vocabulary_of
from trainer.envelope.comparison import (
    QUANTITIES,
    BackendComparison,
    CompareSettings,
    compare_backends,
)
from trainer.executors.choice import choose_executor
from trainer.machine.ceiling import measure_ceiling
from trainer.machine.flops import FORMULA
from trainer.schema import BackendName, Limits, gpt, make_config
from trainer.telemetry import Sampler

DEFAULT_WALL_S = 1800.0
INTERVAL_S = 0.5
"""Seconds between two samples of the device."""
UNCOUNTED_STEPS = 10
"""First steps that are not counted; fewer if less than twice as many are trained."""
BACKENDS: tuple[BackendName, ...] = get_args(BackendName)


class CompareOptions(Frozen):
    """Options of a comparison."""

    backends: str = Field(
        "torch,megatron",
        description=f"Backends to compare, the reference first: {', '.join(BACKENDS)}.",
    )
    menu: str = Field(
        "cpu-tiny",  # both backends train it
        description="A shipped menu's name or a TOML file.",
    )
    steps: PositiveInt = Field(100, description="Steps of each.")
    batch: PositiveInt | None = Field(None, description="Sequences per step. Default: the menu's.")
    precision: str | None = Field(None, description="fp32, bf16 or fp8. Default: the menu's.")
    device: str = Field(AUTO, description="cpu, cuda or cuda:N; auto: CUDA if it works.")


@takes(CompareOptions)
def compare(
    *,
    asked: CompareOptions,
    as_json: Annotated[bool, typer.Option("--json")] = False,
) -> None:
    """Train the baseline with each backend: speed, memory, loss.

    Each backend runs a trial of the same shape, data, seed and steps. A backend that cannot train
    here is left out with its reason.
    """
    console = Console(stderr=as_json)
    chosen = load_menu(asked.menu)
    device = chosen_device(chosen, asked.device, console)
    settings = _settings(chosen, asked.model_copy(update={"device": device}))
    names = [word.strip() for word in asked.backends.split(",")]
    for name in names:
        if name not in BACKENDS:
            raise typer.BadParameter(
                f"{name!r} is not one of {', '.join(BACKENDS)}", param_hint="--backends"
            )
    directory = measurements_of("compare", asked.menu, chosen.name)
    found = _measured(
        settings,
        [backend for name in names for backend in BACKENDS if backend == name],
        directory,
        vocab_size=vocabulary_of(chosen.campaign.tokenizer),
        console=console,
    )
    path = directory / "comparison.json"
    with writing(path, instead="run it in another folder"):
        replace_file(path, found.model_dump_json(indent=2) + "\n")
    deltas = [
        {"backend": one.backend, "over": found.base.backend, "quantity": each.name, "pct": pct}
        for one in found.others
        for each in QUANTITIES
        if (pct := each.delta_pct(one, found.base)) is not None
    ]
    extra = {"deltas": deltas, "defects": found.defects(), "file": str(path)}
    fields = found.model_dump(mode="json") | extra
    answer(fields, _lines(found, path), as_json=as_json, console=console)


# --- what to measure ----------------------------------------------------------------------------


def _settings(menu: ProxyMenu, asked: CompareOptions) -> CompareSettings:
    shape = {"batch_size": asked.batch, "precision": asked.precision}
    changes = {name: value for name, value in shape.items() if value is not None}
    defaults = menu.campaign
    limits = Limits(
        wall_s=defaults.wall_s or DEFAULT_WALL_S,
        memory_gib=defaults.memory_gib,
        reserve_gib=read_environment().memory_reserve_gib,
    )
    chosen = {
        "config": make_config({**gpt(menu.baseline).model_dump(), **changes}),
        "warmup": min(UNCOUNTED_STEPS, asked.steps // 2),
        "threads": defaults.threads,
        "limits": limits,
    }
    return fill(CompareSettings, asked.model_dump(include={"steps", "device"}) | chosen)


def _measured(
    settings: CompareSettings,
    names: list[BackendName],
    directory: Path,
    *,
    vocab_size: int,
    console: Console,
) -> BackendComparison:
    config, device = settings.config, settings.device
    with console.status(f"measuring what {device} can do at most"):
        ceiling = measure_ceiling(device, "fp32" if config.precision == "fp32" else "bf16")
    corpus = random_corpus(
        directory / "corpus", vocab_size=vocab_size, longest_seq_len=config.seq_len
    )
    telemetry = device_telemetry(device)
    if device != "cpu":
        say(console, f"telemetry {telemetry.description}")
    with (
        Sampler(telemetry, directory / TELEMETRY_FILE, interval_s=INTERVAL_S) as sampler,
        choose_executor(allow_unsandboxed=True) as executor,
        console.status("") as line,
    ):
        return compare_backends(
            settings,
            names,
            corpus,
            directory,
            executor,
            ceiling,
            sampler=sampler,
            on_start=lambda backend: line.update(f"measuring {backend}"),
        )


# --- what was found -----------------------------------------------------------------------------


def _lines(found: BackendComparison, path: Path) -> Iterator[RenderableType]:
    """Yield the table in the published layout, then notes on reading it."""
    config, settings, ceiling = found.settings.config, found.settings, found.ceiling
    devices = dict.fromkeys(one.device_name for one in found.contenders if one.device_name)
    yield (
        f"batch {config.batch_size} × {config.seq_len}, {config.precision}"
        f", {settings.steps} steps,"
        f" the first {settings.warmup} not counted; {found.corpus}, seed {settings.seed}; "
        f"{', '.join(devices) or settings.device}"
    )
    yield _table(found)
    sizes = ", ".join(f"{p.size}: {p.tflops:.3g}" for p in ceiling.products)
    yield (
        f"ceiling   {ceiling.tflops:.4g} TFLOP/s in {ceiling.dtype} (square products, median: "
        f"{sizes}); copies {ceiling.copy_gb_per_s:,.0f} GB/s, read and written"
    )
    yield f"FLOPs     {found.flops_per_token:.4g} = {FORMULA}, causal attention as a whole"
    for one in found.contenders:
        if one.status != "ok":
            yield Text(f"{one.backend} ended as {one.status}: {one.message}", style="yellow")
    for left in found.left_out:
        yield Text(f"{left.backend} is left out: {left.why}", style="yellow")
    for defect in found.defects():
        yield Text(defect, style="bold red")
    yield f"written   {path}"


def _table(found: BackendComparison) -> Table:
    """Return a table of quantities by backend, with each backend's difference from the first in the
    last columns."""
    base = found.base
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("")
    for one in found.contenders:
        table.add_column(one.backend, justify="right", no_wrap=True)
    for one in found.others:
        table.add_column(f"{one.backend} / {base.backend}", justify="right", no_wrap=True)
    for quantity in QUANTITIES:
        if any(quantity.value(one) is not None for one in found.contenders):
            values = [
                (quantity.text(one) if one.status == "ok" else one.status)
                for one in found.contenders
            ]
            deltas = [quantity.delta_pct(one, base) for one in found.others]
            said = ["" if pct is None else f"{pct:+.1f} %" for pct in deltas]
            name = quantity.name
            if found.settings.device == "cpu":  # a CPU has no allocator of its own
                name = name.replace("allocated", "resident")
            table.add_row(name, *values, *said)
    return table
