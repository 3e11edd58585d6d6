"""Lay out the points of an envelope as a grid."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

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

    def largest_batches(self) -> list[tuple[str, int, int | None]]:
        """Return each precision and sequence length with the largest batch that was trained; None
        if none was."""
        return [
            (precision, seq_len, max(self._trained(precision, seq_len), default=None))
            for precision in self.precisions
            for seq_len in self.seq_lens
        ]

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

    def _trained(self, precision: str, seq_len: int) -> list[int]:
        return [
            cell.batch_size
            for cell, point in self.points.items()
            if cell[:2] == (precision, seq_len) and point.status == "ok"
        ]
