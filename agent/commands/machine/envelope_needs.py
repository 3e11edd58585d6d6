"""``autoresearch envelope --predict`` and ``--dry``: what points need, without measuring them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from agent.settings.environment import data_dir, read_environment
from agent.workbench.console import print_lines
from autoresearch.errors import SettingsError, SpecError
from autoresearch.values import Scalar
from autoresearch.words import changes_text
from trainer.accounting.work import DeviceDescription, describe
from trainer.envelope import ENVELOPE_FILE, Cell, Envelope, EnvelopeSettings, envelope_path
from trainer.envelope.prediction import Need, Prediction, counted_seconds, flops_of, needs
from trainer.envelope.rail import FittedMemory
from trainer.memory.estimate import AnalyticMemory, DeviceLimit, device_limit
from trainer.spec import Config, difference, make_config

PredictOption = Annotated[
    bool, typer.Option("--predict", help="Print what each point needs, without measuring.")
]
SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="FIELD=VALUE",
        help="With --predict: set a field of the config. Repeatable.",
    ),
]


def predict(
    settings: EnvelopeSettings,
    grid: Sequence[Cell],
    changes: Sequence[str],
    *,
    directory: Path,
    on: str,
    console: Console,
    as_json: bool,
) -> None:
    """Print what every point of the grid needs, with these fields changed.

    :param directory: folder whose envelope is used, if it holds one; otherwise the memory rail's.
    :raises SpecError: if no trainer could train such a config.
    """
    base = make_config(settings.base.model_dump() | _values(changes))
    configs = [make_config(base.model_dump() | cell._asdict() | _values(changes)) for cell in grid]
    configs = list({config.config_hash: config for config in configs}.values())
    paths = directory / ENVELOPE_FILE, installed_envelope(settings)
    memory, envelope, how = _models(settings, paths, on)
    is_gpu = envelope is not None and envelope.settings.device.startswith("cuda")
    computed = counted_seconds(describe(on)) if is_gpu else flops_of
    found = needs(configs, memory, envelope, settings.vocab_size, computed)
    if as_json:
        typer.echo(json.dumps(_as_json(found, settings, how)))
        return
    print_lines(console, _lines(found, settings, how))


def installed_envelope(settings: EnvelopeSettings) -> Path:
    """Return where the memory rail looks for the envelope."""
    return envelope_path(
        data_dir() / "envelopes",
        menu_sha256=settings.menu_sha256,
        backend=settings.backend,
        device=settings.device,
    )


def _models(
    settings: EnvelopeSettings, paths: Sequence[Path], on: str
) -> tuple[AnalyticMemory | FittedMemory, Envelope | None, str]:
    """Return the memory model, the measured envelope (None if there is none), and a description of
    both."""
    for path in paths:
        if path.is_file():
            envelope = Envelope.load(path)
            memory = FittedMemory(
                envelope,
                vocab_size=settings.vocab_size,
                limit_gib=envelope.limit.gib,
                compile=settings.compile,
            )
            return memory, envelope, f"measured: {path}"
    try:
        reserve_gib = read_environment().memory_reserve_gib
        limit = device_limit(settings.device, settings.memory_gib, reserve_gib)
    except SpecError:  # the device is on another machine
        limit = DeviceLimit(gib=describe(on).memory_gib, source="device")
    analytic = AnalyticMemory(
        vocab_size=settings.vocab_size,
        backend=settings.backend,
        device=settings.device,
        limit_gib=limit.gib,
        compile=settings.compile,
    )
    return analytic, None, "computed: no envelope of this menu was measured, so no time is said"


def _values(changes: Sequence[str]) -> dict[str, Scalar]:
    values: dict[str, Scalar] = {}
    for text in changes:
        name, equals, value = text.partition("=")
        if not equals or name.strip() not in Config.model_fields:
            raise SettingsError(
                f"--set {text!r:.80} names no field of a config; write it like d_model=768"
            )
        values[name.strip()] = _value(value.strip())
    return values


def _value(text: str) -> Scalar:
    try:
        value = json.loads(text)
    except ValueError:
        return text
    return value if isinstance(value, bool | int | float) else text


def _lines(found: Sequence[Need], settings: EnvelopeSettings, how: str) -> Iterator[Text]:
    yield Text(f"needs     of {settings.menu}, vocabulary {settings.vocab_size:,}; {how}")
    yield Text(
        f"{'precision':<9} {'batch':>6} {'seq':>6} {'parameters':>12} {'peak GiB':>9} "
        f"{'of':>7} {'tokens/s':>10} {'ms a step':>10}   fits",
        style="bold",
    )
    for need in found:
        config = need.config
        speed = (
            f"{need.tokens_per_s:>10,.0f} {need.step_ms:>10,.1f}"
            if need.tokens_per_s is not None
            else f"{'':>21}"
        )
        yield Text(
            f"{config.precision:<9} {config.batch_size:>6} {config.seq_len:>6} "
            f"{need.params / 1e6:>10,.2f} M {need.peak_gib:>9.2f} {need.limit_gib:>7.1f} {speed}   "
            f"{'yes' if need.fits else 'no'}"
        )
    if changed := difference(found[0].config, settings.base):
        shown = {k: v for k, v in changed.items() if k not in Cell._fields}
        if shown:
            yield Text(f"with      {changes_text(shown)}")
    errors = [need.speed_error for need in found if need.speed_error is not None]
    if errors:
        yield Text(f"time      by a line that is off by {max(errors):.1%} at most where measured")


def _as_json(found: Sequence[Need], settings: EnvelopeSettings, how: str) -> dict[str, object]:
    return {
        "menu": settings.menu,
        "vocab_size": settings.vocab_size,
        "by": how,
        "needs": [
            need.model_dump(mode="json", exclude={"config"})
            | {
                "config": need.config.canonical(),
                "batch_size": need.config.batch_size,
                "seq_len": need.config.seq_len,
                "precision": need.config.precision,
                "step_ms": need.step_ms,
                "fits": need.fits,
            }
            for need in found
        ],
    }


DryOption = Annotated[
    bool,
    typer.Option("--dry", help="Count a step's work and predict from rates, without measuring."),
]
OnOption = Annotated[
    str,
    typer.Option(
        "--on", help="With --dry: h100 or gb10; rates may follow: gb10,bandwidth_gb_per_s=210."
    ),
]


def dry_envelope(
    settings: EnvelopeSettings,
    grid: Sequence[Cell],
    device: DeviceDescription,
    console: Console,
    *,
    as_json: bool,
) -> None:
    """Count every point of the grid, and print the predictions for the device.

    :raises SpecError: if the counter cannot count how the points would be trained.
    """
    if settings.backend != "torch" or settings.compile:
        asked = "--compile" if settings.compile else f"--backend {settings.backend}"
        raise SpecError(
            f"{asked} cannot be counted: only the torch backend runs on the meta device, and as"
            " written; leave that option out, or measure without --dry"
        )
    rows: list[Prediction] = []
    refused: dict[Cell, str] = {}
    with console.status("") as status:
        for cell in grid:
            status.update(f"counting {cell}")
            try:
                rows.append(_predicted(settings, cell, device))
            except SpecError as error:
                refused[cell] = str(error)
    if as_json:
        counts = {
            "settings": settings.model_dump(mode="json"),
            "device": device.model_dump(mode="json"),
            "points": [row.model_dump(mode="json") for row in rows],
            "refused": [{**cell._asdict(), "message": why} for cell, why in refused.items()],
        }
        typer.echo(json.dumps(counts))
    else:
        _print_counts(settings, device, rows, refused, console)


def _predicted(settings: EnvelopeSettings, cell: Cell, device: DeviceDescription) -> Prediction:
    # torch takes seconds to import, so load it only to count, not for --help
    from trainer.envelope.counted_step import count_step  # noqa: PLC0415

    config = settings.config(cell)
    counts = count_step(config, settings.vocab_size)
    return Prediction.of(counts, config, settings.vocab_size, device)


def _print_counts(
    settings: EnvelopeSettings,
    device: DeviceDescription,
    rows: Sequence[Prediction],
    refused: dict[Cell, str],
    console: Console,
) -> None:
    shape = settings.base
    table = Table(
        title=f"{settings.menu} counted, and predicted for {device.name}: {shape.n_layer} layers,"
        f" d_model {shape.d_model}, vocabulary {settings.vocab_size}",
        box=None,
        padding=(0, 1, 0, 0),
    )
    for head in ("", "seq", "batch", "TFLOP", "GB", "kernels", "GiB", "odd", "ms", "tokens/s", "%"):
        table.add_column(head, justify="right", no_wrap=True)
    for row in rows:
        table.add_row(
            row.precision,
            str(row.seq_len),
            str(row.batch_size),
            f"{row.tflop:.2f}",
            f"{row.moved_gb:.1f}",
            f"{row.kernels:,}",
            f"{row.peak_gib:.2f}" + ("" if row.fits else " !"),
            str(len(row.misaligned)),
            f"{row.step_ms:.1f}",
            f"{row.tokens_per_s:,.0f}",
            f"{row.utilisation_pct:.0f}",
        )
    console.print(table)
    lines = [f"{cell}: {why}" for cell, why in refused.items()]
    lines += dict.fromkeys(f"odd: {line}" for row in rows for line in row.misaligned)
    if not all(row.fits for row in rows):
        lines.append(f"! is more than the {device.memory_gib:g} GiB of {device.name}")
    lines += [
        "GB moved through memory, GiB held at the peak, odd: products not aligned to 16 bytes,"
        " %: of the ceiling by 6 N + 12 L D T a token; counted and computed, not measured",
        f"rates: {device.source}",
    ]
    print_lines(console, lines)
