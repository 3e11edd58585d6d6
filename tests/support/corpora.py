"""Provide tiny corpora of bytes, written as the files that a trial reads."""

import hashlib
from pathlib import Path

import numpy as np

from trainer.corpus import Corpus, open_corpus
from trainer.schema import CorpusInfo

SEPARATOR_ID = 256
VOCAB_SIZE = 257


def byte_stream(documents: list[bytes]) -> np.ndarray[tuple[int], np.dtype[np.uint16]]:
    """Return the token ids of the documents, each after a separator."""
    ids: list[int] = []
    for document in documents:
        ids += [SEPARATOR_ID, *document]
    return np.array(ids, dtype="<u2")


def prose(size: int, seed: int = 0) -> bytes:
    """Return about ``size`` bytes of words that a model can learn from."""
    rng = np.random.default_rng(seed)
    words = [b"the", b"loss", b"falls", b"when", b"rates", b"decay", b"slowly", b"over", b"steps"]
    chosen = rng.choice(len(words), size=size // 5)
    return b" ".join(words[i] for i in chosen)


def write_corpus(
    directory: Path, *, train: list[bytes] | None = None, heldout: list[bytes] | None = None
) -> Corpus:
    """Write a prepared byte corpus into ``directory``."""
    train = [prose(20_000, seed=1), prose(20_000, seed=2)] if train is None else train
    heldout = [prose(1_000, seed=3), prose(800, seed=4)] if heldout is None else heldout
    directory.mkdir(parents=True, exist_ok=True)
    streams = {"train": byte_stream(train), "heldout": byte_stream(heldout)}
    for name, stream in streams.items():
        (directory / f"{name}.bin").write_bytes(stream.tobytes())
    whole = streams["train"].tobytes() + streams["heldout"].tobytes()
    info = CorpusInfo(
        name="tiny",
        sha256=hashlib.sha256(whole).hexdigest(),
        heldout_sha256=hashlib.sha256(streams["heldout"].tobytes()).hexdigest(),
        tokenizer="bytes",
        vocab_size=VOCAB_SIZE,
        separator_id=SEPARATOR_ID,
        dtype="uint16",
        documents=len(train) + len(heldout),
        duplicates=0,
        train_documents=len(train),
        train_tokens=len(streams["train"]),
        train_bytes=sum(map(len, train)),
        heldout_documents=len(heldout),
        heldout_tokens=len(streams["heldout"]),
        heldout_bytes=sum(map(len, heldout)),
    )
    (directory / "meta.json").write_text(info.model_dump_json(), encoding="utf-8")
    return open_corpus(directory)
