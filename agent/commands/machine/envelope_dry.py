"""``autoresearch envelope --dry``: the same grid, with its steps counted instead of measured."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from autoresearch.errors import SpecError
from trainer.accounting.devices import DeviceDescription
from trainer.envelope import Cell, EnvelopeSettings
from trainer.envelope.prediction import Prediction

DryOption = Annotated[
    bool,
    typer.Option("--dry", help="Count a step's work and predict from rates, without measuring."),
]
OnOption = Annotated[
    str,
    typer.Option(
        "--on", help="With --dry: h200 or gb10; rates may follow: gb10,bandwidth_gb_per_s=210."
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
        typer.echo(json.dumps(_as_json(settings, device, rows, refused)))
    else:
        _print(settings, device, rows, refused, console)


def _predicted(settings: EnvelopeSettings, cell: Cell, device: DeviceDescription) -> Prediction:
    # torch takes seconds to import, so load it only to count, not for --help
    from trainer.envelope.counted_step import count_step  # noqa: PLC0415

    config = settings.config(cell)
    counts = count_step(config, settings.vocab_size)
    return Prediction.of(counts, config, settings.vocab_size, device)


def _as_json(
    settings: EnvelopeSettings,
    device: DeviceDescription,
    rows: Sequence[Prediction],
    refused: dict[Cell, str],
) -> dict[str, object]:
    return {
        "settings": settings.model_dump(mode="json"),
        "device": device.model_dump(mode="json"),
        "points": [row.model_dump(mode="json") for row in rows],
        "refused": [{**cell._asdict(), "message": why} for cell, why in refused.items()],
    }


def _print(
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
    for line in lines:
        console.print(Text(line), soft_wrap=True)
