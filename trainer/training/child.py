"""Run a trial in its own process: check the spec, train, score and return a result.

The process writes only curve.jsonl, in the trial's directory. It starts no process, needs no
network, and imports nothing that this module has not imported.
"""

from __future__ import annotations

import errno
import os
import time
import traceback
from functools import partial
from pathlib import Path
from typing import TextIO

import psutil
import torch
from torch import Tensor

from autoresearch.errors import AutoresearchError, CorpusError, MachineryError
from autoresearch.layout import CURVE_FILE
from trainer.backends import Backend, choose_backend
from trainer.backends.compilation import compile_training, is_compiler_failure, load_kernels
from trainer.corpus import Corpus, open_corpus
from trainer.corpus.store import heldout_sha256
from trainer.isolation.kernel.libc import libc
from trainer.machine.device import (
    cap_memory,
    device_name,
    find_device,
    peak_mem_gib,
    peak_reserved_gib,
)
from trainer.memory.estimate import parameter_count
from trainer.memory.out_of_memory import free_device_bytes, is_out_of_memory
from trainer.spec import Checkpoint, CurvePoint, TrialFailed, TrialOk, TrialSpec
from trainer.training.checkpoints import Checkpoints
from trainer.training.data import Batches
from trainer.training.kernel_check import checking_kernels
from trainer.training.schedule import Schedule
from trainer.training.scoring import check_texts, score_heldout, score_texts, train_split
from trainer.training.train import TrialStopped, train

_MACHINERY_ERRNOS = {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO, errno.EACCES, errno.ENOENT}
_MACHINERY_ERRNOS |= {errno.EXDEV}  # a rename that an old Landlock refuses


def run_trial(
    spec: TrialSpec, trial_dir: Path, *, born: float | None = None
) -> TrialOk | TrialFailed:
    """Run the trial and return its result, a success or a failure of the config.

    ``born`` is the monotonic time at which the process began; None asks the operating system.

    :raises AutoresearchError: if the spec, the corpus or the machine is at fault and not the
        config; then there is no result.
    """
    born = _birth() if born is None else born
    try:
        return _classified(spec, trial_dir, born)
    except OSError as error:
        raise refused_by_the_system(error, trial_dir) from error


def refused_by_the_system(error: OSError, trial_dir: Path) -> MachineryError:
    """Return the error for an operation that the system refused, with its path if known."""
    if not trial_dir.is_dir():
        return MachineryError(
            f"the trial directory {trial_dir} is not there; make it, or choose another directory"
        )
    name = None if isinstance(error.filename, int | None) else Path(os.fsdecode(error.filename))
    if name is not None and not name.absolute().is_relative_to(trial_dir.absolute()):
        traceback.print_exception(error)
        return MachineryError(
            f"the trial cannot use {name} ({error.strerror}); put that right and run it again, or"
            " see in trainer.log what asked for it"
        )
    if name is None and error.errno == errno.ENOENT:
        traceback.print_exception(error)
        return MachineryError(
            f"something that the trial needs is missing, and was not named ({error.strerror});"
            " see in trainer.log what asked for it"
        )
    return MachineryError(
        f"cannot write in the trial directory {trial_dir} ({error.strerror});"
        " free some space there or choose another directory"
    )


def _classified(spec: TrialSpec, trial_dir: Path, born: float) -> TrialOk | TrialFailed:
    """Return the trial's result; turn each failure that the config caused into one."""
    try:
        return _measure(spec, trial_dir, born)
    except AutoresearchError:
        raise
    except TrialStopped as stop:
        return _failed(spec, TrialFailed(status=stop.status, message=str(stop), steps=stop.steps))
    except Exception as error:  # the process boundary: every other exception is a crash
        if isinstance(error, OSError) and error.errno in _MACHINERY_ERRNOS:
            raise
        traceback.print_exc()
        if is_out_of_memory(error, partial(free_device_bytes, torch.device(spec.device))):
            message = f"out of memory on {spec.device}: {_first_line(error)}"
            return _failed(spec, TrialFailed(status="oom", message=message))
        if is_compiler_failure(error):
            what = "the blocks" if spec.compile else "the kernels of the torch backend"
            how = " or go without compile" if spec.compile else " and what `doctor` says"
            raise MachineryError(
                f"{what} could not be compiled on this machine ({_first_line(error)});"
                f" see trainer.log,{how}"
            ) from error
        if not _has_trained(trial_dir):
            raise _no_evidence(error) from error
        message = f"the trainer crashed with {type(error).__name__}: {_first_line(error)}"
        return _failed(spec, TrialFailed(status="crash", message=message))


