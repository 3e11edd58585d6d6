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
from torch import Tensor, nn

from autoresearch.errors import AutoresearchError
from autoresearch.layout import SCRATCH_DIR
from autoresearch.values import Frozen, explain
from trainer.backends.coded import CodeFailed, check_causality
from trainer.isolation.outcome import TrialError
from trainer.spec import Checkpoint, TrialFailed, TrialOk, TrialSpec
from trainer.training.checkpoints import Checkpoints
from trainer.training.kernel_check import checking_kernels
from trainer.training.running import (
    TrainingReport,
    built,
    make_code,
    open_trial_corpus,
    prepared,
    train_model,
    trial_ok,
)
from trainer.training.schedule import Tokens
from trainer.training.scoring import check_texts, score_heldout, score_texts

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
    device, backend = prepared(spec)
    corpus = open_trial_corpus(spec, heldout=False)
    model, batches = built(spec, backend, corpus, device)
    make_code(spec, model, batches(1))
    scratch = trial_dir / SCRATCH_DIR
    checkpoints = _KeptCheckpoints(model, corpus, spec)
    checkpoints.scratch = scratch
    setup_s = max(0.0, time.monotonic() - born)
    with checking_kernels(model, batches):
        trained = train_model(spec, trial_dir, model, batches, checkpoints)
    report = TrainingReport.of(trained, device, setup_s)
    with checkpoints.weights(Checkpoint(average=spec.average)):
        _save(model, scratch / "weights")
    checkpoints.at_the_end(trained.steps)
    return report


def score_apart(spec: TrialSpec, trial_dir: Path, born: float) -> TrialOk | TrialFailed:
    """Score the weights that the training half left.

    :raises AutoresearchError: if that half failed for another reason than its config.
    """
    scratch = trial_dir / SCRATCH_DIR
    report = _handed_over(scratch / _HANDOVER)
    if not isinstance(report, TrainingReport):
        return report
    device, backend = prepared(spec)
    corpus = open_trial_corpus(spec)
    check_texts(spec)
    model, _ = built(spec, backend, corpus, device)
    began = time.perf_counter()
    _load(model, scratch / "weights")
    if spec.gpt.code:
        exact, checked = spec, model
        if spec.gpt.precision == "fp8":
            # Products in fp8 are scaled by the largest number of a whole tensor: every logit moves
            # a little with a later token.
            config = spec.gpt.model_copy(update={"precision": "bf16"})
            exact = spec.model_copy(update={"config": config})
            checked, _ = built(exact, backend, corpus, device)
            _load(checked, scratch / "weights")
        check_causality(checked, stream_windows(corpus.heldout, exact.gpt.seq_len), exact.gpt)
    heldout = score_heldout(model, corpus, spec, report.steps)
    texts = tuple(score_texts(model, corpus, spec, report.steps))
    bpbs = []
    for place in range(len(spec.checkpoints)):
        _load(model, scratch / f"checkpoint-{place}")
        scored = score_heldout(model, corpus, spec, report.steps)
        bpbs.append(scored.bits_per_byte(corpus.info.heldout_bytes))
    return trial_ok(
        spec,
        corpus,
        report,
        heldout,
        device,
        texts=texts,
        checkpoints_bpb=tuple(bpbs),
        eval_s=time.perf_counter() - began,
    )


class _KeptCheckpoints(Checkpoints):
    """Saves the weights of each checkpoint where :class:`Checkpoints` would score them."""

    scratch: Path

    def _score(self, step: int) -> None:
        for place, checkpoint in enumerate(self._spec.checkpoints):
            if self._step(checkpoint) == step:
                with self.weights(checkpoint):
                    _save(self._model, self.scratch / f"checkpoint-{place}")

    def at_the_end(self, step: int) -> tuple[float, ...]:
        """Save the last step's checkpoints."""
        self._score(step)
        return ()


def stream_windows(tokens: Tokens, seq_len: int) -> Tensor:
    """Return a few windows of a text, spread over it."""
    length = min(seq_len, _MOST_CHECKED_TOKENS)
    starts = np.linspace(0, len(tokens) - length, _CHECKED_WINDOWS).astype(int)
    return torch.from_numpy(np.stack([tokens[at : at + length] for at in starts]).astype(np.int64))


def _handed_over(path: Path) -> TrainingReport | TrialFailed:
    """Return what the training half left, as input that is not trusted.

    :raises AutoresearchError: the error that it met.
    """
    with path.open("rb") as file:
        data = file.read(_MOST_BYTES)
    try:
        outcome = _Handover.model_validate_json(data).outcome
    except ValidationError as error:
        raise CodeFailed(f"the training process left no report ({explain(error):.200})") from error
    if isinstance(outcome, TrialError):
        raise outcome.as_exception()
    return outcome


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
