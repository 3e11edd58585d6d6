"""Compare backends: the same shape, data, seed and steps, in one sandboxed trial each."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from autoresearch.errors import MachineryError, SpecError
from autoresearch.values import (
    Finite,
    Frozen,
    NonNegative,
    Positive,
    PositiveInt,
)
from trainer.corpus import Corpus
from trainer.envelope.points import TimedSettings
from trainer.envelope.sweep import Timed, run_timed, timed_spec
from trainer.executors.base import Executor
from trainer.machine.ceiling import Ceiling
from trainer.machine.flops import TrainingFlops
from trainer.schema import (
    BackendName,
    Config,
    Limits,
    TrialFailed,
    TrialOk,
    TrialSpec,
)
from trainer.telemetry import DeviceUse, MeanAndPeak, Sampler

FIRST_LOSS_TOLERANCE = 0.1
"""Largest distance of a first loss from ln(vocabulary), as a fraction of it."""


class CompareSettings(TimedSettings):
    """Settings that every backend trains with."""

    config: Config
    limits: Limits = Limits()


class Contender(DeviceUse):
    """Result of one backend. A failed trial has a status and a message, and no numbers.

    The device's use is that of the counted steps.
    """

    backend: str
    status: str
    message: str = ""
    step_ms: Positive | None = None
    """Mean over the counted steps."""
    tokens_per_s: Positive | None = None
    utilisation_pct: Positive | None = None
    """Percentage of the ceiling, by :attr:`trainer.machine.flops.TrainingFlops.per_token`."""
    peak_allocated_gib: NonNegative | None = None
    """Peak on CUDA; peak of resident memory on a CPU."""
    peak_reserved_gib: NonNegative | None = None
    """Most memory that the allocator held; None on a CPU."""
    loss_first: Finite | None = None
    loss_last: Finite | None = None
    device_name: str | None = None
    precision: str | None = None


class LeftOut(Frozen):
    """A backend that cannot train this here."""

    backend: str
    why: str


class BackendComparison(Frozen):
    """All results of a comparison."""

    settings: CompareSettings
    corpus: str
    vocab_size: PositiveInt
    flops_per_token: Positive
    ceiling: Ceiling
    contenders: tuple[Contender, ...]
    left_out: tuple[LeftOut, ...]

    @property
    def base(self) -> Contender:
        """Backend that the others are compared with: the first that was measured."""
        measured = (one for one in self.contenders if one.status == "ok")
        return next(measured, self.contenders[0])

    @property
    def others(self) -> tuple[Contender, ...]:
        """All but the base."""
        return tuple(one for one in self.contenders if one is not self.base)

    def defects(self) -> tuple[str, ...]:
        """Return a sentence for each backend that does not start near uniform probabilities.

        Weights that favor no token give a first loss of ln(vocabulary).
        """
        even = math.log(self.vocab_size)
        return tuple(
            f"{one.backend}: the first loss is {one.loss_first:.4g}, far from ln({self.vocab_size})"
            f" = {even:.4g}: a defect of its initialisation, and nothing else here says much"
            for one in self.contenders
            if one.loss_first is not None
            and abs(one.loss_first - even) > FIRST_LOSS_TOLERANCE * even
        )


@dataclass(frozen=True, slots=True)
class Quantity:
    """A line of the table."""

    name: str
    value: Callable[[Contender], float | None]
    digits: int
    is_ratio: bool = True
    """Whether percentages of it mean something; not so for degrees."""

    def text(self, contender: Contender) -> str:
        """Return the value as printed; empty if there is none."""
        value = self.value(contender)
        return "" if value is None else f"{value:,.{self.digits}f}"

    def delta_pct(self, of: Contender, over: Contender) -> float | None:
        """Return how many percent more ``of`` has; None if either has none, or it is no ratio."""
        value, base = self.value(of), self.value(over)
        return None if value is None or not base or not self.is_ratio else 100 * (value / base - 1)


def _of_use(
    name: str, of: Callable[[Contender], MeanAndPeak | None], *, is_ratio: bool = True
) -> tuple[Quantity, Quantity]:
    """Return the lines of a quantity's mean and peak."""

    def mean(one: Contender) -> float | None:
        return None if (found := of(one)) is None else found.mean

    def peak(one: Contender) -> float | None:
        return None if (found := of(one)) is None else found.peak

    means = Quantity(f"{name}, mean", mean, 0, is_ratio)
    return means, Quantity(f"{name}, peak", peak, 0, is_ratio)


