"""Choose the memory model of the ``memory`` rail: an envelope's if there is one."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias

from autoresearch.errors import MachineryError
from trainer.envelope.envelope import ENVELOPE_FILE, Envelope, MemoryFit
from trainer.machine.host import lacking
from trainer.memory.estimate import GIB, AnalyticMemory, device_limit, parameter_count
from trainer.spec import DEFAULT_RESERVE_GIB, Config


class FittedMemory:
    """An envelope's lines scaled to other shapes; a :data:`MemoryModel`.

    A config of the measured shape gets the line's value. Another shape or vocabulary gets it times
    the ratio of the two configs' analytic estimates at the same batch, sequence and precision:
    measured bytes, estimated proportions. The ratio uses whole estimates, since their peaks may be
    at different moments of a step, whose terms are not comparable. A step smaller than all measured
    ones is scaled from the smallest: below it the line keeps falling, while weights and moments do
    not. A precision without a line is estimated analytically.
    """

    def __init__(
        self, envelope: Envelope, *, vocab_size: int, limit_gib: float, compile: bool = False
    ) -> None:
        """Combine an envelope with the campaign's settings.

        :param vocab_size: of the corpus that will be trained on.
        :param limit_gib: memory that the device has for a trial.
        :param compile: whether trials compile; the envelope knows whether its points did.
        """
        settings = envelope.settings
        self._envelope = envelope
        self.limit_gib = limit_gib
        """Memory that the device has for a trial."""
        self._measured, self._asked = (
            AnalyticMemory(
                vocab_size=size,
                backend=settings.backend,
                device=settings.device,
                limit_gib=limit_gib,
                compile=compiles,
            )
            for size, compiles in (
                (settings.vocab_size, settings.compile),
                (vocab_size, compile),
            )
        )

    def predict_gib(self, config: Config) -> float:
        """Return the predicted peak of training ``config``."""
        line = self._envelope.fit_of(config.precision)
        if line is None:
            return self._asked.predict_gib(config)
        anchor = self._anchor(config, line)
        measured_gib = line.predict_gib(anchor.tokens_per_step)
        ratio = self._asked.predict_gib(config) / self._measured.predict_gib(anchor)
        return measured_gib * ratio

    def _anchor(self, config: Config, line: MemoryFit) -> Config:
        """Return the measured shape at the step of ``config``, or at the smallest of the line's."""
        step = {"batch_size": config.batch_size, "seq_len": config.seq_len}
        smallest = min(line.residuals, key=lambda one: one.batch_size * one.seq_len)
        if config.tokens_per_step < smallest.batch_size * smallest.seq_len:
            step = {"batch_size": smallest.batch_size, "seq_len": smallest.seq_len}
        base = self._envelope.settings.base
        return base.model_copy(update={**step, "precision": config.precision})


@dataclass(frozen=True, slots=True)
class AveragingMemory:
    """Another estimate plus means of the weights in fp32 (:class:`trainer.spec.Averaging`); a
    :data:`MemoryModel`."""

    plain: AnalyticMemory | FittedMemory
    vocab_size: int
    means: int = 1

    @property
    def limit_gib(self) -> float:
        """Memory that the device has for a trial."""
        return self.plain.limit_gib

    def predict_gib(self, config: Config) -> float:
        """Return the predicted peak of training ``config``."""
        mean_bytes = 4 * parameter_count(config, self.vocab_size)
        return self.plain.predict_gib(config) + self.means * mean_bytes / GIB


MemoryModel: TypeAlias = AnalyticMemory | FittedMemory | AveragingMemory
"""A model that the memory rail asks for the peak of a config."""


@dataclass(frozen=True, slots=True)
class MemoryChoice:
    """A campaign's memory model, and its description for a person."""

    model: MemoryModel | None
    """None if no prediction is possible."""
    description: str

    def for_defaults(self, config: Config, menu: str, device: str) -> MemoryChoice:
        """Return the same, describing what the menu's defaults need of a GPU.

        :raises MachineryError: if they do not fit into the free memory.
        """
        if self.model is None or device == "cpu":
            return self
        need_gib, free_gib = self.model.predict_gib(config), self.model.limit_gib
        if need_gib > free_gib:
            raise MachineryError(
                f"the defaults of menu {menu} need about {need_gib:.1f} GiB and {device} has"
                f" {free_gib:.1f} GiB free for a trial; see with nvidia-smi and `free -g` who holds"
                " the rest (a NIM's share is NIM_GPU_MEM_FRACTION), or choose a smaller menu"
            )
        return replace(
            self, description=f"{self.description}; the defaults need {need_gib:.1f} GiB"
        )

    def with_average(self, vocab_size: int, means: int = 1) -> MemoryChoice:
        """Return the same for trials that also keep means of their weights."""
        if self.model is None:
            return self
        if isinstance(self.model, AveragingMemory):
            return replace(self, model=replace(self.model, means=means))
        words = "a mean of the weights" if means == 1 else f"{means} means of the weights"
        model = AveragingMemory(self.model, vocab_size, means)
        return MemoryChoice(model, f"{self.description}, and {words} besides")


def envelope_path(directory: Path, *, menu_sha256: str, backend: str, device: str) -> Path:
    """Return where the envelope of a menu is stored for the memory rail, below ``directory``.

    :param menu_sha256: the hash of the menu's content.
    """
    device_type = device.partition(":")[0]
    return directory / f"{menu_sha256[:16]}-{backend}-{device_type}" / ENVELOPE_FILE


def choose_memory(
    path: Path,
    *,
    vocab_size: int,
    backend: str,
    device: str,
    compile: bool = False,
    trial_limit_gib: float | None = None,
    reserve_gib: float = DEFAULT_RESERVE_GIB,
    places: int = 1,
) -> MemoryChoice:
    """Return the fitted model if ``path`` holds an envelope, else the analytic estimate.

    :param places: concurrent trials on a CPU, each with its share of the memory.
    :raises EnvelopeError: if there is a file that is not an envelope.
    :raises SpecError: if there is no such device or backend.
    """
    limit = device_limit(device, trial_limit_gib, reserve_gib, places=places)
    shared = places > 1 and device == "cpu" and limit.source != "trial"
    of_what = f"of {limit.gib:.1f} GiB ({limit.source}{f', shared by {places}' if shared else ''})"
    if not path.exists():
        analytic = AnalyticMemory(
            vocab_size=vocab_size,
            backend=backend,
            device=device,
            limit_gib=limit.gib,
            compile=compile,
            kernels=device == "cpu" or lacking("cuda") is None,
        )
        return MemoryChoice(analytic, f"analytic estimate, {of_what}")
    envelope = Envelope.load(path)
    fitted = FittedMemory(envelope, vocab_size=vocab_size, limit_gib=limit.gib, compile=compile)
    lines = ", ".join(
        f"{one.precision} ± {one.max_error_gib:.2f} GiB over {len(one.residuals)} points"
        for one in envelope.fits
    )
    return MemoryChoice(fitted, f"fitted ({lines or 'nothing yet'}), {of_what}")
