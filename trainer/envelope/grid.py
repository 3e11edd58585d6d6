"""Lay out the points: sequence lengths and batches across, precisions down."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass

from trainer.envelope.envelope import Envelope
from trainer.envelope.points import Cell, EnvelopePoint

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
    found = []
    for fit in envelope.fits:
        most = fit.most_tokens(envelope.limit.gib)
        batches = {seq_len: most // seq_len for seq_len in seq_lens}
        found.append(Fits(fit.precision, most, batches))
    return found


def as_csv(points: Sequence[EnvelopePoint]) -> str:
    """Return one line per point; unmeasured values are empty."""
    text = io.StringIO()
    writer = csv.DictWriter(text, [*EnvelopePoint.model_fields, "tokens_per_step"])
    writer.writeheader()
    for point in points:
        writer.writerow(point.model_dump() | {"tokens_per_step": point.tokens_per_step})
    return text.getvalue()