QUANTITIES = (
    Quantity("step ms", lambda one: one.step_ms, 1),
    Quantity("tokens/s", lambda one: one.tokens_per_s, 0),
    Quantity("model FLOPs utilisation %", lambda one: one.utilisation_pct, 1),
    Quantity("peak allocated GiB", lambda one: one.peak_allocated_gib, 2),
    Quantity("peak reserved GiB", lambda one: one.peak_reserved_gib, 2),
    Quantity("first loss", lambda one: one.loss_first, 3),
    Quantity("last loss", lambda one: one.loss_last, 3),
    *_of_use("GPU utilization %", lambda one: one.gpu_util_pct),
    *_of_use("GPU power W", lambda one: one.power_w),
    *_of_use("GPU temperature °C", lambda one: one.temperature_c, is_ratio=False),
)


def compare_backends(
    settings: CompareSettings,
    backends: Sequence[BackendName],
    corpus: Corpus,
    directory: Path,
    executor: Executor,
    ceiling: Ceiling,
    *,
    sampler: Sampler | None = None,
    on_start: Callable[[str], None] = lambda backend: None,
) -> BackendComparison:
    """Train with each backend in turn, in a directory of its own below ``directory``.

    A backend that cannot train this here is omitted with its reason.

    :param sampler: of the device that the trials run on.
    :raises SpecError: if none can, or no trainer could run the settings.
    :raises SandboxError: if the trials cannot be confined.
    """
    flops = TrainingFlops.of(
        settings.config, vocab_size=corpus.info.vocab_size, seq_len=settings.config.seq_len
    )
    specs = [_spec(settings, backend, corpus, directory) for backend in dict.fromkeys(backends)]
    contenders: list[Contender] = []
    left_out: list[LeftOut] = []
    for spec in specs:
        on_start(spec.backend)
        try:
            timed = run_timed(spec, directory, executor, settings.warmup, sampler)
            contenders.append(_contender(spec, timed, flops, ceiling))
        except (SpecError, MachineryError) as error:
            left_out.append(LeftOut(backend=spec.backend, why=str(error)))
    if not contenders:
        reasons = "; ".join(f"{one.backend}: {one.why}" for one in left_out)
        raise SpecError(f"there is nothing to compare: {reasons}")
    return BackendComparison(
        settings=settings,
        corpus=corpus.info.name,
        vocab_size=corpus.info.vocab_size,
        flops_per_token=flops.per_token,
        ceiling=ceiling,
        contenders=tuple(contenders),
        left_out=tuple(left_out),
    )


def _spec(
    settings: CompareSettings, backend: BackendName, corpus: Corpus, directory: Path
) -> TrialSpec:
    return timed_spec(
        settings,
        corpus,
        directory,
        trial_id=backend,
        config=settings.config,
        backend=backend,
        limits=settings.limits,
    )


def _contender(spec: TrialSpec, timed: Timed, flops: TrainingFlops, ceiling: Ceiling) -> Contender:
    result, step_s = timed.finished.result, timed.step_s
    if isinstance(result, TrialFailed):
        return Contender(backend=spec.backend, status=result.status, message=result.message)
    assert isinstance(result, TrialOk)  # the spec names no command
    assert step_s is not None
    tokens_per_s = spec.gpt.tokens_per_step / step_s
    return Contender(
        backend=spec.backend,
        status=result.status,
        step_ms=1000 * step_s,
        tokens_per_s=tokens_per_s,
        utilisation_pct=ceiling.utilisation_pct(flops.per_token, tokens_per_s),
        peak_allocated_gib=result.peak_mem_gib,
        peak_reserved_gib=result.peak_reserved_gib,
        loss_first=result.train_loss_first,
        loss_last=result.train_loss_last,
        device_name=result.device,
        precision=result.precision,
        **dict(timed.use),
    )
