"""Train a trial's model, and put together its result."""

from __future__ import annotations

import traceback
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Self, TextIO

import torch
from torch import Tensor

from autoresearch.errors import MachineryError
from autoresearch.layout import CURVE_FILE
from autoresearch.values import Frozen
from trainer.backends.compilation import compile_training, load_kernels
from trainer.corpus import Corpus
from trainer.machine.device import device_name, peak_mem_gib, peak_reserved_gib
from trainer.memory.estimate import parameter_count
from trainer.memory.out_of_memory import free_device_bytes, is_out_of_memory
from trainer.spec import CurvePoint, TextScore, TrialOk, TrialSpec
from trainer.training.checkpoints import Checkpoints
from trainer.training.data import Batches
from trainer.training.evaluate import Evaluation
from trainer.training.schedule import Schedule
from trainer.training.setup import first_line
from trainer.training.train import Trained, train


class TrainingReport(Frozen):
    """The fields of a result that are known once training ends."""

    train_loss_first: float
    train_loss_last: float
    steps: int
    tokens: int
    step_ms: float
    tokens_per_s: float
    train_s: float
    setup_s: float
    peak_mem_gib: float
    peak_reserved_gib: float | None

    @classmethod
    def of(cls, trained: Trained, device: torch.device, setup_s: float) -> Self:
        """Return the report of a training run in this process."""
        return cls(
            train_loss_first=trained.loss_first,
            train_loss_last=trained.loss_last,
            steps=trained.steps,
            tokens=trained.tokens,
            step_ms=trained.step_ms,
            tokens_per_s=trained.tokens / trained.train_s,
            train_s=trained.train_s,
            setup_s=setup_s,
            peak_mem_gib=peak_mem_gib(device),
            peak_reserved_gib=peak_reserved_gib(device),
        )


@dataclass(frozen=True, slots=True)
class Scores:
    """The scores of a trained model."""

    heldout: Evaluation
    texts: tuple[TextScore, ...]
    checkpoints_bpb: tuple[float, ...]
    eval_s: float


def trial_ok(
    spec: TrialSpec,
    corpus: Corpus,
    report: TrainingReport,
    scores: Scores,
    backend: str,
    device: torch.device,
) -> TrialOk:
    """Return the trial's result."""
    return TrialOk(
        val_bpb=scores.heldout.bits_per_byte(corpus.info.heldout_bytes),
        val_bits_per_token=scores.heldout.bits_per_token,
        val_bytes=corpus.info.heldout_bytes,
        val_tokens=scores.heldout.tokens,
        params=parameter_count(spec.gpt, corpus.info.vocab_size),
        eval_s=scores.eval_s,
        backend=backend,
        device=device_name(device),
        precision=spec.gpt.precision,
        texts=scores.texts,
        checkpoints_bpb=scores.checkpoints_bpb,
        **report.model_dump(),
    )


def train_model(
    spec: TrialSpec,
    trial_dir: Path,
    model: torch.nn.Module,
    batches: Batches,
    checkpoints: Checkpoints,
) -> Trained:
    """Train the model by the spec's schedule, and write the curve."""
    with (trial_dir / CURVE_FILE).open("w", encoding="utf-8") as curve:
        return train(
            model,
            batches,
            Schedule(spec.gpt, spec.budget, spec.horizon_steps, spec.cooldown_steps),
            log_every=spec.log_every,
            prune=spec.prune,
            report=lambda point: _append(curve, point),
            after_step=checkpoints.after,
        )


def _append(curve: TextIO, point: CurvePoint) -> None:
    curve.write(point.model_dump_json() + "\n")
    curve.flush()


def make_code(spec: TrialSpec, model: torch.nn.Module, batch: tuple[Tensor, Tensor]) -> None:
    """Compile what the spec's steps need, before their time counts."""
    if spec.compile:
        compile_training(model, batch)
    elif spec.makes_code:
        _load_kernels(spec, model, batch)


def _load_kernels(spec: TrialSpec, model: torch.nn.Module, batch: tuple[Tensor, Tensor]) -> None:
    """Compile and run the kernels, which are the same for every config.

    :raises MachineryError: if they cannot be compiled or do not run, unless memory ran out.
    """
    try:
        load_kernels(model, batch)
    except Exception as error:
        if is_out_of_memory(error, partial(free_device_bytes, torch.device(spec.device))):
            raise
        if spec.gpt.code:  # its own functions run here for the first time on this device
            raise
        traceback.print_exc()
        raise MachineryError(
            f"the kernels of the torch backend do not work on this machine ({type(error).__name__}:"
            f" {first_line(error)}); see trainer.log and what `autoresearch doctor` says"
        ) from error
