"""Train in one process and score in another, which alone may read the held-out text.

Trials of a menu with code knobs run this way. The fork server's child forks before anything of the
config is read (:mod:`trainer.isolation.trial_process`). One half trains, in a sandbox that keeps
the held-out text and every other text to score closed, and leaves its weights as plain arrays. The
other half has run nothing of the config when it loads them, builds the model again, and computes
the loss itself. Optimizer rules, schedules and auxiliary losses never run where text is scored.
"""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Literal, TypeAlias

import numpy as np
import torch
from pydantic import Field, ValidationError
from torch import nn

from autoresearch.errors import AutoresearchError
from autoresearch.layout import SCRATCH_DIR
from autoresearch.values import Frozen, explain
from trainer.backends.coded import CodeFailed, check_causality
from trainer.isolation.outcome import TrialError
from trainer.spec import Checkpoint, TrialFailed, TrialOk, TrialSpec
from trainer.training.checkpoints import Checkpoints
from trainer.training.kernel_check import checking_kernels
from trainer.training.running import Run, TrainingReport

Phase: TypeAlias = Literal["whole", "train", "score"]
_HANDOVER = "trained.json"
_MOST_BYTES = 1 << 16
_CHECKED_WINDOWS = 4
_MOST_CHECKED_TOKENS = 128


class _Handover(Frozen):
    """Report of the training half, besides its weights."""

    outcome: Annotated[TrainingReport | TrialFailed | TrialError, Field(union_mode="left_to_right")]


def leave(trial_dir: Path, measure: Callable[[], TrainingReport | TrialFailed]) -> None:
    """Leave what ``measure`` returns, or the error that it raises, for the half that scores."""
    try:
        outcome: TrainingReport | TrialFailed | TrialError = measure()
    except AutoresearchError as error:
        outcome = TrialError.of(error)
    text = _Handover(outcome=outcome).model_dump_json()
    (trial_dir / SCRATCH_DIR / _HANDOVER).write_text(text, "utf-8")


def train_apart(spec: TrialSpec, trial_dir: Path, born: float) -> TrainingReport:
    """Train, and leave the weights to score in the trial's scratch directory."""
    run = Run(spec, heldout=False)
    scratch = trial_dir / SCRATCH_DIR
    checkpoints = Checkpoints(
        run.model, spec, lambda place, _: _save(run.model, scratch / f"checkpoint-{place}")
    )
    setup_s = run.set_up(born)
    with checking_kernels(run.model, run.batches):
        trained = run.train(trial_dir, checkpoints.after)
    report = run.report(trained, setup_s)
    with checkpoints.weights(Checkpoint(average=spec.average)):
        _save(run.model, scratch / "weights")
    checkpoints.visit(trained.steps)
    return report


def score_apart(spec: TrialSpec, trial_dir: Path, born: float) -> TrialOk | TrialFailed:
    """Score the weights that the training half left.

    :raises AutoresearchError: if that half failed for another reason than its config.
    """
    scratch = trial_dir / SCRATCH_DIR
    with (scratch / _HANDOVER).open("rb") as file:
        data = file.read(_MOST_BYTES)
    try:
        report = _Handover.model_validate_json(data).outcome
    except ValidationError as error:
        raise CodeFailed(f"the training process left no report ({explain(error):.200})") from error
    if isinstance(report, TrialError):
        raise report.as_exception()
    if isinstance(report, TrialFailed):
        return report
    run = Run(spec)
    began = time.perf_counter()
    _load(run.model, scratch / "weights")
    if spec.gpt.code:
        _check_causality(run, scratch / "weights")
    scored = run.scored(report.steps)
    bpbs = []
    for place in range(len(spec.checkpoints)):
        _load(run.model, scratch / f"checkpoint-{place}")
        bpbs.append(run.heldout_bpb(report.steps))
    return run.result(report, scored, tuple(bpbs), time.perf_counter() - began)


def _check_causality(run: Run, weights: Path) -> None:
    """Check the trained weights on a few windows, spread over the held-out text.

    Products in fp8 are scaled by the largest number of a whole tensor: every logit moves a little
    with a later token. So such a config is checked in bf16.
    """
    config, model, text = run.spec.gpt, run.model, run.corpus.heldout
    if config.precision == "fp8":
        config = config.model_copy(update={"precision": "bf16"})
        model = run.build(config)
        _load(model, weights)
    length = min(config.seq_len, _MOST_CHECKED_TOKENS)
    starts = np.linspace(0, len(text) - length, _CHECKED_WINDOWS).astype(int)
    windows = np.stack([text[at : at + length] for at in starts]).astype(np.int64)
    check_causality(model, torch.from_numpy(windows), config)


def _save(model: nn.Module, directory: Path) -> None:
    """Save each parameter as an array of its own: one file may be too large, a pickle is code."""
    directory.mkdir()
    for place, parameter in enumerate(model.parameters()):
        array = parameter.detach().float().cpu().numpy()
        np.save(directory / f"{place}.npy", array, allow_pickle=False)


@torch.no_grad()
def _load(model: nn.Module, directory: Path) -> None:
    """Give the model saved weights.

    :raises CodeFailed: if they are not those of such a model.
    """
    for place, parameter in enumerate(model.parameters()):
        try:
            array = np.load(directory / f"{place}.npy", allow_pickle=False)
            parameter.copy_(torch.from_numpy(array).reshape(parameter.shape))
        except (ValueError, EOFError, TypeError, RuntimeError) as error:
            raise CodeFailed(f"the trained weights cannot be read ({error})") from error
