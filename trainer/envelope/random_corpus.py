"""Create a corpus of random tokens: a sweep measures speed and size, not quality."""

from pathlib import Path

import numpy as np
from tokenizers import Tokenizer as HfTokenizer
from tokenizers import models, pre_tokenizers

from trainer.corpus.store import HELDOUT, META, TOKENIZER, TRAIN, Corpus, corpus_sha256
from trainer.corpus.tokenization import dtype_name, parse_tokenizer, token_dtype, vocab_size
from trainer.corpus.workspace import Workspace, WrittenTokens, write_tokens
from trainer.spec import CorpusInfo

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
    with Workspace(cache_dir) as workspace:
        corpus = workspace.existing(name)
        if corpus is not None:
            return corpus
        train = _write(workspace.directory / TRAIN, vocab_size, train_tokens, seed=0)
        heldout = _write(workspace.directory / HELDOUT, vocab_size, HELDOUT_TOKENS, seed=1)
        ids = {str(number): number for number in range(vocab_size - 1)}
        tokenizer = HfTokenizer(models.WordLevel(ids, unk_token="0"))
        tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
        tokenizer_json = tokenizer.to_str().encode()
        workspace.write(TOKENIZER, tokenizer_json)
        info = CorpusInfo(
            name=name,
            sha256=corpus_sha256(train.sha256, heldout.sha256, tokenizer_json),
            heldout_sha256=heldout.sha256,
            tokenizer=f"random:{vocab_size}",
            vocab_size=vocab_size,
            separator_id=vocab_size - 1,
            dtype=dtype_name(vocab_size),
            documents=train.documents + heldout.documents,
            duplicates=0,
            train_documents=train.documents,
            train_tokens=train.tokens,
            train_bytes=train.text_bytes,
            heldout_documents=heldout.documents,
            heldout_tokens=heldout.tokens,
            heldout_bytes=heldout.text_bytes,
        )
        workspace.write(META, (info.model_dump_json(indent=2) + "\n").encode())
        return workspace.publish(name)


def _write(path: Path, vocab_size: int, count: int, *, seed: int) -> WrittenTokens:
    separator_id = vocab_size - 1
    ids = np.random.default_rng(seed).integers(0, separator_id, size=count - 1)
    tokens = np.concatenate(([separator_id], ids)).astype(token_dtype(dtype_name(vocab_size)))
    text_bytes = len(" ".join(map(str, ids.tolist())))
    return write_tokens(path, [(tokens, 1, text_bytes)])
