"""One trial's run in this process: prepare it, build the model, train it, score it."""

import time
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from autoresearch.errors import AutoresearchError, CorpusError, MachineryError
from autoresearch.layout import CURVE_FILE
from trainer.backends import Backend, choose_backend
from trainer.backends.compilation import load_kernels
from trainer.corpus import open_corpus
from trainer.corpus.store import HELDOUT, file_sha256
from trainer.corpus.tokenization import token_dtype
from trainer.isolation.kernel.libc import libc
from trainer.machine.device import (
    cap_memory,
    device_name,
    find_device,
    free_device_bytes,
    is_out_of_memory,
    peak_mem_gib,
    peak_reserved_gib,
)
from trainer.memory.estimate import parameter_count
from trainer.schema import Config, CurvePoint, TextScore, TrialOk, TrialSpec
from trainer.training.kernel_check import compare_gradients
from trainer.training.schedule import Batches, Schedule, Tokens
from trainer.training.scoring import Evaluation, evaluate
from trainer.training.train import Trained, TrialStopped, train


class TrainingReport(Trained):
    """The fields of a result that are known once training ends."""

    setup_s: float
    peak_mem_gib: float
    peak_reserved_gib: float | None


class Run:
    """A trial's device, corpus, model and batches."""

    def __init__(self, spec: TrialSpec, *, heldout: bool = True) -> None:
        """Prepare this process, verify the tokens to score by their hashes, and build the model.

        :param heldout: False in a process that may not read the tokens to score.
        :raises AutoresearchError: if something else than the config is at fault.
        """
        self.spec = spec
        self._device, self._backend = prepared(spec)
        self.corpus = open_corpus(Path(spec.corpus_dir), heldout=heldout)
        info = self.corpus.info
        if info.sha256 != spec.corpus_sha256:
            raise CorpusError(
                f"the corpus in {spec.corpus_dir} is {info.sha256:.16} and the spec wants"
                f" {spec.corpus_sha256:.16}; set corpus_dir to the intended corpus"
            )
        if heldout:
            wanted = {self.corpus.directory / HELDOUT: info.heldout_sha256}
            wanted |= {Path(text.path): text.sha256 for text in spec.texts}
            for path, sha256 in wanted.items():
                if (seen := file_sha256(path)) != sha256:
                    own = path.name == HELDOUT
                    fix = "prepare the corpus again" if own else "delete it, ask for the text again"
                    raise CorpusError(
                        f"the tokens to score in {path} hash to {seen:.16} and not to {sha256:.16};"
                        f" {fix}"
                    )
        if (spec.train_tokens or 0) > len(self.corpus.train):
            raise CorpusError(
                f"the spec trains on {spec.train_tokens:,} tokens and {spec.corpus_dir} has "
                f"{len(self.corpus.train):,}; set corpus_dir to the intended corpus"
            )
        self.model = self.build(spec.gpt)
        self.batches = Batches(
            self.corpus.train[: spec.train_tokens],
            seed=spec.seed,
            batch_size=spec.gpt.batch_size,
            seq_len=spec.gpt.seq_len,
            device=self._device,
        )

    def build(self, config: Config) -> nn.Module:
        """Return a model with the seed's first weights."""
        torch.manual_seed(self.spec.seed)
        return self._backend.build(config, self.corpus.info.vocab_size, self._device)

    def train(self, trial_dir: Path, after_step: Callable[[int], None]) -> Trained:
        """Train the model by the spec's schedule, and write the curve."""
        spec = self.spec
        with (trial_dir / CURVE_FILE).open("w", encoding="utf-8") as curve:

            def append(point: CurvePoint) -> None:
                curve.write(point.model_dump_json() + "\n")
                curve.flush()

            return train(
                self.model,
                self.batches,
                Schedule(spec.gpt, spec.budget, spec.horizon_steps, spec.cooldown_steps),
                log_every=spec.log_every,
                prune=spec.prune,
                report=append,
                after_step=after_step,
            )

    def report(self, trained: Trained, setup_s: float) -> TrainingReport:
        """Return the measurements of a training run in this process."""
        return TrainingReport(
            **trained.model_dump(),
            setup_s=setup_s,
            peak_mem_gib=peak_mem_gib(self._device),
            peak_reserved_gib=peak_reserved_gib(self._device),
        )

    def score(self, tokens: Tokens, step: int) -> Evaluation:
        """Score a text after ``step``.

        :raises TrialStopped: if the loss is not finite.
        """
        vocab_size = self.corpus.info.vocab_size
        scored = evaluate(self.model, tokens, seq_len=self.spec.gpt.seq_len, vocab_size=vocab_size)
        if not np.isfinite(scored.nll_nats):
            raise TrialStopped(
                "nonfinite",
                f"the held-out loss after step {step} was {scored.nll_nats}; a smaller lr may hold",
                step,
            )
        return scored

    def heldout_bpb(self, step: int) -> float:
        """Return the bits per byte of the corpus' held-out text; see :meth:`score`."""
        return self.score(self.corpus.heldout, step).bits_per_byte(self.corpus.info.heldout_bytes)

    def scored(self, step: int) -> tuple[Evaluation, tuple[TextScore, ...]]:
        """Score the corpus' held-out text and every text that the spec names, part by part; a
        part's first token has no context. See :meth:`score`."""
        heldout, texts = self.score(self.corpus.heldout, step), []
        for text in self.spec.texts:
            dtype = token_dtype(self.corpus.info.dtype)
            tokens = np.memmap(text.path, dtype=dtype, mode="r", shape=(text.tokens,))
            ends = np.cumsum([part.tokens for part in text.parts])
            parts = [self.score(piece, step) for piece in np.split(tokens, ends[:-1])]
            whole = Evaluation(
                nll_nats=sum(part.nll_nats for part in parts),
                tokens=sum(part.tokens for part in parts),
            )
            texts.append(
                TextScore(
                    sha256=text.sha256,
                    val_bpb=whole.bits_per_byte(text.bytes),
                    val_bytes=text.bytes,
                    val_tokens=whole.tokens,
                    parts_bpb=tuple(
                        one.bits_per_byte(part.bytes)
                        for one, part in zip(parts, text.parts, strict=True)
                    ),
                )
            )
        return heldout, tuple(texts)

    def result(
        self,
        report: TrainingReport,
        scored: tuple[Evaluation, tuple[TextScore, ...]],
        checkpoints_bpb: tuple[float, ...],
        eval_s: float,
    ) -> TrialOk:
        """Return the trial's result."""
        (heldout, texts), info = scored, self.corpus.info
        return TrialOk(
            val_bpb=heldout.bits_per_byte(info.heldout_bytes),
            val_bits_per_token=heldout.bits_per_token,
            val_bytes=info.heldout_bytes,
            val_tokens=heldout.tokens,
            params=parameter_count(self.spec.gpt, info.vocab_size),
            eval_s=eval_s,
            backend=self.spec.backend,
            device=device_name(self._device),
            precision=self.spec.gpt.precision,
            texts=texts,
            checkpoints_bpb=checkpoints_bpb,
            **report.model_dump(),
        )

    def set_up(self, born: float) -> float:
        """Compile what the steps need, before their time counts; return the seconds since
        ``born``."""
        make_code(self.spec, self.model, self.batches(1))
        return max(0.0, time.monotonic() - born)


