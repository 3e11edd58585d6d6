"""``autoresearch envelope``: measure this machine by batch size, sequence length and precision."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import Field
from rich.columns import Columns
from rich.console import Console, RenderableType
from rich.status import Status
from rich.table import Table
from rich.text import Text

from agent.commands.options import fill, takes
from agent.menu.files import ProxyMenu, load_menu
from agent.search.stopping import StopRequest
from agent.session.console import answer, say
from agent.session.lane_opening import AUTO, chosen_device, device_telemetry
from agent.session.places import measurements_of
from agent.settings.campaign import DEFAULT_MENU
from agent.settings.environment import read_environment
from autoresearch import screen
from autoresearch.files import writing
from autoresearch.layout import TELEMETRY_FILE
from autoresearch.values import Frozen, NonNegativeInt, PositiveInt
from trainer.corpus.prepare import vocabulary_of
from trainer.envelope.points import PRECISIONS, Cell, EnvelopePoint, EnvelopeSettings, Grid
from trainer.envelope.sweep import cells, sweep
from trainer.executors.choice import choose_executor
from trainer.memory.estimate import AnalyticMemory, DeviceLimit, device_limit
from trainer.schema import gpt
from trainer.telemetry import MeanAndPeak, Sampler

DEFAULT_WALL_S = 1800.0
INTERVAL_S = 0.5
"""Seconds between two samples of the device."""


class EnvelopeOptions(Frozen):
    """Options of a sweep."""

    menu: str = Field(DEFAULT_MENU, description="A shipped menu's name or a TOML file.")
    batch: str | None = Field(
        None, description="Sequences per step: 2,4,8,16. Default: the menu's."
    )
    seq: str | None = Field(
        None, description="Tokens per sequence: 1024,2048. Default: the menu's."
    )
    precision: str | None = Field(None, description="fp32, bf16, fp8. Default: the menu's.")
    steps: PositiveInt = Field(30, description="Steps of a point.")
    warmup: NonNegativeInt = Field(5, description="First steps that are not counted.")
    device: str = Field(AUTO, description="cpu, cuda or cuda:N; auto: CUDA if it works.")
    backend: str = Field("torch", description="Library that builds the model: torch or megatron.")
    out: Path | None = Field(
        None, description="Folder to write and resume in. Default: runs/envelope-MENU."
    )


@takes(EnvelopeOptions)
def envelope(
    *,
    asked: EnvelopeOptions,
    as_json: Annotated[bool, typer.Option("--json")] = False,
) -> None:
    """Measure speed and memory by batch, sequence length and precision.

    Each point is a trial on random tokens. The same command resumes.
    """
    console = Console(stderr=as_json)
    chosen = load_menu(asked.menu)
    directory = asked.out or measurements_of("envelope", asked.menu, chosen.name)
    grid = cells(
        [*map(int, _listed(asked.batch, "--batch"))] or _domain(chosen, "batch_size"),
        [*map(int, _listed(asked.seq, "--seq"))] or _domain(chosen, "seq_len"),
        _listed(asked.precision, "--precision", PRECISIONS) or _domain(chosen, "precision"),
    )
    device = chosen_device(chosen, asked.device, console)
    settings = _settings(chosen, asked.model_copy(update={"device": device}))
    reserve_gib = read_environment().memory_reserve_gib
    limit = device_limit(settings.device, settings.memory_gib, reserve_gib)
    found = Grid.of(_measured(settings, grid, directory, limit, console))
    gains = [
        {"precision": of, "over": over, "seq_len": seq_len, "batch_size": batch, "pct": pct}
        for of, over in found.pairs()
        for seq_len in found.seq_lens
        for batch in found.batch_sizes(seq_len)
        if (pct := found.gain_pct(of, over, seq_len, batch)) is not None
    ]
    largest = [
        {"precision": precision, "seq_len": seq_len, "batch_size": batch}
        for precision, seq_len, batch in found.largest_batches()
    ]
    fields = {
        "settings": settings.model_dump(mode="json"),
        "limit": limit.model_dump(mode="json"),
        "points": [point.model_dump(mode="json") for point in found.points.values()],
        "gains": gains,
        "largest_batches": largest,
        "memory": [
            {"precision": precision, "constant_gib": line[0], "gib_per_token": line[1]}
            for precision in found.precisions
            if (line := found.memory_line(precision)) is not None
        ],
    }
    answer(fields, _lines(found, limit), as_json=as_json, console=console)


# --- what to measure ----------------------------------------------------------------------------


def _settings(menu: ProxyMenu, asked: EnvelopeOptions) -> EnvelopeSettings:
    defaults = menu.campaign
    return fill(
        EnvelopeSettings,
        {
            "menu": menu.name,
            "menu_sha256": menu.content_sha256,
            "base": gpt(menu.baseline),
            "vocab_size": vocabulary_of(defaults.tokenizer),
            "threads": defaults.threads,
            "wall_s": defaults.wall_s or DEFAULT_WALL_S,
            "memory_gib": defaults.memory_gib,
            **asked.model_dump(include={"backend", "device", "steps", "warmup"}),
        },
    )


def _listed(text: str | None, option: str, known: Sequence[str] | None = None) -> list[str]:
    """Return the words of a list with commas.

    :param known: the words that are possible; None: numbers above 0.
    """
    words = [] if text is None else [word.strip() for word in text.split(",")]
    for word in words:
        is_number = word.isascii() and word.isdigit() and int(word) > 0
        if word not in known if known else not is_number:
            wanted = f"one of {', '.join(known)}" if known else "a number above 0, as in 2,4,8"
            raise typer.BadParameter(f"{word!r} is not {wanted}", param_hint=option)
    return words


def _domain(menu: ProxyMenu, name: str) -> tuple[Any, ...]:
    """Return the values that the menu lists for a field, its range's ends, or its one value."""
    knob = menu.knobs.get(name)
    return (getattr(gpt(menu.baseline), name),) if knob is None else knob.domain.ends


