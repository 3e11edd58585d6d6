"""Stop a sweep at the last point before the one that is predicted not to fit.

A GPU with memory of its own refuses what it lacks, and a point that ran out is a result. A machine
whose GPU shares its memory may hang instead (:mod:`trainer.machine.host_memory`). Its trials'
limits should prevent that, but a sweep does not test them unless asked.
"""

from __future__ import annotations

from collections.abc import Sequence

from autoresearch.errors import EnvelopeError
from trainer.envelope.fit import fit
from trainer.envelope.points import Cell, EnvelopePoint, EnvelopeSettings
from trainer.memory.estimate import AnalyticMemory


class Wall:
    """Predicted end of a machine's memory."""

    def __init__(self, settings: EnvelopeSettings, limit_gib: float) -> None:
        """Choose the estimate.

        :param limit_gib: what a trial may take.
        :raises SpecError: on a backend whose memory cannot be estimated.
        """
        self._settings = settings
        self._limit_gib = limit_gib
        self._estimate = AnalyticMemory(
            vocab_size=settings.vocab_size,
            backend=settings.backend,
            device=settings.device,
            limit_gib=limit_gib,
            compile=settings.compile,
        )

    def why_beyond(self, cell: Cell, points: Sequence[EnvelopePoint]) -> str | None:
        """Return why the cell should not be run, judged by the points so far; None if it should.

        It uses the larger of the analytic estimate and the line through the peaks of its precision.
        If a smaller step of its precision ran out of memory, this one would too.
        """
        tokens = cell.batch_size * cell.seq_len
        for point in points:
            smaller = point.precision == cell.precision and point.tokens_per_step <= tokens
            if smaller and point.status == "oom":
                return f"{point.cell} ran out of memory already, and so would this"
        predicted_gib = self._predict_gib(cell, points)
        if predicted_gib <= self._limit_gib:
            return None
        return (
            f"{predicted_gib:.1f} GiB are predicted and {self._limit_gib:.1f} are available; not "
            "run, since a machine whose GPU shares its memory may hang"
        )

    def _predict_gib(self, cell: Cell, points: Sequence[EnvelopePoint]) -> float:
        estimated_gib = self._estimate.predict_gib(self._settings.config(cell))
        try:
            line = fit(points, cell.precision)
        except EnvelopeError:  # too few of them
            return estimated_gib
        return max(estimated_gib, line.predict_gib(cell.batch_size * cell.seq_len))
