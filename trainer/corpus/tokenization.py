"""Convert text to tokens and back without loss.

The separator before each document is the id after the tokenizer's own ids, so no text can contain
it. For ``bytes`` it is 256, for ``bpe:1024`` 1023 (the vocabulary of 1024 includes it).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt
from tokenizers import Tokenizer as HfTokenizer
from tokenizers import decoders, models, pre_tokenizers, trainers

from autoresearch.errors import CorpusError
from autoresearch.files import read_given

Tokens = npt.NDArray[np.unsignedinteger]

SMALLEST_BPE = 257
LARGEST_BPE = 1 << 20
MOST_FILE_BYTES = 256 << 20
"""Largest tokenizer.json; those of large vocabularies have about 10 MB."""
BPE_SAMPLE_BYTES = 16 << 20
"""Bytes of the train split that train a BPE: the first documents in the order of their hashes,
which is a uniform sample."""


def vocab_size(tokenizer: Tokenizer) -> int:
    """Return the number of ids in use, the separator included."""
    return tokenizer.separator_id + 1


def dtype_name(size: int) -> Literal["uint8", "uint16", "uint32"]:
    """Return the smallest unsigned type for a vocabulary of this size."""
    if size <= 1 << 8:
        return "uint8"
    return "uint16" if size <= 1 << 16 else "uint32"


def token_dtype(name: str) -> np.dtype[np.unsignedinteger]:
    """Return the little-endian type of tokens on disk."""
    return np.dtype(name).newbyteorder("<")


def parse_tokenizer(spec: str) -> TokenizerRecipe:
    """Return the recipe that ``bytes``, ``bpe:VOCAB`` or ``file:PATH`` names.

    :raises CorpusError: on anything else, and on a file that is not a tokenizer.
    """
    kind, _, argument = spec.partition(":")
    if spec == "bytes":
        return TokenizerRecipe("bytes", "bytes", lambda sample: ByteTokenizer())
    if kind == "bpe" and argument.isascii() and argument.isdigit():
        vocab = int(argument)
        if not SMALLEST_BPE <= vocab <= LARGEST_BPE:
            raise CorpusError(
                f"a BPE of {vocab} tokens cannot be trained; ask for {SMALLEST_BPE} "
                f"(256 bytes and a separator) to {LARGEST_BPE}"
            )
        return TokenizerRecipe(f"bpe:{vocab}", f"bpe:{vocab}", partial(_trained_bpe, vocab))
    if kind == "file" and argument:
        path = Path(argument)
        try:
            json = read_given(path, MOST_FILE_BYTES)
        except OSError as error:
            raise CorpusError(
                f"cannot read the tokenizer {path}: {error.strerror}; choose a readable "
                "tokenizer.json"
            ) from error
        try:
            tokenizer = JsonTokenizer(json)
        except Exception as error:  # the library raises Exception itself, nothing narrower
            raise CorpusError(
                f"{path} is not a tokenizer file ({error}); choose a tokenizer.json written by the "
                "tokenizers library"
            ) from error
        identity = "json:" + hashlib.sha256(json).hexdigest()
        return TokenizerRecipe(f"file:{path.name}", identity, lambda sample: tokenizer)
    raise CorpusError(
        f"there is no tokenizer {spec!r}; choose bytes, bpe:VOCAB such as bpe:1024, or file:PATH "
        "of a tokenizer.json"
    )


@dataclass(frozen=True, slots=True)
class TokenizerRecipe:
    """A tokenizer as it is asked for, which may have to be trained first."""

    label: str
    """Its recorded form: ``bytes``, ``bpe:1024`` or ``file:NAME``."""
    identity: str
    """Recipes with equal identity build equal tokenizers from one sample."""
    build: Callable[[Iterable[bytes]], Tokenizer]
    """Returns the tokenizer; only one that is trained reads the sample."""


def _trained_bpe(vocab: int, sample: Iterable[bytes]) -> JsonTokenizer:
    """Return a byte-level BPE with GPT-2's pre-tokenization, trained on the sample.

    A small text can yield fewer merges than asked for; the vocabulary is then smaller.
    """
    bpe = HfTokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab - 1,
        min_frequency=2,
        show_progress=False,
        special_tokens=[],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )
    bpe.train_from_iterator((text.decode() for text in sample), trainer)
    return JsonTokenizer(bpe.to_str().encode())


class ByteTokenizer:
    """Uses the UTF-8 bytes as ids 0 to 255."""

    separator_id = 256
    """One past the tokenizer's own ids."""
    json: bytes | None = None
    """The ``tokenizer.json``; None for bytes."""

    def encode(self, documents: Sequence[bytes]) -> Tokens:
        """Return the tokens of these UTF-8 documents in one array, each after a separator."""
        joined = np.frombuffer(b"\0" + b"\0".join(documents), dtype=np.uint8)
        tokens = joined.astype("<u2")
        lengths = np.fromiter(map(len, documents), dtype=np.int64, count=len(documents))
        tokens[np.cumsum(lengths + 1) - lengths - 1] = self.separator_id
        return tokens

    def decode(self, tokens: Tokens) -> bytes:
        """Return the text of one document's tokens, given without separators."""
        return tokens.astype(np.uint8).tobytes()


class JsonTokenizer:
    """Tokenizer of the ``tokenizers`` library, without options that lose text."""

    def __init__(self, json: bytes) -> None:
        self.json = json
        self._hf = HfTokenizer.from_str(json.decode())
        self._hf.no_truncation()
        self._hf.no_padding()
        if isinstance(self._hf.model, models.BPE):
            self._hf.model.dropout = None  # a random tokenization would not reproduce scores
        # Ids may have gaps, so the vocabulary's size may not be the id after its last.
        self.separator_id = 1 + max(self._hf.get_vocab(with_added_tokens=True).values())
        self._dtype = token_dtype(dtype_name(vocab_size(self)))

    def encode(self, documents: Sequence[bytes]) -> Tokens:
        texts = [document.decode() for document in documents]
        separator = np.array([self.separator_id], dtype=self._dtype)
        parts = []
        for encoding in self._hf.encode_batch_fast(texts, add_special_tokens=False):
            parts += [separator, np.array(encoding.ids, dtype=self._dtype)]
        return np.concatenate(parts)

    def decode(self, tokens: Tokens) -> bytes:
        text: str = self._hf.decode(tokens.tolist(), skip_special_tokens=False)
        return text.encode()


Tokenizer: TypeAlias = ByteTokenizer | JsonTokenizer
"""A lossless map between text and ids below ``separator_id``."""


def check_lossless(tokenizer: Tokenizer, label: str, documents: Iterable[bytes]) -> None:
    """Check that every one of these documents is restored from its tokens.

    :raises CorpusError: if one is not, because bits per byte would then be wrong.
    """
    for text in documents:
        returned = tokenizer.decode(tokenizer.encode([text])[1:])
        if returned != text:
            at = next(
                (i for i, (a, b) in enumerate(zip(text, returned, strict=False)) if a != b),
                min(len(text), len(returned)),
            )
            raise CorpusError(
                f"the tokenizer {label} does not restore the text "
                f"({text[at : at + 20].decode(errors='replace')!r} came back as "
                f"{returned[at : at + 20].decode(errors='replace')!r}), so bits per byte would be "
                "wrong; use a byte-level tokenizer"
            )