def _measured(
    settings: EnvelopeSettings,
    grid: tuple[Cell, ...],
    directory: Path,
    limit: DeviceLimit,
    console: Console,
) -> tuple[EnvelopePoint, ...]:
    memory = AnalyticMemory(
        vocab_size=settings.vocab_size,
        backend=settings.backend,
        device=settings.device,
        limit_gib=limit.gib,
    )
    screen.outlive()
    telemetry = device_telemetry(settings.device)
    if settings.device != "cpu":
        say(console, f"telemetry {telemetry.description}")
    with writing(directory, instead="choose another folder with --out"):
        directory.mkdir(parents=True, exist_ok=True)
    try:
        with (
            StopRequest().listening(),
            Sampler(telemetry, directory / TELEMETRY_FILE, interval_s=INTERVAL_S) as sampler,
            choose_executor(allow_unsandboxed=True) as executor,
            console.status("") as status,
        ):
            return sweep(
                settings,
                grid,
                directory,
                executor,
                partial(_report, console, status),
                reserve_gib=read_environment().memory_reserve_gib,
                memory=memory if limit.is_shared else None,
                sampler=sampler,
            )
    except KeyboardInterrupt:
        console.print(f"stopped; the same command resumes in {directory}", highlight=False)
        raise


# --- what was found -----------------------------------------------------------------------------


def _report(console: Console, status: Status, point: Cell | EnvelopePoint) -> None:
    """Print a line for a point that was measured, and show which one is measured now."""
    if isinstance(point, Cell):
        status.update(f"measuring {point}")
        return
    if point.status == "ok":
        said = (
            f"{point.tokens_per_s:>10,.0f} tokens/s  {point.step_ms:>9,.1f} ms a step  "
            f"{point.peak_mem_gib:>7.2f} GiB"
        )
    else:
        said = f"{point.status}: {point.message}"
    say(console, f"{point.cell!s:<18} {said}")


def _lines(grid: Grid, limit: DeviceLimit) -> Iterator[RenderableType]:
    """Yield the tables, and the largest batch that was trained."""
    quantities: tuple[tuple[str, Callable[[EnvelopePoint], str]], ...] = (
        ("tokens/s", lambda point: f"{point.tokens_per_s:,.0f}"),
        ("step ms", lambda point: f"{point.step_ms:,.1f}"),
        ("peak GiB", lambda point: f"{point.peak_mem_gib:.2f}"),
        ("GPU utilization %, mean (peak)", lambda point: _mean_and_peak(point.gpu_util_pct)),
        ("GPU power W, mean (peak)", lambda point: _mean_and_peak(point.power_w)),
        ("GPU temperature °C, mean (peak)", lambda point: _mean_and_peak(point.temperature_c)),
    )
    for title, text in quantities:
        if not any(text(point) for point in grid.points.values() if point.status == "ok"):
            continue
        yield Text(f"\n{title}", style="bold")
        gains = grid.pairs() if title == "tokens/s" else []
        tables = [_table(grid, seq_len, text, gains) for seq_len in grid.seq_lens]
        yield Columns(tables, padding=(0, 3))
    yield f"\nlargest batch measured within {limit.gib:.1f} GiB ({limit.source})"
    for precision, seq_len, batch in grid.largest_batches():
        yield f"{precision:<5} seq {seq_len}: {'none' if batch is None else batch}"
    for precision in grid.precisions:
        line = grid.memory_line(precision)
        if line is not None:
            yield f"{precision:<5} {line[0]:.1f} GiB and {1024 * line[1]:.2f} MiB a token"


def _mean_and_peak(quantity: MeanAndPeak | None) -> str:
    return "" if quantity is None else f"{quantity.mean:.0f} ({quantity.peak:.0f})"


def _table(
    grid: Grid,
    seq_len: int,
    text: Callable[[EnvelopePoint], str],
    gains: list[tuple[str, str]],
) -> Table:
    """Return the table of one sequence length: batches across, precisions down, and gains between
    precisions."""
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column(f"seq {seq_len}", no_wrap=True)
    batches = grid.batch_sizes(seq_len)
    for batch in batches:
        table.add_column(f"b{batch}", justify="right", no_wrap=True)
    for precision in grid.precisions:
        points = [grid.points.get(Cell(precision, seq_len, batch)) for batch in batches]
        said = ["" if p is None else text(p) if p.status == "ok" else p.status for p in points]
        table.add_row(precision, *said)
    for of, over in gains:
        percents = [grid.gain_pct(of, over, seq_len, batch) for batch in batches]
        said = ["" if percent is None else f"{percent:+.1f} %" for percent in percents]
        table.add_row(f"{of} gain", *said)
    return table
