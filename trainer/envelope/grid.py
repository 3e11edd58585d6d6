"""Lay out the points of an envelope as a grid, a table and a chart of throughput and memory."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autoresearch.files import writing
from trainer.envelope.envelope import Envelope
from trainer.envelope.points import Cell, EnvelopePoint

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


PRECISIONS = ("fp32", "bf16", "fp8")
"""From the slowest to the fastest, the order of comparison."""


@dataclass(frozen=True, slots=True)
class Grid:
    """Points by their cell."""

    points: dict[Cell, EnvelopePoint]

    @classmethod
    def of(cls, points: Sequence[EnvelopePoint]) -> Grid:
        return cls({point.cell: point for point in points})

    @property
    def precisions(self) -> list[str]:
        return [name for name in PRECISIONS if any(c.precision == name for c in self.points)]

    def pairs(self) -> list[tuple[str, str]]:
        """Return each precision with the next slower one."""
        names = self.precisions
        return list(zip(names[1:], names, strict=False))

    @property
    def seq_lens(self) -> list[int]:
        return sorted({cell.seq_len for cell in self.points})

    def batch_sizes(self, seq_len: int) -> list[int]:
        """Return the batch sizes measured at this length."""
        return sorted({cell.batch_size for cell in self.points if cell.seq_len == seq_len})

    def gain_pct(self, of: str, over: str, seq_len: int, batch_size: int) -> float | None:
        """Return how many percent more tokens/s; None if either was not measured."""
        rates = [
            point.tokens_per_s
            for precision in (of, over)
            if (point := self.points.get(Cell(precision, seq_len, batch_size))) is not None
        ]
        if len(rates) < 2 or rates[0] is None or rates[1] is None:
            return None
        return 100 * (rates[0] / rates[1] - 1)


@dataclass(frozen=True, slots=True)
class Fits:
    """Largest steps that the line of a precision allows within a limit."""

    precision: str
    most_tokens: int
    """Most tokens of a step, at the measured shape."""
    largest_batch: dict[int, int]
    """Largest batch by sequence length; 0 if none fits."""


def what_fits(envelope: Envelope) -> list[Fits]:
    """Return what fits for each fitted precision, at the measured sequence lengths."""
    seq_lens = Grid.of(envelope.points).seq_lens
    largest = [(fit.precision, fit.most_tokens(envelope.limit.gib)) for fit in envelope.fits]
    return [
        Fits(name, most, {length: most // length for length in seq_lens}) for name, most in largest
    ]


def as_csv(points: Sequence[EnvelopePoint]) -> str:
    """Return one line per point; unmeasured values are empty."""
    text = io.StringIO()
    writer = csv.DictWriter(text, [*EnvelopePoint.model_fields, "tokens_per_step"])
    writer.writeheader()
    for point in points:
        writer.writerow(point.model_dump() | {"tokens_per_step": point.tokens_per_step})
    return text.getvalue()


COLOURS = {"fp32": "#595959", "bf16": "#0072b2", "fp8": "#d55e00"}
"""Colors of Okabe and Ito, distinct to every eye and in gray."""
STROKES = {"fp32": ":", "bf16": "-", "fp8": "--"}
HOLLOW = {"fp8"}
"""Precisions drawn as outlines, so that a point below another is visible."""
MARKERS = "os^Dv*"
"""One marker per sequence length, from the shortest; then again."""
MOST_LABELS = 8
"""With more token counts than this, labels collide: then only powers of two are written."""
LIMIT_IS_NEAR = 1.6
"""The limit is drawn if it is below this multiple of the highest peak."""


def write_chart(envelope: Envelope, directory: Path) -> tuple[Path, Path]:
    """Write ``envelope.svg`` and ``envelope.png``.

    :raises MachineryError: if the disk refuses.
    """
    import matplotlib as mpl  # noqa: PLC0415 (half a second that only a chart pays)

    figure = draw(envelope)
    paths = directory / "envelope.svg", directory / "envelope.png"
    # Text stays text, ids and dates are omitted: the same envelope gives the same file.
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "envelope"}):
        for path, metadata in zip(paths, ({"Date": None}, {"Software": None}), strict=True):
            with writing(path, instead="choose another folder"):
                figure.savefig(path, metadata=metadata, dpi=200)
    return paths


def draw(envelope: Envelope) -> Figure:
    """Draw throughput on the left, memory with its fitted lines on the right. A cross at the lower
    edge is a failed point."""
    from matplotlib.figure import Figure  # noqa: PLC0415

    figure = Figure(figsize=(11, 4.8), layout="constrained")
    settings, grid = envelope.settings, Grid.of(envelope.points)
    name = next((p.device_name for p in envelope.points if p.device_name), settings.device)
    figure.suptitle(f"{settings.menu}, {settings.backend} on {name}", parse_math=False)
    throughput, memory = figure.subplots(1, 2)
    _draw_throughput(throughput, grid)
    _draw_memory(memory, envelope, grid)
    marks = throughput.get_legend_handles_labels()[0]
    if marks:
        figure.legend(handles=marks, loc="outside lower center", ncols=4, frameon=False)
    return figure


def _draw_throughput(axes: Axes, grid: Grid) -> None:
    """Draw a line for each precision and sequence length."""
    for cell, good, style in _series(grid):
        axes.plot(
            [p.tokens_per_step for p in good],
            [p.tokens_per_s or math.nan for p in good],
            **style,
            linestyle=STROKES[cell.precision],
            linewidth=1.2,
            label=f"{cell.precision}, sequences of {cell.seq_len}",
        )
    axes.set_xscale("log", base=2)
    _draw_axes(axes, grid, "tokens/s")
    tokens = sorted({point.tokens_per_step for point in grid.points.values()})
    if len(tokens) <= MOST_LABELS:
        axes.set_xticks(tokens)


def _draw_memory(axes: Axes, envelope: Envelope, grid: Grid) -> None:
    """Draw the points, a line for each fit, and the limit if it is near."""
    peaks_gib = [p.peak_mem_gib or 0.0 for p in envelope.points if p.status == "ok"]
    for _, good, style in _series(grid):
        axes.plot(
            [p.tokens_per_step for p in good],
            [p.peak_mem_gib or math.nan for p in good],
            **style,
            linestyle="none",
        )
    most = max((point.tokens_per_step for point in envelope.points), default=1)
    for fit in envelope.fits:
        axes.plot(
            [0, most],
            [fit.predict_gib(0), fit.predict_gib(most)],
            color=COLOURS[fit.precision],
            linestyle=STROKES[fit.precision],
            linewidth=1.2,
            label=f"{fit.precision}: {fit.fixed_gib:.2f} GiB + {fit.per_token_mib:.3f} MiB a token",
        )
    limit = envelope.limit
    if limit.gib < LIMIT_IS_NEAR * max(peaks_gib, default=0.0):
        label = f"limit: {limit.gib:.1f} GiB ({limit.source})"
        axes.axhline(limit.gib, color="black", linestyle="-.", linewidth=1, label=label)
    _draw_axes(axes, grid, "peak memory, GiB")
    axes.set_xlim(left=0)
    if axes.get_legend_handles_labels()[0]:
        axes.legend(loc="upper left", frameon=False)


def _draw_axes(axes: Axes, grid: Grid, title: str) -> None:
    """Draw what both panels share: names, a grid from zero up, and the failures."""
    axes.set_title(title)
    axes.set_xlabel("tokens a step")
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.yaxis.set_major_formatter("{x:,.6g}")
    axes.margins(y=0.08)
    axes.set_ylim(bottom=0)
    axes.grid(visible=True, color="#dddddd", linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)
    if all(point.status != "ok" for point in grid.points.values()):
        axes.set_yticks([])
    failures: dict[int, list[str]] = {}
    for point in grid.points.values():
        if point.status != "ok":
            failures.setdefault(point.tokens_per_step, []).append(f"{point.cell}: {point.status}")
    for tokens, labels in failures.items():
        axes.plot(tokens, 0, color="black", marker="x", markersize=9, clip_on=False)
        axes.annotate(
            "\n".join(labels),
            (tokens, 0),
            xytext=(0, 9),
            textcoords="offset points",
            rotation=90,
            ha="center",
            fontsize="small",
        )


def _series(grid: Grid) -> Iterator[tuple[Cell, list[EnvelopePoint], dict[str, Any]]]:
    """Yield the measured points of each precision and length, the smallest batch first, with the
    cell of the first and how to draw them."""
    measured = (point for point in grid.points.values() if point.status == "ok")
    points = sorted(measured, key=lambda point: point.batch_size)
    for precision in grid.precisions:
        colour = COLOURS[precision]
        for place, seq_len in enumerate(grid.seq_lens):
            good = [p for p in points if p.cell[:2] == (precision, seq_len)]
            if good:
                filling = "white" if precision in HOLLOW else colour
                marker = MARKERS[place % len(MARKERS)]
                style = {"color": colour, "marker": marker, "markerfacecolor": filling}
                yield good[0].cell, good, style
