"""Print an envelope: its tables, its fits and its device's utilization."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from rich.columns import Columns
from rich.console import Console
from rich.table import Table

from agent.workbench.console import print_lines
from trainer.envelope import Cell, Envelope, EnvelopePoint
from trainer.envelope.grid import Grid, what_fits


def print_envelope(console: Console, found: Envelope, files: dict[str, str]) -> None:
    """Print tables, fits, utilization, notes, and the paths of all files."""
    grid = Grid.of(found.points)
    quantities: tuple[tuple[str, Callable[[EnvelopePoint], str]], ...] = (
        ("tokens/s", lambda point: f"{point.tokens_per_s:,.0f}"),
        ("step ms", lambda point: f"{point.step_ms:,.1f}"),
        ("peak GiB", lambda point: f"{point.peak_mem_gib:.2f}"),
    )
    for title, text in quantities:
        console.print(f"\n{title}", style="bold")
        gains = grid.pairs() if title == "tokens/s" else []
        tables = [_table(grid, seq_len, text, gains) for seq_len in grid.seq_lens]
        console.print(Columns(tables, padding=(0, 3)))
    console.print()
    print_lines(console, (*_memory_lines(found), *_use_lines(found)))
    print_lines(console, found.notes, "yellow")
    print_lines(console, (f"{what:<12} {path}" for what, path in files.items()))


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


def _memory_lines(found: Envelope) -> Iterator[str]:
    limit = found.limit
    for fit, room in zip(found.fits, what_fits(found), strict=True):
        batches = ", ".join(
            f"batch {batch} at {seq_len}" for seq_len, batch in room.largest_batch.items()
        )
        yield (
            f"{fit.precision:<5} peak = {fit.fixed_gib:.2f} GiB + {fit.per_token_mib:.4g} MiB a "
            f"token of a step (off by {fit.max_error_gib:.2f} GiB at most over "
            f"{len(fit.residuals)} points); {limit.gib:.1f} GiB ({limit.source}) hold "
            f"{room.most_tokens:,} tokens a step: {batches}"
        )


def _use_lines(found: Envelope) -> Iterator[str]:
    use = found.use
    if use is None:
        return
    for name, mean, peak, unit in (
        ("utilisation", use.gpu_util_mean_pct, use.gpu_util_peak_pct, "%"),
        ("power", use.power_mean_w, use.power_peak_w, "W"),
        ("temperature", use.temperature_mean_c, use.temperature_peak_c, "°C"),
    ):
        if mean is not None and peak is not None:
            yield f"{name:<12} {mean:.1f} {unit} mean, {peak:.1f} {unit} peak"
