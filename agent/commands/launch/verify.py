"""``autoresearch verify``: compare the cloud run's first day with the forecast."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from agent.workbench.console import print_lines
from autoresearch.errors import AutoresearchError
from autoresearch.plain_text import plain
from funnel.forecast.band import read_forecast
from funnel.forecast.cloud_log import TokenCount, read_cloud_log
from funnel.forecast.verification import ForecastVerdict, Verification
from funnel.forecast.verification import verify as compare
from funnel.plan.handoff_files import FORECAST_FILE
from funnel.target.shape import size_text

CANNOT_TELL = 3
"""Exit code for a run that is neither within the forecast nor broken."""
CANNOT_READ = 4
"""Exit code for a log or forecast that cannot be read or compared."""
SHOWN = 12
_EXIT_CODES: dict[ForecastVerdict, int] = {
    "within": 0,
    "broken": 1,
    "too_early": CANNOT_TELL,
    "too_wide": CANNOT_TELL,
}
_STYLES: dict[ForecastVerdict, str] = {
    "within": "green",
    "broken": "bold red",
    "too_early": "yellow",
    "too_wide": "yellow",
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
    as_json: Annotated[bool, typer.Option("--json", help="Machine-readable output.")] = False,
) -> None:
    """Compare the loss of a cloud run with the plan's forecast.

    Exit code 0: the run follows the forecast. 1: it is faulty. 3: too early to tell, or the band is
    too wide. 4: the log or the forecast cannot be read or compared.
    """
    path = handoff if handoff.is_file() else handoff / FORECAST_FILE
    try:
        forecast = read_forecast(path)
        count = TokenCount(forecast.tokens_per_step, forecast.seq_len, log_every)
        found = compare(read_cloud_log(log, count), forecast, bytes_per_token)
    except AutoresearchError as error:
        typer.echo(f"error: {plain(str(error))}", err=True)
        raise typer.Exit(CANNOT_READ) from error
    if as_json:
        typer.echo(found.model_dump_json())
    else:
        print_lines(Console(), _lines(found))
    if code := _EXIT_CODES[found.verdict]:
        raise typer.Exit(code)


def _lines(found: Verification) -> Iterator[Text]:
    if found.windows:
        yield Text(
            f"{'step':>10} {'tokens':>8} {'bpb':>8} {'low':>8} {'middle':>8} {'high':>8} "
            f"{'outside':>8}",
            style="bold",
        )
    stride = -(-len(found.windows) // SHOWN) or 1
    for window in found.windows[::-1][::stride][::-1]:
        yield Text(
            f"{window.step:>10,} {size_text(window.tokens):>8} {window.bpb:>8.4f} "
            f"{window.low_bpb:>8.4f} {window.middle_bpb:>8.4f} {window.high_bpb:>8.4f} "
            + (f"{window.beyond:>+8.1%}" if window.beyond else f"{'-':>8}"),
            style="red" if window.side else "",
        )
    yield Text(found.sentence, style=_STYLES[found.verdict])
    yield Text(_legend(found), style="dim")


def _legend(found: Verification) -> str:
    counts = {
        "before the forecast begins": found.before,
        "after its end": found.after,
        "not finite": found.not_finite,
        "repeated after a restart, and counted once": found.repeated,
    }
    parts = [
        f"{found.points:,} losses, {found.compared:,} compared in {len(found.windows)} windows "
        "(medians)",
        *(f"{number:,} {what}" for what, number in counts.items() if number),
    ]
    if found.bytes_per_token is not None:
        parts.append(f"nats a token / (ln 2 × {found.bytes_per_token:.4g} bytes)")
    return "; ".join(parts)
