"""Print an envelope: tables of its speed and memory, and the largest batches that fit."""

from collections.abc import Callable, Iterator

from rich.columns import Columns
from rich.console import Console
from rich.table import Table

from agent.workbench.console import print_lines
from trainer.envelope import Cell, EnvelopePoint
from trainer.envelope.points import Grid
from trainer.memory.estimate import DeviceLimit


def print_envelope(console: Console, grid: Grid, limit: DeviceLimit) -> None:
    """Print the tables, and the largest batch that was trained."""
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
    print_lines(console, _largest_lines(grid, limit))


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


def _largest_lines(grid: Grid, limit: DeviceLimit) -> Iterator[str]:
    yield f"largest batch measured within {limit.gib:.1f} GiB ({limit.source})"
    for precision, seq_len, batch in grid.largest_batches():
        yield f"{precision:<5} seq {seq_len}: {'none' if batch is None else batch}"
