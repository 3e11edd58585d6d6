"""Provide texts for corpora: distinct, of known size, the same ones every time."""

import random
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from trainer.corpus import Corpus

SYLLABLES = "ta re mi lo sun kar ben do pil é ö ñ 学 習 🙂".split()


def _words() -> list[str]:
    rng = random.Random("words")
    return ["".join(rng.choices(SYLLABLES, k=rng.randint(1, 4))) for _ in range(500)]


def make_texts(count: int, *, size: int = 400, seed: int = 0) -> list[str]:
    """Return ``count`` distinct texts of about ``size`` characters each."""
    rng = random.Random(seed)
    vocabulary = _words()
    texts = []
    for number in range(count):
        words = rng.choices(vocabulary, k=size // 6)
        lines = [" ".join(words[i : i + 9]) for i in range(0, len(words), 9)]
        texts.append(f"text {seed}.{number}\n" + "\n".join(lines) + "\n")
    return texts


def write_folder(folder: Path, texts: list[str]) -> Path:
    """Write one file per text."""
    folder.mkdir(parents=True, exist_ok=True)
    for number, text in enumerate(texts):
        (folder / f"{number:04d}.txt").write_text(text, "utf-8")
    return folder


def corpus_texts(corpus: Corpus, part: str) -> Iterator[str]:
    """Yield the text of each document of ``train`` or ``heldout``, decoded from its tokens."""
    tokenizer = corpus.tokenizer()
    tokens = corpus.train if part == "train" else corpus.heldout
    starts = np.flatnonzero(tokens == corpus.info.separator_id)
    for start, end in zip(starts, [*starts[1:], len(tokens)], strict=True):
        yield tokenizer.decode(np.asarray(tokens[start + 1 : end])).decode()
