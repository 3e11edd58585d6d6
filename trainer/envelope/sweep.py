"""Sweep the grid: one sandboxed trial per point, and no point can stop the sweep.

A GPU with memory of its own refuses what it lacks, and a point that ran out is a result. A machine
whose GPU shares its memory may hang instead (:mod:`trainer.machine.host`). Its trials'
limits should prevent that, but a sweep does not test them unless asked: with a memory model it
stops at the last point before the one that is predicted not to fit.
"""

import shutil
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from pydantic import ValidationError

from autoresearch.campaign_files import make_folder, make_shared_folder
from autoresearch.errors import MachineryError, SpecError
from autoresearch.files import writing
from autoresearch.layout import COMPILED_DIR, TRIALS_DIR
from autoresearch.values import explain
from trainer.corpus import Corpus
from trainer.corpus.prepare import random_corpus
from trainer.envelope.points import (
    Cell,
    EnvelopePoint,
    EnvelopeSettings,
    PointsFile,
    TimedSettings,
)
from trainer.executors.base import Executor, Finished
from trainer.memory.estimate import AnalyticMemory
from trainer.schema import (
    DEFAULT_RESERVE_GIB,
    Budget,
    Config,
    CurvePoint,
    Limits,
    TrialFailed,
    TrialOk,
    TrialSpec,
)
from trainer.telemetry import DeviceUse, Sampler

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
    memory: AnalyticMemory | None = None,
    sampler: Sampler | None = None,
) -> tuple[EnvelopePoint, ...]:
    """Measure every cell of ``grid`` without a settled point in ``directory``.

    A failing trial is a point; an interruption loses only the running one.

    :param memory: if given, cells that it predicts not to fit are not run.
    :param sampler: of the device that the trials run on.

    :return: all points of the directory, those of earlier sweeps with the same settings included.
    :raises EnvelopeError: if the directory's points cannot be extended.
    :raises SpecError: if no trainer could run any cell at any precision.
    :raises MachineryError: if the machinery fails, which is not a point.
    """
    points = PointsFile(directory / POINTS_FILE, settings)
    missing = [cell for cell in grid if points.find(cell) is None]
    if not missing:
        return points.points
    corpus = random_corpus(
        directory / "corpus",
        vocab_size=settings.vocab_size,
        longest_seq_len=max(cell.seq_len for cell in missing),
    )
    limits = Limits(wall_s=settings.wall_s, memory_gib=settings.memory_gib, reserve_gib=reserve_gib)
    specs = [_spec(settings, cell, corpus, directory, limits) for cell in missing]
    for cell, spec in zip(missing, specs, strict=True):
        watcher(cell)
        why = None if memory is None else why_beyond(spec.gpt, memory, points.points)
        if why is None:
            point = _measure(settings, cell, spec, directory, executor, sampler)
        else:
            point = _unmeasured(cell, "beyond", why, wall_s=0)
        points.append(point)
        watcher(point)
    return points.points


def why_beyond(
    config: Config, memory: AnalyticMemory, points: Sequence[EnvelopePoint]
) -> str | None:
    """Return why a config should not be run, judged by the points so far; None if it should.

    If a smaller step of its precision ran out of memory, this one would too.
    """
    for point in points:
        smaller = point.tokens_per_step <= config.tokens_per_step
        if smaller and point.precision == config.precision and point.status == "oom":
            return f"{point.cell} ran out of memory already, and so would this"
    predicted_gib = memory.predict_gib(config)
    if predicted_gib <= memory.limit_gib:
        return None
    return (
        f"{predicted_gib:.1f} GiB are predicted and {memory.limit_gib:.1f} are available; not "
        "run, since a machine whose GPU shares its memory may hang"
    )


def _spec(
    settings: EnvelopeSettings, cell: Cell, corpus: Corpus, directory: Path, limits: Limits
) -> TrialSpec:
    return timed_spec(
        settings,
        corpus,
        directory,
        trial_id=f"{cell.precision}-b{cell.batch_size}-s{cell.seq_len}",
        config=settings.config(cell),
        backend=settings.backend,
        limits=limits,
    )


def timed_spec(
    settings: TimedSettings, corpus: Corpus, directory: Path, **others: object
) -> TrialSpec:
    """Return the spec of a trial whose steps are timed.

    :param others: the fields that differ between trials.
    :raises SpecError: if no trainer could run it.
    """
    fields = {
        "seed": settings.seed,
        "corpus_dir": str(corpus.directory),
        "corpus_sha256": corpus.info.sha256,
        "budget": Budget(unit="steps", amount=settings.steps),
        "device": settings.device,
        "threads": settings.threads,
        "compile_cache": str(directory.absolute() / COMPILED_DIR),
    }
    try:
        return TrialSpec.model_validate(fields | others)
    except ValidationError as error:
        raise SpecError(f"no trial can measure {others['trial_id']}: {explain(error)}") from error


@dataclass(frozen=True, slots=True)
class Timed:
    """A trial whose steps were timed."""

    finished: Finished
    step_s: float | None
    """Mean seconds of its counted steps; None if it failed."""
    use: DeviceUse
    """Use of the device during the counted steps; of a failure, nothing."""


def run_timed(
    spec: TrialSpec,
    directory: Path,
    executor: Executor,
    warmup: int,
    sampler: Sampler | None = None,
) -> Timed:
    """Run a trial below ``directory`` whose first ``warmup`` steps are not counted."""
    trial_dir = directory / TRIALS_DIR / spec.trial_id
    with writing(directory, instead="choose another folder"):
        make_folder(directory, TRIALS_DIR)
        if spec.code_cache is not None:
            make_shared_folder(directory, COMPILED_DIR)
    shutil.rmtree(trial_dir, ignore_errors=True)  # of an earlier one that was interrupted or failed
    curve: list[CurvePoint] = []
    since_s = until_s = time.monotonic()

    def arrived(point: CurvePoint) -> None:
        nonlocal since_s, until_s
        curve.append(point)
        until_s = time.monotonic()
        if point.step <= max(1, warmup):  # nobody outside sees where the first step begins
            since_s = until_s

    finished = executor.run(spec, trial_dir, on_point=arrived)
    if not isinstance(finished.result, TrialOk):
        return Timed(finished, None, DeviceUse())
    use = DeviceUse() if sampler is None else sampler.use(since_s, until_s)
    return Timed(finished, counted_step_s(curve, warmup), use)


def _measure(
    settings: EnvelopeSettings,
    cell: Cell,
    spec: TrialSpec,
    directory: Path,
    executor: Executor,
    sampler: Sampler | None,
) -> EnvelopePoint:
    began_s = time.monotonic()
    try:
        timed = run_timed(spec, directory, executor, settings.warmup, sampler)
    except SpecError as error:
        return _unmeasured(cell, "refused", str(error), wall_s=time.monotonic() - began_s)
    result, step_s = timed.finished.result, timed.step_s
    fields = cell._asdict() | {
        "status": result.status,
        "peak_mem_gib": result.peak_mem_gib,
        "wall_s": timed.finished.wall_s,
        **dict(timed.use),
    }
    if isinstance(result, TrialOk) and step_s is not None:
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