def prepared(spec: TrialSpec) -> tuple[torch.device, Backend]:
    """Prepare this process for the spec's device; return the device and the backend.

    :raises AutoresearchError: if that fails: no config is at fault then.
    """
    try:
        # Have glibc reuse freed tensors. By default every step maps its larger activations again,
        # with one page fault per 4 KiB: 1 to 2 ms of a 25 ms step. Other C libraries have no
        # mallopt.
        mallopt = getattr(libc(), "mallopt", None)
        if mallopt is not None:
            trim_threshold, mmap_threshold = -1, -3  # M_… of malloc.h
            mallopt(mmap_threshold, 32 << 20)  # the largest value that every glibc accepts
            mallopt(trim_threshold, 1 << 30)
        device = find_device(spec.device)
        backend = choose_backend(spec.backend)
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


def make_code(spec: TrialSpec, model: nn.Module, batch: tuple[Tensor, Tensor]) -> None:
    """Compile what the spec's steps need, and check it if asked to.

    :raises MachineryError: if kernels, which are the same for every config, cannot be compiled or
        do not run, unless memory ran out.
    """
    if spec.makes_code:
        try:
            load_kernels(model, batch)
        except Exception as error:
            full = is_out_of_memory(error, partial(free_device_bytes, torch.device(spec.device)))
            if full or spec.gpt.code:  # its own functions run here for the first time on a device
                raise
            traceback.print_exc()
            raise MachineryError(
                f"the kernels of the {spec.backend} backend do not work on this machine"
                f" ({type(error).__name__}: {first_line(error)}); see trainer.log and what"
                " `autoresearch doctor` says"
            ) from error
    if spec.check_kernels:
        compare_gradients(model, batch)


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
