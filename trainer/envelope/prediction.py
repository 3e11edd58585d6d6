"""Predict a config's needs on this machine, and a counted step's time on a described device.

Memory is what the rail predicts. For time, the step times of each precision of an envelope are
fitted by a line,

    step_ms = fixed_ms + per_token_us × tokens / 1000

by least squares of relative errors, so that a small step weighs as much as a large one. Another
shape gets the line's value times the ratio of the two configs' computed times, as for memory:
measured time, computed proportions. On a GPU the times are computed operator by operator for a
described device (:func:`counted_seconds`), since narrow products reach less of their peak than wide
ones. By FLOPs alone (:func:`flops_of`), ten published shapes were off by twice as much.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import numpy as np

from autoresearch.values import Finite, Frozen, NonNegative, NonNegativeInt, Positive, PositiveInt
from trainer.accounting.work import KINDS, DeviceDescription, Kind, StepCounts
from trainer.envelope.envelope import Envelope
from trainer.envelope.points import EnvelopePoint
from trainer.envelope.rail import MemoryModel
from trainer.machine.flops import TrainingFlops
from trainer.memory.estimate import parameter_count
from trainer.spec import Config


class StepTime(Frozen):
    """Line through the step times of one precision."""

    precision: str
    fixed_ms: NonNegative
    per_token_us: Positive
    max_error: NonNegative
    """The largest relative residual."""
    points: PositiveInt

    def step_ms(self, tokens_per_step: int) -> float:
        return self.fixed_ms + self.per_token_us * tokens_per_step / 1000


class Need(Frozen):
    """Needs of training one config."""

    config: Config
    params: PositiveInt
    """Parameters with the vocabulary that will be used."""
    peak_gib: NonNegative
    limit_gib: NonNegative
    tokens_per_s: Finite | None
    """None if no step of this precision was measured."""
    speed_error: NonNegative | None
    """Largest relative error of the line at its points."""

    @property
    def fits(self) -> bool:
        return self.peak_gib <= self.limit_gib

    @property
    def step_ms(self) -> float | None:
        if self.tokens_per_s is None:
            return None
        return 1000 * self.config.tokens_per_step / self.tokens_per_s


Computed: TypeAlias = Callable[[Config, int], float]
"""Computes the time of a step of a config with a vocabulary, in any unit."""


def flops_of(config: Config, vocab_size: int) -> float:
    """Return the FLOPs of a step."""
    flops = TrainingFlops.of(config, vocab_size=vocab_size, seq_len=config.seq_len)
    return flops.per_token * config.tokens_per_step


def counted_seconds(device: DeviceDescription) -> Computed:
    """Return a function that counts the seconds of a step operator by operator, at the device's
    rates, in a second of one core per config. It counts torch's operators, even if another backend
    was measured."""

    def seconds(config: Config, vocab_size: int) -> float:
        # torch takes seconds to import, so it is loaded only if something is counted, not for
        # --help
        from trainer.envelope.counted_step import count_step  # noqa: PLC0415

        return device.seconds(count_step(config, vocab_size))

    return seconds


def needs(
    configs: Sequence[Config],
    memory: MemoryModel,
    envelope: Envelope | None,
    vocab_size: int,
    computed: Computed = flops_of,
) -> list[Need]:
    """Return a :class:`Need` for each config.

    :param envelope: source of the step times; None: no time is predicted.
    :param computed: scales them to other shapes.
    :raises SpecError: if a config cannot be computed.
    """
    lines = _lines(envelope.points) if envelope else {}
    return [_need(config, memory, envelope, lines, vocab_size, computed) for config in configs]


def _need(
    config: Config,
    memory: MemoryModel,
    envelope: Envelope | None,
    lines: dict[str, StepTime],
    vocab_size: int,
    computed: Computed,
) -> Need:
    line = lines.get(config.precision)
    tokens_per_s = None
    if line is not None and envelope is not None:
        step = {name: getattr(config, name) for name in ("batch_size", "seq_len", "precision")}
        measured = envelope.settings.base.model_copy(update=step)
        ratio = 1.0
        if (measured, envelope.settings.vocab_size) != (config, vocab_size):
            ratio = computed(config, vocab_size)
            ratio /= computed(measured, envelope.settings.vocab_size)
        tokens = config.tokens_per_step
        tokens_per_s = 1000 * tokens / (line.step_ms(tokens) * ratio)
    return Need(
        config=config,
        params=parameter_count(config, vocab_size),
        peak_gib=memory.predict_gib(config),
        limit_gib=memory.limit_gib,
        tokens_per_s=tokens_per_s,
        speed_error=line.max_error if line else None,
    )


def _lines(points: Sequence[EnvelopePoint]) -> dict[str, StepTime]:
    found: dict[str, StepTime] = {}
    for precision in dict.fromkeys(point.precision for point in points):
        used = [p for p in points if p.precision == precision and p.step_ms is not None]
        if len({point.tokens_per_step for point in used}) > 1:
            found[precision] = _fitted(precision, used)
    return found


def _fitted(precision: str, used: Sequence[EnvelopePoint]) -> StepTime:
    tokens = np.array([point.tokens_per_step for point in used], dtype=float)
    step_ms = np.array([point.step_ms for point in used], dtype=float)
    # Divided by the measured time, residuals are relative.
    design = np.stack([1 / step_ms, tokens / step_ms], axis=1)
    (fixed_ms, per_token_ms), *_ = np.linalg.lstsq(design, np.ones(len(used)), rcond=None)
    if fixed_ms < 0 or per_token_ms <= 0:  # a line must not start below zero
        through = tokens / step_ms
        fixed_ms, per_token_ms = 0.0, through.sum() / (through**2).sum()
    errors = (fixed_ms + per_token_ms * tokens) / step_ms - 1
    return StepTime(
        precision=precision,
        fixed_ms=float(fixed_ms),
        per_token_us=1000 * float(per_token_ms),
        max_error=float(np.abs(errors).max()),
        points=len(used),
    )


GIB = 1 << 30


class Prediction(Frozen):
    """One step of one config on one described device."""

    precision: str
    seq_len: int
    batch_size: int
    tflop: NonNegative
    """TFLOP executed by products and attention: the lower half of a causal mask."""
    tflop_of: Mapping[Kind, NonNegative]
    moved_gb: NonNegative
    """10⁹ bytes through the device's memory, with nothing cached between kernels."""
    elementwise_gb: NonNegative
    """The part of them moved by neither products nor attention nor the optimizer."""
    kernels: NonNegativeInt
    peak_gib: Positive
    """Memory of tensors, without workspaces, fragmentation and the CUDA context."""
    fits: bool
    """Whether that is less than the device has."""
    misaligned: tuple[str, ...]
    """Products with rows that are not aligned to 16 bytes, and why."""
    step_ms: Positive
    tokens_per_s: Positive
    utilisation_pct: Positive
    """6 N + 12 L D T per token (:mod:`trainer.machine.flops`), relative to the device's ceiling."""

    @classmethod
    def of(
        cls, counts: StepCounts, config: Config, vocab_size: int, device: DeviceDescription
    ) -> Prediction:
        """Return the prediction from the counts of a step of ``config``."""
        step_s = device.seconds(counts)
        flops = TrainingFlops.of(config, vocab_size=vocab_size, seq_len=config.seq_len)
        tokens_per_s = config.tokens_per_step / step_s
        return cls(
            precision=config.precision,
            seq_len=config.seq_len,
            batch_size=config.batch_size,
            tflop=counts.flops / 1e12,
            tflop_of={kind: counts.flops_of(kind) / 1e12 for kind in KINDS},
            moved_gb=counts.moved_bytes / 1e9,
            elementwise_gb=counts.elementwise_bytes / 1e9,
            kernels=counts.kernels,
            peak_gib=counts.peak / GIB,
            fits=counts.peak / GIB < device.memory_gib,
            misaligned=tuple(
                f"{calls} × {work.operator} {work.shape}: {', '.join(work.misaligned)}"
                for work, calls in counts.misaligned.items()
            ),
            step_ms=1e3 * step_s,
            tokens_per_s=tokens_per_s,
            utilisation_pct=100 * flops.per_token * tokens_per_s / (1e12 * device.ceiling_tflops),
        )
