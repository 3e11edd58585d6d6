"""Run a trial in its own process: check the spec, train, score and return a result.

The process writes only curve.jsonl, in the trial's directory. It starts no process, needs no
network, and imports nothing that this module has not imported.

Trials of a menu with code knobs train in one process and score in another, which alone may read the
held-out text. The fork server's child forks before anything of the config is read
(:mod:`trainer.isolation.trial_process`). One half trains, in a sandbox that keeps the held-out text
and every other text to score closed, and leaves its weights as plain arrays. The other half has run
nothing of the config when it loads them, builds the model again, and computes the loss itself.
Optimizer rules, schedules and auxiliary losses never run where text is scored.
"""

import errno
import os
import time
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated, Literal, TypeAlias, TypeVar

import numpy as np
import psutil
import torch
from pydantic import Field, ValidationError
from torch import nn

from autoresearch.errors import AutoresearchError, MachineryError
from autoresearch.layout import CURVE_FILE, SCRATCH_DIR
from autoresearch.values import Frozen, explain
from trainer.backends.coded import CodeFailed, check_causality
from trainer.backends.compilation import is_compiler_failure
from trainer.isolation.outcome import TrialError
from trainer.machine.device import free_device_bytes, is_out_of_memory, peak_mem_gib
from trainer.schema import Checkpoint, TrialFailed, TrialOk, TrialSpec
from trainer.training.checkpoints import Checkpoints
from trainer.training.kernel_check import checking_kernels
from trainer.training.running import Run, TrainingReport, first_line, no_evidence
from trainer.training.train import TrialStopped

Phase: TypeAlias = Literal["whole", "train", "score"]
Result = TypeVar("Result", bound=TrialOk | TrainingReport | TrialFailed)
_MACHINERY_ERRNOS = {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO, errno.EACCES, errno.ENOENT}
_MACHINERY_ERRNOS |= {errno.EXDEV}  # a rename that an old Landlock refuses


def run_trial(
    spec: TrialSpec, trial_dir: Path, *, born: float | None = None, phase: Phase = "whole"
) -> TrialOk | TrialFailed | None:
    """Run the trial and return its result, a success or a failure of the config.

    ``born`` is the monotonic time at which the process began; None asks the operating system.
    ``phase`` is for trials that are scored apart: "train" leaves what was trained for "score", and
    returns None.

    :raises AutoresearchError: if the spec, the corpus or the machine is at fault and not the
        config; then there is no result.
    """
    born = born_at() if born is None else born
    try:
        if phase == "train":
            leave(trial_dir, lambda: _classified(spec, trial_dir, born, train_apart))
            return None
        if phase == "score":
            return _classified(spec, trial_dir, born, score_apart)
        return _classified(spec, trial_dir, born, _train_and_score)
    except OSError as error:
        raise refused_by_system(error, trial_dir) from error


def refused_by_system(error: OSError, trial_dir: Path) -> MachineryError:
    """Return the error for an operation that the system refused, with its path if known."""
    if not trial_dir.is_dir():
        return MachineryError(
            f"the trial directory {trial_dir} is not there; make it, or choose another directory"
        )
    name = None if isinstance(error.filename, int | None) else Path(os.fsdecode(error.filename))
    elsewhere = name is not None and not name.absolute().is_relative_to(trial_dir.absolute())
    if elsewhere or (name is None and error.errno == errno.ENOENT):
        traceback.print_exception(error)
        return MachineryError(
            f"the trial cannot use {name or 'a file'} ({error.strerror}); fix that and run it"
            " again, or see in trainer.log what asked for it"
        )
    return MachineryError(
        f"cannot write in the trial directory {trial_dir} ({error.strerror});"
        " free some space there or choose another directory"
    )


def _classified(
    spec: TrialSpec,
    trial_dir: Path,
    born: float,
    measure: Callable[[TrialSpec, Path, float], Result],
) -> Result | TrialFailed:
    """Return what ``measure`` returns; turn each failure that the config caused into a result."""
    try:
        return measure(spec, trial_dir, born)
    except AutoresearchError:
        raise
    except TrialStopped as stop:
        failure = TrialFailed(status=stop.status, message=str(stop), steps=stop.steps)
    except CodeFailed as error:
        failure = TrialFailed(status="crash", message=str(error))
    except Exception as error:  # the process boundary: every other exception is a crash
        if isinstance(error, OSError) and error.errno in _MACHINERY_ERRNOS:
            raise
        traceback.print_exc()
        curve = trial_dir / CURVE_FILE
        if is_out_of_memory(error, partial(free_device_bytes, torch.device(spec.device))):
            message = f"out of memory on {spec.device}: {first_line(error)}"
            failure = TrialFailed(status="oom", message=message)
        elif is_compiler_failure(error):
            raise MachineryError(
                f"the kernels of the {spec.backend} backend could not be compiled on this machine"
                f" ({first_line(error)}); see trainer.log and what `doctor` says"
            ) from error
        elif not spec.gpt.code and not (curve.is_file() and curve.stat().st_size > 0):
            raise no_evidence(error) from error
        else:
            message = f"the trainer crashed with {type(error).__name__}: {first_line(error)}"
            failure = TrialFailed(status="crash", message=message)
    peak = peak_mem_gib(torch.device(spec.device))
    return failure.model_copy(update={"peak_mem_gib": peak})


def _train_and_score(spec: TrialSpec, trial_dir: Path, born: float) -> TrialOk:
    run = Run(spec)
    found: dict[int, float] = {}

    def score(place: int, step: int) -> None:
        found[place] = run.heldout_bpb(step)
        run.model.train()

    checkpoints = Checkpoints(run.model, spec, score)
    setup_s = run.set_up(born)
    with checking_kernels(run.model, run.batches):
        trained = run.train(trial_dir, checkpoints.after)
        began = time.perf_counter()
        with checkpoints.weights(Checkpoint(average=spec.average)):
            scored = run.scored(trained.steps)
        checkpoints.visit(trained.steps)
    eval_s = time.perf_counter() - began
    bpbs = tuple(found[place] for place in range(len(spec.checkpoints)))
    return run.result(run.report(trained, setup_s), scored, bpbs, eval_s)


def born_at() -> float:
    """Return the monotonic time at which this process began."""
    try:
        # Field 22 of proc_pid_stat(5). The process name, before it, may hold any character, so
        # split after the last ")".
        fields = Path("/proc/self/stat").read_bytes().rpartition(b")")[2].split()
        began_s = int(fields[19]) / os.sysconf("SC_CLK_TCK")
        age_s = time.clock_gettime(time.CLOCK_BOOTTIME) - began_s
    except OSError:  # not on Linux
        age_s = time.time() - psutil.Process().create_time()
    return time.monotonic() - age_s


# --- training in one process, scoring in another -------------------------------------------------

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
        _check_causality(run)
    scored = run.scored(report.steps)
    bpbs = []
    for place in range(len(spec.checkpoints)):
        _load(run.model, scratch / f"checkpoint-{place}")
        bpbs.append(run.heldout_bpb(report.steps))
    return run.result(report, scored, tuple(bpbs), time.perf_counter() - began)


def _check_causality(run: Run) -> None:
    """Check the trained weights on a few windows, spread over the held-out text."""
    config, text = run.spec.gpt, run.corpus.heldout
    length = min(config.seq_len, _MOST_CHECKED_TOKENS)
    starts = np.linspace(0, len(text) - length, _CHECKED_WINDOWS).astype(int)
    windows = np.stack([text[at : at + length] for at in starts]).astype(np.int64)
    check_causality(run.model, torch.from_numpy(windows), config)


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
