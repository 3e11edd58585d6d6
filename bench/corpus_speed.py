"""How fast text becomes a corpus: megabytes of UTF-8 text a second, on the standard library."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from bench.figure import Figure
from trainer.corpus import Corpus, prepare

REPEATS = 3


def run() -> list[Figure]:
    """Prepare the standard library's source with each tokenizer, and find it prepared."""
    figures = []
    for tokenizer, limited_by in (
        ("bytes", "limited by normalising and hashing"),
        ("bpe:1024", "limited by the tokenizers library; its training included"),
    ):
        fresh, cached = _speeds(tokenizer)
        figures.append(
            Figure(f"data prepare, {tokenizer}", fresh, "MB/s", note=f"stdlib; {limited_by}")
        )
        figures.append(
            Figure(
                f"data prepare, {tokenizer}, cached",
                cached,
                "MB/s",
                note="the sources read and hashed, the corpus found and verified",
            )
        )
    return figures


def _speeds(tokenizer: str) -> tuple[float, float]:
    """The best of some runs into an empty cache, and the best of as many into a filled one."""
    fresh = []
    for _ in range(REPEATS):
        with tempfile.TemporaryDirectory() as folder:
            fresh.append(_speed(tokenizer, Path(folder)))
    with tempfile.TemporaryDirectory() as folder:
        prepare(["stdlib"], cache_dir=Path(folder), tokenizer=tokenizer)
        cached = [_speed(tokenizer, Path(folder)) for _ in range(REPEATS)]
    return max(fresh), max(cached)


def _speed(tokenizer: str, cache_dir: Path) -> float:
    began = time.perf_counter()
    corpus: Corpus = prepare(["stdlib"], cache_dir=cache_dir, tokenizer=tokenizer)
    elapsed_s = time.perf_counter() - began
    return (corpus.info.train_bytes + corpus.info.heldout_bytes) / 1e6 / elapsed_s


if __name__ == "__main__":
    for figure in run():
        print(f"{figure.name:32} {figure.value:8.1f} {figure.unit}  {figure.note}")
