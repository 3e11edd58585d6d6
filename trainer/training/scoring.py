"""Score a trained model on the corpus's held-out text, and on other texts that the spec names."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch

from autoresearch.errors import CorpusError
from trainer.corpus import Corpus
from trainer.corpus.store import heldout_sha256
from trainer.corpus.tokenization import token_dtype
from trainer.spec import TextScore, TrialSpec
from trainer.training.data import Tokens
from trainer.training.evaluate import Evaluation, evaluate
from trainer.training.train import TrialStopped


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
        seen = heldout_sha256(Path(text.path))
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
