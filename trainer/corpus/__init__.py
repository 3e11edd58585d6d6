"""Turn text into the memory-mapped tokens that every trial of a campaign reads."""

from trainer.corpus.prepare import Progress, default_name, prepare
from trainer.corpus.store import (
    Corpus,
    corpus_directories,
    find_corpus,
    open_corpus,
)

__all__ = [
    "Corpus",
    "Progress",
    "corpus_directories",
    "default_name",
    "find_corpus",
    "open_corpus",
    "prepare",
]
