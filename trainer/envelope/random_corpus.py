"""Create a corpus of random tokens: a sweep measures speed and size, not quality."""

from pathlib import Path

import numpy as np
from tokenizers import Tokenizer as HfTokenizer
from tokenizers import models, pre_tokenizers

from trainer.corpus.store import Corpus, intact_corpus, publish, workspace
from trainer.corpus.tokenization import Tokens, dtype_name, parse_tokenizer, token_dtype, vocab_size

TRAIN_TOKENS = 1 << 18
HELDOUT_TOKENS = 256
"""Scoring them costs one short pass, whose memory is below that of any training step."""


def vocabulary_of(tokenizer: str) -> int:
    """Return the number of ids of the tokenizer ``bytes``, ``bpe:VOCAB`` or ``file:PATH``, with the
    separator.

    Nothing is trained, so for a BPE it is the requested number.

    :raises CorpusError: if there is no such tokenizer.
    """
    recipe = parse_tokenizer(tokenizer)
    if tokenizer.startswith("bpe:"):
        return int(tokenizer.removeprefix("bpe:"))
    return vocab_size(recipe.build(()))


def random_corpus(cache_dir: Path, *, vocab_size: int, longest_seq_len: int) -> Corpus:
    """Return a prepared corpus in ``cache_dir`` of ids drawn uniformly from all but the separator.

    It is like any other corpus, its text the ids in decimal, and made once per vocabulary and
    length.

    :raises MachineryError: if it cannot be written.
    """
    train_tokens = max(TRAIN_TOKENS, 4 * longest_seq_len)
    name = f"random-{vocab_size}-{train_tokens}"
    with workspace(cache_dir) as directory:
        corpus = intact_corpus(directory.parent / name)
        if corpus is not None:
            return corpus
        ids = {str(number): number for number in range(vocab_size - 1)}
        tokenizer = HfTokenizer(models.WordLevel(ids, unk_token="0"))
        tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
        return publish(
            directory,
            name,
            name=name,
            tokenizer=(f"random:{vocab_size}", vocab_size, tokenizer.to_str().encode()),
            heldout=[_document(vocab_size, HELDOUT_TOKENS, seed=1)],
            train=[_document(vocab_size, train_tokens, seed=0)],
        )


def _document(vocab_size: int, count: int, *, seed: int) -> tuple[Tokens, int, int]:
    separator_id = vocab_size - 1
    ids = np.random.default_rng(seed).integers(0, separator_id, size=count - 1)
    tokens = np.concatenate(([separator_id], ids)).astype(token_dtype(dtype_name(vocab_size)))
    text_bytes = len(" ".join(map(str, ids.tolist())))
    return tokens, 1, text_bytes
