"""Prepare a trial's process, open its corpus and build its model."""

from __future__ import annotations

import traceback
from pathlib import Path

import torch

from autoresearch.errors import AutoresearchError, CorpusError, MachineryError
from trainer.backends import Backend, choose_backend
from trainer.corpus import Corpus, open_corpus
from trainer.corpus.store import heldout_sha256
from trainer.isolation.kernel.libc import libc
from trainer.machine.device import cap_memory, find_device
from trainer.spec import TrialSpec
from trainer.training.data import Batches
from trainer.training.scoring import train_split


def prepared(spec: TrialSpec) -> tuple[torch.device, Backend]:
    """Prepare this process for the spec's device; return the device and the backend.

    :raises AutoresearchError: if that fails: no config is at fault then.
    """
    try:
        return _prepared(spec)
    except AutoresearchError:
        raise
    except Exception as error:  # no config causes an error here, not even out of memory
        traceback.print_exc()
        raise no_evidence(error) from error


def _prepared(spec: TrialSpec) -> tuple[torch.device, Backend]:
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
    seen = heldout_sha256(corpus.directory)
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
