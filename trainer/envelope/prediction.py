"""Tabulate a counted training step: its work, and its predicted time."""

from __future__ import annotations

from collections.abc import Mapping

from autoresearch.values import Frozen, NonNegative, NonNegativeInt, Positive
from trainer.accounting.devices import DeviceDescription
from trainer.accounting.work import KINDS, Kind, StepCounts
from trainer.machine.flops import TrainingFlops
from trainer.spec import Config

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
