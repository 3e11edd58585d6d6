"""The evaluation protocol: score all held-out text, every target once, alike for every config.

Other texts that the spec names are scored by the same rule.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from autoresearch.errors import CorpusError
from trainer.corpus import Corpus
from trainer.corpus.store import file_sha256
from trainer.corpus.tokenization import token_dtype
from trainer.spec import TextScore, TrialSpec
from trainer.training.schedule import Tokens, to_device
from trainer.training.train import TrialStopped

TOKENS_PER_PASS = 4096
"""Tokens scored in one forward pass on a CPU, but at least one window. No config changes it."""
TOKENS_PER_CUDA_PASS = 16_384
"""Tokens scored in one forward pass on CUDA, whose products need many tokens for full speed."""
LOGITS_PER_PASS = 1 << 28
"""Bound on tokens × vocabulary of a pass: half a GiB of bf16 logits if a model holds them all."""


@dataclass(frozen=True, slots=True)
class Evaluation:
    """The held-out negative log-likelihood, and the number of targets."""

    nll_nats: float
    """Sum over all targets, in float64."""
    tokens: int
    """Targets scored: the whole stream except its first token, a separator without context."""

    @property
    def bits_per_token(self) -> float:
        return self.nll_nats / (math.log(2) * self.tokens)

    def bits_per_byte(self, heldout_bytes: int) -> float:
        """Return sum(NLL in nats) / (ln 2 × UTF-8 bytes scored)."""
        return self.nll_nats / (math.log(2) * heldout_bytes)


@torch.inference_mode()
def evaluate(model: nn.Module, heldout: Tokens, *, seq_len: int, vocab_size: int) -> Evaluation:
    """Score ``heldout`` in windows of ``seq_len`` that share no target, the last one shorter.

    Logits have the config's training precision, which is part of what is measured (bf16 logits
    have three digits). The rest is float64: the model's log-softmax
    (:meth:`trainer.backends.Backend.build`) and the sum here. As an exception, CUDA's kernels
    take exponentials in fp32 and add them up in fp64. Separators are targets too, since the end of
    a document is something to predict.
    """
    device = next(model.parameters()).device
    model.eval()
    total = torch.zeros((), dtype=torch.float64, device=device)
    at_once = tokens_per_pass(model, device, vocab_size)
    for tokens_BT, targets_BT in windows(heldout, seq_len, max(1, at_once // seq_len)):
        nll_BT = model(to_device(tokens_BT, device), to_device(targets_BT, device))
        total += nll_BT.sum(dtype=torch.float64)
    return Evaluation(nll_nats=total.item(), tokens=len(heldout) - 1)


def tokens_per_pass(model: nn.Module, device: torch.device, vocab_size: int) -> int:
    """Return how many tokens one forward pass scores.

    A model with ``chunks_logits`` holds the logits of few tokens at a time, however long a pass is.
    On a CPU that makes no difference, so that every number stays the sum of the same products.
    """
    if device.type == "cpu":
        return min(TOKENS_PER_PASS, LOGITS_PER_PASS // vocab_size)
    if getattr(model, "chunks_logits", False):
        return TOKENS_PER_CUDA_PASS
    return min(TOKENS_PER_CUDA_PASS, LOGITS_PER_PASS // vocab_size)


def windows(stream: Tokens, seq_len: int, per_pass: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield tokens and targets, int64, of shape (up to ``per_pass``, ``seq_len``).

    The rest at the end has shape (1, fewer). Each token except the first is a target once.
    """
    whole = (len(stream) - 1) // seq_len
    for first in range(0, whole, per_pass):
        count = min(per_pass, whole - first)
        yield _pass(stream, first * seq_len, count, seq_len)
    rest = (len(stream) - 1) % seq_len
    if rest:
        yield _pass(stream, whole * seq_len, 1, rest)


def _pass(stream: Tokens, start: int, count: int, seq_len: int) -> tuple[Tensor, Tensor]:
    piece = torch.from_numpy(stream[start : start + count * seq_len + 1].astype(np.int64))
    return piece[:-1].view(count, seq_len), piece[1:].view(count, seq_len)


def train_split(spec: TrialSpec, corpus: Corpus) -> Tokens:
    """Return the part of the train split that this trial may learn from.

    :raises CorpusError: if the spec names more tokens than there are.
    """
    if spec.train_tokens is None:
        return corpus.train
    if spec.train_tokens > len(corpus.train):
        raise CorpusError(
            f"the spec trains on {spec.train_tokens:,} tokens and {spec.corpus_dir} has "
            f"{len(corpus.train):,}; set corpus_dir to the intended corpus"
        )
    return corpus.train[: spec.train_tokens]


def check_texts(spec: TrialSpec) -> None:
    """Verify, before training, the hashes of the texts to score.

    :raises CorpusError: if one differs.
    """
    for text in spec.texts:
        seen = file_sha256(Path(text.path))
        if seen != text.sha256:
            raise CorpusError(
                f"the tokens of the text {text.name} in {text.path} hash to {seen:.16} and the spec"
                f" wants {text.sha256:.16}; delete that file and ask for the text again"
            )


def score_heldout(model: torch.nn.Module, corpus: Corpus, spec: TrialSpec, step: int) -> Evaluation:
    """Score the corpus's held-out text.

    :param step: the step after which it is scored.
    :raises TrialStopped: if the loss is not finite.
    """
    return _finite(model, corpus.heldout, spec, corpus.info.vocab_size, step)


def score_texts(
    model: torch.nn.Module, corpus: Corpus, spec: TrialSpec, step: int
) -> Iterator[TextScore]:
    """Score every text that the spec names, part by part; a part's first token has no context.

    :raises TrialStopped: if a loss is not finite.
    """
    for text in spec.texts:
        dtype = token_dtype(corpus.info.dtype)
        tokens = np.memmap(text.path, dtype=dtype, mode="r", shape=(text.tokens,))
        scored, start = [], 0
        for part in text.parts:
            piece = tokens[start : start + part.tokens]
            scored.append(_finite(model, piece, spec, corpus.info.vocab_size, step))
            start += part.tokens
        whole = Evaluation(
            nll_nats=sum(part.nll_nats for part in scored),
            tokens=sum(part.tokens for part in scored),
        )
        yield TextScore(
            sha256=text.sha256,
            val_bpb=whole.bits_per_byte(text.bytes),
            val_bytes=text.bytes,
            val_tokens=whole.tokens,
            parts_bpb=tuple(
                one.bits_per_byte(part.bytes) for one, part in zip(scored, text.parts, strict=True)
            ),
        )


def _finite(
    model: torch.nn.Module, tokens: Tokens, spec: TrialSpec, vocab_size: int, step: int
) -> Evaluation:
    scored = evaluate(model, tokens, seq_len=spec.gpt.seq_len, vocab_size=vocab_size)
    if not np.isfinite(scored.nll_nats):
        raise TrialStopped(
            "nonfinite",
            f"the held-out loss after step {step} was {scored.nll_nats}; a smaller lr may hold",
            step,
        )
    return scored
