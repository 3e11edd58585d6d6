"""Sweep the grid: one sandboxed trial per point, and no point can stop the sweep.

A GPU with memory of its own refuses what it lacks, and a point that ran out is a result. A machine
whose GPU shares its memory may hang instead (:mod:`trainer.machine.host`). Its trials'
limits should prevent that, but a sweep does not test them unless asked: its :class:`Wall` stops it
at the last point before the one that is predicted not to fit.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Literal, TypeAlias

from pydantic import ValidationError

from autoresearch.errors import EnvelopeError, MachineryError, SpecError
from autoresearch.layout import COMPILED_DIR, TELEMETRY_FILE, TRIALS_DIR
from autoresearch.values import explain
from trainer.corpus import Corpus
from trainer.envelope.envelope import DeviceUse, fit
from trainer.envelope.points import (
    Cell,
    EnvelopePoint,
    EnvelopeSettings,
    PointsFile,
)
from trainer.envelope.random_corpus import random_corpus
from trainer.executors.base import Executor
from trainer.memory.estimate import AnalyticMemory
from trainer.spec import (
    DEFAULT_RESERVE_GIB,
    Budget,
    CurvePoint,
    Limits,
    TrialFailed,
    TrialOk,
    TrialSpec,
)
from trainer.telemetry import Sampler, Telemetry

POINTS_FILE = "points.jsonl"


Watcher: TypeAlias = Callable[[Cell | EnvelopePoint], None]
"""Shows the sweep to a person: called with each cell before its trial, and then with its point."""


def cells(
    batch_sizes: Iterable[int], seq_lens: Iterable[int], precisions: Iterable[str]
) -> tuple[Cell, ...]:
    """Return the whole grid, each cell once, in the order of measurement."""
    batch_sizes, seq_lens = sorted(set(batch_sizes)), sorted(set(seq_lens))
    return tuple(
        Cell(precision, seq_len, batch_size)
        for precision in dict.fromkeys(precisions)
        for seq_len in seq_lens
        for batch_size in batch_sizes
    )


def sweep(
    settings: EnvelopeSettings,
    grid: Sequence[Cell],
    directory: Path,
    executor: Executor,
    watcher: Watcher,
    *,
    reserve_gib: float = DEFAULT_RESERVE_GIB,
    wall: Wall | None = None,
) -> tuple[EnvelopePoint, ...]:
    """Measure every cell of ``grid`` without a settled point in ``directory``.

    A failing trial is a point; an interruption loses only the running one. Cells beyond ``wall``,
    if given, are not run.

    :return: all points of the directory, those of earlier sweeps with the same settings included.
    :raises EnvelopeError: if the directory's points cannot be extended.
    :raises SpecError: if no trainer could run any cell at any precision.
    :raises MachineryError: if the machinery fails, which is not a point.
    """
    with PointsFile(directory / POINTS_FILE, settings) as points:
        missing = [cell for cell in grid if points.find(cell) is None]
        if missing:
            corpus = random_corpus(
                directory / "corpus",
                vocab_size=settings.vocab_size,
                longest_seq_len=max(cell.seq_len for cell in missing),
            )
            limits = Limits(
                wall_s=settings.wall_s, memory_gib=settings.memory_gib, reserve_gib=reserve_gib
            )
            specs = [_spec(settings, cell, corpus, directory, limits) for cell in missing]
            for cell, spec in zip(missing, specs, strict=True):
                watcher(cell)
                why = None if wall is None else wall.why_beyond(cell, points.points)
                if why is None:
                    point = _measure(settings, cell, spec, directory / TRIALS_DIR, executor)
                else:
                    point = _unmeasured(cell, "beyond", why, wall_s=0)
                points.append(point)
                watcher(point)
        return points.points


def watched_sweep(
    settings: EnvelopeSettings,
    grid: Sequence[Cell],
    directory: Path,
    executor: Executor,
    watcher: Watcher,
    telemetry: Telemetry,
    *,
    reserve_gib: float = DEFAULT_RESERVE_GIB,
    wall: Wall | None = None,
    on_note: Callable[[str], None] = lambda text: None,
) -> tuple[tuple[EnvelopePoint, ...], DeviceUse | None]:
    """Run :func:`sweep` and record the device's state, in ``telemetry.csv`` beside the points.

    A resumed sweep extends that file. The use is None if the device reported nothing.

    :param telemetry: owned from here on.
    :param on_note: called with what a person should know about the telemetry.
    """
    PointsFile(directory / POINTS_FILE, settings).close()  # refused before anything is sampled
    with Sampler(telemetry, directory / TELEMETRY_FILE, on_note=on_note) as sampler:
        points = sweep(
            settings, grid, directory, executor, watcher, reserve_gib=reserve_gib, wall=wall
        )
        sampler.mark()  # up to the end of the last point
        seen = sampler.summary(usd_per_kwh=0)
    return points, DeviceUse.of(seen) if seen.samples else None


def _spec(
    settings: EnvelopeSettings, cell: Cell, corpus: Corpus, directory: Path, limits: Limits
) -> TrialSpec:
    fields = {
        "trial_id": f"{cell.precision}-b{cell.batch_size}-s{cell.seq_len}",
        "config": settings.config(cell),
        "seed": settings.seed,
        "corpus_dir": str(corpus.directory),
        "corpus_sha256": corpus.info.sha256,
        "budget": Budget(unit="steps", amount=settings.steps),
        "backend": settings.backend,
        "device": settings.device,
        "threads": settings.threads,
        "compile": settings.compile,
        "compile_cache": str(directory.absolute() / COMPILED_DIR),
        "limits": limits,
    }
    try:
        return TrialSpec.model_validate(fields)
    except ValidationError as error:
        raise SpecError(f"no trial can measure {cell}: {explain(error)}") from error


def _measure(
    settings: EnvelopeSettings,
    cell: Cell,
    spec: TrialSpec,
    trials: Path,
    executor: Executor,
) -> EnvelopePoint:
    trial_dir = trials / spec.trial_id
    shutil.rmtree(trial_dir, ignore_errors=True)  # of a trial that was interrupted, or that failed
    curve: list[CurvePoint] = []
    began_s = time.monotonic()
    try:
        finished = executor.run(spec, trial_dir, on_point=curve.append)
    except SpecError as error:
        return _unmeasured(cell, "refused", str(error), wall_s=time.monotonic() - began_s)
    result = finished.result
    fields = cell._asdict() | {
        "status": result.status,
        "peak_mem_gib": result.peak_mem_gib,
        "wall_s": finished.wall_s,
    }
    if isinstance(result, TrialOk):
        step_s = counted_step_s(curve, settings.warmup)
        fields |= {
            "step_ms": 1000 * step_s,
            "tokens_per_s": spec.gpt.tokens_per_step / step_s,
            "params": result.params,
            "device_name": result.device,
        }
    elif isinstance(result, TrialFailed):
        fields["message"] = result.message
    return EnvelopePoint.model_validate(fields)


def _unmeasured(
    cell: Cell, status: Literal["refused", "beyond"], message: str, *, wall_s: float
) -> EnvelopePoint:
    fields = {**cell._asdict(), "status": status, "message": message, "wall_s": wall_s}
    return EnvelopePoint.model_validate(fields)


_LEAST_S = 1e-9
"""Least seconds between two steps, to divide by."""


def counted_step_s(curve: Sequence[CurvePoint], warmup: int) -> float:
    """Return the mean seconds of a step, over those after the first ``warmup`` ones.

    :raises MachineryError: if the curve does not show when they began or ended.
    """
    elapsed_s = {0: 0.0} | {point.step: point.elapsed_s for point in curve}
    last = max(elapsed_s)
    if warmup not in elapsed_s or elapsed_s[last] - elapsed_s[warmup] < _LEAST_S:
        raise MachineryError(
            f"the curve of a trial has the steps {sorted(elapsed_s)} and none to count after step"
            f" {warmup}; measure that point again"
        )
    return (elapsed_s[last] - elapsed_s[warmup]) / (last - warmup)


class Wall:
    """Predicted end of a machine's memory."""

    def __init__(self, settings: EnvelopeSettings, limit_gib: float) -> None:
        """Choose the estimate.

        :param limit_gib: what a trial may take.
        :raises SpecError: on a backend whose memory cannot be estimated.
        """
        self._settings = settings
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
        predicted_gib = self._estimate.predict_gib(self._settings.config(cell))
        with suppress(EnvelopeError):  # too few points for a line
            predicted_gib = max(predicted_gib, fit(points, cell.precision).predict_gib(tokens))
        limit_gib = self._estimate.limit_gib
        if predicted_gib <= limit_gib:
            return None
        return (
            f"{predicted_gib:.1f} GiB are predicted and {limit_gib:.1f} are available; not "
            "run, since a machine whose GPU shares its memory may hang"
        )
