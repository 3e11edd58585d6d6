"""The memory model behind the ``memory`` rail: an envelope's where there is one."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from trainer.envelope.envelope import ENVELOPE_FILE, Envelope
from trainer.envelope.fit import MIB_PER_GIB
from trainer.memory import AnalyticMemory, device_limit
from trainer.spec import DEFAULT_RESERVE_GIB, Config


class FittedMemory:
    """An envelope's lines, carried over to other shapes; an :class:`agent.rails.MemoryModel`.

    A config of the shape that was measured gets the line's own value. For another shape or
    vocabulary each term of the line is scaled by the ratio that the analytic estimate of that
    term has between the two configs at the same batch, sequence and precision: measured bytes,
    estimated proportions. The result is never below what the update holds, scaled like the fixed
    term. A precision without a line is estimated analytically.
    """

    def __init__(self, envelope: Envelope, *, vocab_size: int, limit_gib: float) -> None:
        """
        :param vocab_size: of the corpus that will be trained on.
        :param limit_gib: what the device has for a trial.
        """
        settings = envelope.settings
        self._envelope = envelope
        self._measured, self._asked = (
            AnalyticMemory(
                vocab_size=size,
                backend=settings.backend,
                device=settings.device,
                limit_gib=limit_gib,
            )
            for size in (settings.vocab_size, vocab_size)
        )

    @property
    def limit_gib(self) -> float:
        """What the device has for a trial."""
        return self._asked.limit_gib

    def predict_gib(self, config: Config) -> float:
        """Predicted peak of training ``config``."""
        line = self._envelope.fit_of(config.precision)
        if line is None:
            return self._asked.predict_gib(config)
        step = config.model_dump(include={"batch_size", "seq_len", "precision"})
        measured = self._measured.parts(self._envelope.settings.base.model_copy(update=step))
        asked = self._asked.parts(config)
        fixed_gib = line.fixed_gib * asked.fixed_bytes / measured.fixed_bytes
        per_token_mib = line.per_token_mib * asked.per_token_bytes / measured.per_token_bytes
        at_loss_gib = fixed_gib + per_token_mib * config.tokens_per_step / MIB_PER_GIB
        at_update_gib = line.fixed_gib * asked.update_bytes / measured.fixed_bytes
        return max(at_loss_gib, at_update_gib)


@dataclass(frozen=True, slots=True)
class MemoryChoice:
    """The memory model of a campaign, and what to tell a person about it."""

    model: AnalyticMemory | FittedMemory
    description: str


def envelope_path(directory: Path, *, menu_sha256: str, backend: str, device: str) -> Path:
    """Where the envelope of a menu is kept for the memory rail, below ``directory``."""
    device_type = device.partition(":")[0]
    return directory / f"{menu_sha256[:16]}-{backend}-{device_type}" / ENVELOPE_FILE


def choose_memory(
    path: Path,
    *,
    vocab_size: int,
    backend: str,
    device: str,
    trial_limit_gib: float | None = None,
    reserve_gib: float = DEFAULT_RESERVE_GIB,
) -> MemoryChoice:
    """The fitted model where ``path`` holds an envelope, else the analytic estimate.

    :raises EnvelopeError: where there is a file that is no envelope.
    :raises SpecError: where there is no such device or backend.
    """
    limit = device_limit(device, trial_limit_gib, reserve_gib)
    of_what = f"of {limit.gib:.1f} GiB ({limit.source})"
    if not path.exists():
        analytic = AnalyticMemory(
            vocab_size=vocab_size, backend=backend, device=device, limit_gib=limit.gib
        )
        return MemoryChoice(analytic, f"analytic estimate, {of_what}")
    envelope = Envelope.load(path)
    fitted = FittedMemory(envelope, vocab_size=vocab_size, limit_gib=limit.gib)
    lines = ", ".join(
        f"{one.precision} ± {one.max_error_gib:.2f} GiB over {len(one.residuals)} points"
        for one in envelope.fits
    )
    return MemoryChoice(fitted, f"fitted ({lines or 'nothing yet'}), {of_what}")
