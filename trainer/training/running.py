"""Prepare a trial's process, build its model, train it, and put together its result."""

import traceback
from functools import partial
from pathlib import Path
from typing import Self

import torch
from torch import Tensor

from autoresearch.errors import AutoresearchError, CorpusError, MachineryError
from autoresearch.layout import CURVE_FILE
from trainer.backends import Backend, choose_backend
from trainer.backends.compilation import compile_training, load_kernels
from trainer.corpus import Corpus, open_corpus
from trainer.corpus.store import HELDOUT, file_sha256
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
from trainer.spec import CurvePoint, TextScore, TrialOk, TrialSpec
from trainer.training.checkpoints import Checkpoints
from trainer.training.kernel_check import compare_gradients
from trainer.training.schedule import Batches, Schedule
from trainer.training.scoring import Evaluation, train_split
from trainer.training.train import Trained, train


def prepared(spec: TrialSpec) -> tuple[torch.device, Backend]:
    """Prepare this process for the spec's device; return the device and the backend.

    :raises AutoresearchError: if that fails: no config is at fault then.
    """
    try:
        _keep_freed_memory()
        device = find_device(spec.device)
        backend = choose_backend(spec.backend, compile=spec.compile)
        backend.check(spec.gpt, device)
        if spec.threads is not None:
            torch.set_num_threads(spec.threads)
        if device.type == "cuda":
            torch.backends.cuda.enable_cudnn_sdp(spec.cudnn_attention)
            # Without this, pinned memory and other calls that name no device use the first GPU.
            torch.cuda.set_device(device.index or 0)
            cap_memory(device, spec.limits.reserve_gib)
    except AutoresearchError:
        raise
    except Exception as error:  # no config causes an error here, not even out of memory
        traceback.print_exc()
        raise no_evidence(error) from error
    return device, backend


def _keep_freed_memory() -> None:
    """Ask glibc to reuse freed tensors rather than give them back to the kernel.

    By default every step maps its larger activations again, with one page fault per 4 KiB. That
    takes 1 to 2 ms of a 25 ms step on a small model. With another C library this does nothing.
    """
    mallopt = getattr(libc(), "mallopt", None)
    if mallopt is not None:
        trim_threshold, mmap_threshold = -1, -3  # M_… of malloc.h
        mallopt(mmap_threshold, 32 << 20)  # the largest value that every glibc accepts
        mallopt(trim_threshold, 1 << 30)


def open_trial_corpus(spec: TrialSpec, *, heldout: bool = True) -> Corpus:
    """Open the corpus that the spec names, and verify its held-out tokens by their hash.

    :param heldout: False in a process that may not read them; then there are none.
    """
    corpus = open_corpus(Path(spec.corpus_dir), heldout=heldout)
    if corpus.info.sha256 != spec.corpus_sha256:
        raise CorpusError(
            f"the corpus in {spec.corpus_dir} is {corpus.info.sha256:.16} and the spec wants"
            f" {spec.corpus_sha256:.16}; set corpus_dir to the intended corpus"
        )
    if not heldout:
        return corpus
    seen = file_sha256(corpus.directory / HELDOUT)
    if seen != corpus.info.heldout_sha256:
        raise CorpusError(
            f"the held-out tokens in {spec.corpus_dir} hash to {seen:.16} where its meta.json says"
            f" {corpus.info.heldout_sha256:.16}; prepare the corpus again"
        )
    return corpus


def built(
    spec: TrialSpec, backend: Backend, corpus: Corpus, device: torch.device
) -> tuple[torch.nn.Module, Batches]:
    """Return the model with its first weights, and the batches of every step."""
    config = spec.gpt
    torch.manual_seed(spec.seed)
    model = backend.build(config, corpus.info.vocab_size, device)
    batches = Batches(
        train_split(spec, corpus),
        seed=spec.seed,
        batch_size=config.batch_size,
        seq_len=config.seq_len,
        device=device,
    )
    return model, batches


def no_evidence(error: Exception) -> MachineryError:
    """Return the error for a failure before the first step, which says nothing about the config."""
    return MachineryError(
        f"the trial failed before its first training step ({type(error).__name__}:"
        f" {first_line(error)}); see trainer.log, and run `autoresearch doctor`"
    )


def first_line(error: BaseException) -> str:
    """Return the first line of an error's message."""
    lines = str(error).strip().splitlines()
    return lines[0][:500] if lines else "no message"


class TrainingReport(Trained):
    """The fields of a result that are known once training ends."""

    setup_s: float
    peak_mem_gib: float
    peak_reserved_gib: float | None

    @classmethod
    def of(cls, trained: Trained, device: torch.device, setup_s: float) -> Self:
        """Return the report of a training run in this process."""
        return cls(
            **trained.model_dump(),
            setup_s=setup_s,
            peak_mem_gib=peak_mem_gib(device),
            peak_reserved_gib=peak_reserved_gib(device),
        )


def trial_ok(
    spec: TrialSpec,
    corpus: Corpus,
    report: TrainingReport,
    heldout: Evaluation,
    device: torch.device,
    *,
    texts: tuple[TextScore, ...],
    checkpoints_bpb: tuple[float, ...],
    eval_s: float,
) -> TrialOk:
    """Return the trial's result."""
    return TrialOk(
        val_bpb=heldout.bits_per_byte(corpus.info.heldout_bytes),
        val_bits_per_token=heldout.bits_per_token,
        val_bytes=corpus.info.heldout_bytes,
        val_tokens=heldout.tokens,
        params=parameter_count(spec.gpt, corpus.info.vocab_size),
        eval_s=eval_s,
        backend=spec.backend,
        device=device_name(device),
        precision=spec.gpt.precision,
        texts=texts,
        checkpoints_bpb=checkpoints_bpb,
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

        def append(point: CurvePoint) -> None:
            curve.write(point.model_dump_json() + "\n")
            curve.flush()

        return train(
            model,
            batches,
            Schedule(spec.gpt, spec.budget, spec.horizon_steps, spec.cooldown_steps),
            log_every=spec.log_every,
            prune=spec.prune,
            report=append,
            after_step=checkpoints.after,
        )


def make_code(spec: TrialSpec, model: torch.nn.Module, batch: tuple[Tensor, Tensor]) -> None:
    """Compile what the spec's steps need, before their time counts, and check it if asked to."""
    if spec.compile:
        compile_training(model, batch)
    elif spec.makes_code:
        _load_kernels(spec, model, batch)
    if spec.check_kernels:
        compare_gradients(model, batch)


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