def _measure(spec: TrialSpec, trial_dir: Path, born: float) -> TrialOk:
    config = spec.gpt
    try:
        device, backend = _prepared(spec)
    except AutoresearchError:
        raise
    except Exception as error:  # no config causes an error here, not even out of memory
        traceback.print_exc()
        raise _no_evidence(error) from error
    corpus = _open_corpus(spec)
    check_texts(spec)
    torch.manual_seed(spec.seed)
    model = backend.build(config, corpus.info.vocab_size, device)
    batches = Batches(
        train_split(spec, corpus),
        seed=spec.seed,
        batch_size=config.batch_size,
        seq_len=config.seq_len,
        device=device,
    )
    if spec.compile:
        compile_training(model, batches(1))
    elif spec.makes_code:
        _load_kernels(spec, model, batches(1))
    checkpoints = Checkpoints(model, corpus, spec)
    setup_s = time.monotonic() - born
    with checking_kernels(model, batches):
        with (trial_dir / CURVE_FILE).open("w", encoding="utf-8") as curve:
            trained = train(
                model,
                batches,
                Schedule(config, spec.budget, spec.horizon_steps, spec.cooldown_steps),
                log_every=spec.log_every,
                prune=spec.prune,
                report=lambda point: _append(curve, point),
                after_step=checkpoints.after if checkpoints.needed else None,
            )
        began = time.perf_counter()
        with checkpoints.weights(Checkpoint(average=spec.average)):
            scored = score_heldout(model, corpus, spec, trained.steps)
            texts = tuple(score_texts(model, corpus, spec, trained.steps))
        checkpoint_scores = checkpoints.at_the_end(trained.steps)
    eval_s = time.perf_counter() - began
    return TrialOk(
        val_bpb=scored.bits_per_byte(corpus.info.heldout_bytes),
        val_bits_per_token=scored.bits_per_token,
        val_bytes=corpus.info.heldout_bytes,
        val_tokens=scored.tokens,
        train_loss_first=trained.loss_first,
        train_loss_last=trained.loss_last,
        steps=trained.steps,
        tokens=trained.tokens,
        params=parameter_count(config, corpus.info.vocab_size),
        step_ms=trained.step_ms,
        tokens_per_s=trained.tokens / trained.train_s,
        train_s=trained.train_s,
        eval_s=eval_s,
        setup_s=max(0.0, setup_s),
        peak_mem_gib=peak_mem_gib(device),
        peak_reserved_gib=peak_reserved_gib(device),
        backend=backend.name,
        device=device_name(device),
        precision=config.precision,
        texts=texts,
        checkpoints_bpb=checkpoint_scores,
    )


# --- before the first step --------------------------------------------------------------------


def _prepared(spec: TrialSpec) -> tuple[torch.device, Backend]:
    """Prepare this process for the spec's device; return the device and the backend."""
    _keep_freed_memory()
    device = find_device(spec.device)
    backend = choose_backend(spec.backend, spec.fp8, compile=spec.compile)
    backend.check(spec.gpt, device)
    if spec.threads is not None:
        torch.set_num_threads(spec.threads)
    if device.type == "cuda":
        torch.backends.cuda.enable_cudnn_sdp(spec.cudnn_attention)
        # Without this, pinned memory and other calls that name no device use the first GPU.
        torch.cuda.set_device(device.index or 0)
        cap_memory(device, spec.limits.reserve_gib)
    return device, backend


def _open_corpus(spec: TrialSpec) -> Corpus:
    """Open the corpus that the spec names, and verify its held-out tokens by their hash."""
    corpus = open_corpus(Path(spec.corpus_dir))
    if corpus.info.sha256 != spec.corpus_sha256:
        raise CorpusError(
            f"the corpus in {spec.corpus_dir} is {corpus.info.sha256:.16} and the spec wants"
            f" {spec.corpus_sha256:.16}; point corpus_dir at the corpus that was meant"
        )
    seen = heldout_sha256(corpus.directory)
    if seen != corpus.info.heldout_sha256:
        raise CorpusError(
            f"the held-out tokens in {spec.corpus_dir} hash to {seen:.16} where its meta.json says"
            f" {corpus.info.heldout_sha256:.16}; prepare the corpus again"
        )
    return corpus


def _keep_freed_memory() -> None:
    """Ask glibc to reuse freed tensors rather than give them back to the kernel.

    By default every step maps its larger activations anew, with one page fault per 4 KiB. That
    takes 1 to 2 ms of a 25 ms step on a small model. With another C library this does nothing.
    """
    mallopt = getattr(libc(), "mallopt", None)
    if mallopt is not None:
        trim_threshold, mmap_threshold = -1, -3  # M_… of malloc.h
        mallopt(mmap_threshold, 32 << 20)  # the largest value that every glibc accepts
        mallopt(trim_threshold, 1 << 30)


def _birth() -> float:
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


def _load_kernels(spec: TrialSpec, model: torch.nn.Module, batch: tuple[Tensor, Tensor]) -> None:
    """Compile and run the kernels, which are the same for every config.

    :raises MachineryError: if they cannot be compiled or do not run, unless memory ran out.
    """
    try:
        load_kernels(model, batch)
    except Exception as error:
        if is_out_of_memory(error, partial(free_device_bytes, torch.device(spec.device))):
            raise
        traceback.print_exc()
        raise MachineryError(
            f"the kernels of the torch backend do not work on this machine ({type(error).__name__}:"
            f" {_first_line(error)}); see trainer.log and what `autoresearch doctor` says"
        ) from error


# --- after it ---------------------------------------------------------------------------------


def _append(curve: TextIO, point: CurvePoint) -> None:
    curve.write(point.model_dump_json() + "\n")
    curve.flush()


def _has_trained(trial_dir: Path) -> bool:
    """Return whether the first step was done, which the curve begins with."""
    try:
        return (trial_dir / CURVE_FILE).stat().st_size > 0
    except FileNotFoundError:
        return False


def _no_evidence(error: Exception) -> MachineryError:
    return MachineryError(
        f"the trial failed before its first training step ({type(error).__name__}:"
        f" {_first_line(error)}); see trainer.log, and run `autoresearch doctor`"
    )


def _failed(spec: TrialSpec, failure: TrialFailed) -> TrialFailed:
    """Add the trial's peak memory to a failure."""
    peak = peak_mem_gib(torch.device(spec.device))
    return failure.model_copy(update={"peak_mem_gib": peak})


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0][:500] if lines else "no message"
