#!/usr/bin/env python3
"""A corpus as Megatron-LM reads it: PREFIX.bin, PREFIX.idx, and PREFIX.json with what is in them.

    prepare_data.py --tokenizer DIR/tokenizer.json --output data/corpus --vocab-size 128256 \
        --need-tokens 161000000000 texts/*.jsonl
    prepare_data.py --check data/corpus --vocab-size 128256 --need-tokens 161000000000

The script reads JSON lines (``--text-key``, also gzipped), Parquet, and plain text with one
document per file. Every document ends with the tokenizer's end-of-document token. The script
neither joins nor splits documents: Megatron-LM does that, and shuffles them, with its own seed.
Files get their final names once they are complete.

The format (megatron/core/datasets/indexed_dataset.py): PREFIX.bin holds all tokens in order, as
uint16 if the vocabulary has fewer than 65,500 entries, else as int32. PREFIX.idx holds the magic
``MMIDIDX``, version 1, the type's code, and the numbers of sequences and of document boundaries.
The lengths of the sequences (int32), their offsets in bytes (int64), and the boundaries (int64)
follow. The script needs numpy and tokenizers, and pyarrow for Parquet.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import json
import struct
import sys
from array import array
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

MAGIC = b"MMIDIDX\x00\x00"
VERSION = 1
CODES: dict[str, int] = {"uint16": 8, "int32": 4}
UINT16_BELOW = 65_500
BATCH_BYTES = 16 << 20
"""Size of a batch of text to tokenize, in characters."""
SCAN_TOKENS = 1 << 24
ENDS = ("<|end_of_text|>", "<|endoftext|>", "</s>", "<eos>", "<|endofdocument|>")


class Refused(Exception):
    """Raise to end the script with one sentence: the fault and the fix."""


def main(arguments: list[str] | None = None) -> int:
    """Prepare the files, or check existing ones; return 1 if something is wrong, else 0."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("texts", nargs="*", type=Path, help="JSON lines, Parquet or plain text.")
    parser.add_argument("--tokenizer", type=Path, help="tokenizer.json, or a directory with it.")
    parser.add_argument("--output", type=Path, help="The prefix to write.")
    parser.add_argument("--check", help="Prefix of a corpus to check instead.")
    parser.add_argument("--vocab-size", type=int, required=True, help="The model's vocabulary.")
    parser.add_argument("--need-tokens", type=float, default=0.0, help="Tokens that the run reads.")
    parser.add_argument("--text-key", default="text", help="The field or column with the text.")
    parser.add_argument("--end", help="The end-of-document token. Default: the usual ones.")
    asked = parser.parse_args(arguments)
    try:
        summary = check(Path(asked.check), asked.vocab_size) if asked.check else prepare(asked)
        judge(summary, asked.need_tokens)
    except (Refused, OSError) as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    return 0


def prepare(asked: argparse.Namespace) -> dict[str, Any]:
    """Tokenize the texts, write the files, and return the result of :func:`check`.

    :raises Refused: if the arguments or the texts cannot be used.
    """
    if not (asked.texts and asked.tokenizer and asked.output):
        raise Refused("give the texts, a --tokenizer and an --output; or a prefix to --check")
    from tokenizers import Tokenizer  # noqa: PLC0415 (--check needs none)

    file = asked.tokenizer / "tokenizer.json" if asked.tokenizer.is_dir() else asked.tokenizer
    tokenizer = Tokenizer.from_file(str(file))
    size = tokenizer.get_vocab_size(with_added_tokens=True)
    if size > asked.vocab_size:
        raise Refused(
            f"the tokenizer has {size:,} entries and the model {asked.vocab_size:,}; take the "
            "tokenizer that the plan was made for, or correct --vocab-size"
        )
    end = _end_token(tokenizer, asked.end)
    kind = np.dtype(np.uint16 if asked.vocab_size < UINT16_BELOW else np.int32)
    asked.output.parent.mkdir(parents=True, exist_ok=True)
    unfinished = {
        suffix: Path(f"{asked.output}.{suffix}.part") for suffix in ("bin", "idx", "json")
    }
    lengths, text_bytes = array("i"), 0
    with unfinished["bin"].open("wb") as stream:
        for batch in _batches(_documents(asked.texts, asked.text_key)):
            text_bytes += sum(len(text.encode()) for text in batch)
            for encoded in tokenizer.encode_batch_fast(batch, add_special_tokens=False):
                tokens = np.asarray([*encoded.ids, end], dtype=kind)
                stream.write(tokens.tobytes())
                lengths.append(len(tokens))
    if not lengths:
        raise Refused("the texts hold no document; choose others")
    _write_index(unfinished["idx"], np.asarray(lengths, dtype=np.int32), kind)
    notes = {
        "documents": len(lengths),
        "tokens": int(np.asarray(lengths, dtype=np.int64).sum()),
        "text_bytes": text_bytes,
        "end_token": end,
        "tokenizer_sha256": hashlib.sha256(file.read_bytes()).hexdigest(),
    }
    unfinished["json"].write_text(json.dumps(notes, indent=2) + "\n")
    for suffix, path in unfinished.items():
        path.rename(f"{asked.output}.{suffix}")
    return check(asked.output, asked.vocab_size)


def _write_index(path: Path, lengths: np.ndarray[Any, Any], kind: np.dtype[Any]) -> None:
    """Write the index, with one sequence per document."""
    offsets = np.zeros(len(lengths), dtype=np.int64)
    np.cumsum(lengths[:-1], dtype=np.int64, out=offsets[1:])
    with path.open("wb") as stream:
        stream.write(MAGIC)
        stream.write(struct.pack("<QB", VERSION, CODES[kind.name]))
        stream.write(struct.pack("<QQ", len(lengths), len(lengths) + 1))
        stream.write(lengths.astype("<i4").tobytes())
        stream.write((offsets * kind.itemsize).astype("<i8").tobytes())
        stream.write(np.arange(len(lengths) + 1, dtype="<i8").tobytes())


def check(prefix: Path, vocab_size: int) -> dict[str, Any]:
    """Read both files in full and return a summary of their contents.

    :raises Refused: if they disagree with each other, with PREFIX.json or with the vocabulary.
    """
    lengths, kind = _read_index(Path(f"{prefix}.idx"))
    tokens = np.memmap(f"{prefix}.bin", dtype=kind, mode="r")
    total = int(lengths.sum(dtype=np.int64))
    if len(tokens) != total:
        raise Refused(
            f"{prefix}.bin has {len(tokens):,} tokens and {prefix}.idx counts {total:,}; prepare "
            "the corpus again"
        )
    notes = json.loads(Path(f"{prefix}.json").read_text())
    wanted = (notes["documents"], notes["tokens"])
    if (len(lengths), total) != wanted:
        raise Refused(
            f"{prefix}.idx has {len(lengths):,} documents and {total:,} tokens, and {prefix}.json "
            f"says {wanted[0]:,} and {wanted[1]:,}; prepare the corpus again"
        )
    ends = tokens[np.cumsum(lengths, dtype=np.int64) - 1]
    if unended := int(np.count_nonzero(ends != notes["end_token"])):
        raise Refused(
            f"{unended:,} documents of {prefix} do not end with token {notes['end_token']}; "
            "prepare the corpus again"
        )
    largest = max(
        int(tokens[start : start + SCAN_TOKENS].max()) for start in range(0, total, SCAN_TOKENS)
    )
    if largest >= vocab_size:
        raise Refused(
            f"{prefix} has token {largest:,} and the model's vocabulary ends at {vocab_size - 1:,}"
            "; prepare the corpus with the tokenizer that the plan was made for"
        )
    return {**notes, "prefix": str(prefix), "largest": largest}


def _read_index(path: Path) -> tuple[np.ndarray[Any, Any], np.dtype[Any]]:
    data = path.read_bytes()
    head = len(MAGIC) + 9 + 16
    if data[: len(MAGIC)] != MAGIC or len(data) < head:
        raise Refused(f"{path} is not an index of Megatron-LM; prepare the corpus again")
    version, code = struct.unpack_from("<QB", data, len(MAGIC))
    names = {number: name for name, number in CODES.items()}
    if version != VERSION or code not in names:
        raise Refused(f"{path} is of version {version}, type {code}; prepare the corpus again")
    sequences, boundaries = struct.unpack_from("<QQ", data, len(MAGIC) + 9)
    if len(data) != head + 12 * sequences + 8 * boundaries:
        raise Refused(f"{path} was cut short; prepare the corpus again")
    lengths = np.frombuffer(data, dtype="<i4", count=sequences, offset=head)
    return lengths, np.dtype(names[code])


def judge(summary: dict[str, Any], need_tokens: float) -> None:
    """Print the size of the corpus, and how often the run would read it.

    :raises Refused: if the run would read it more than four times.
    """
    tokens = summary["tokens"]
    sys.stdout.write(
        f"{summary['prefix']}: {summary['documents']:,} documents, {tokens:,} tokens, largest id "
        f"{summary['largest']:,}, {summary['text_bytes'] / tokens:.4f} bytes a token\n"
    )
    epochs = need_tokens / tokens
    if epochs > MOST_EPOCHS:
        raise Refused(
            f"the run reads {need_tokens:.4g} tokens, {epochs:.1f} times what {summary['prefix']} "
            f"has, and past {MOST_EPOCHS} repeats are worth little; add data, or train on fewer "
            "tokens"
        )
    if epochs > 1:
        sys.stdout.write(f"the run reads it {epochs:.2f} times\n")


MOST_EPOCHS = 4
"""Number of epochs up to which repeated data are nearly as good as new data (Muennighoff et al.,
arXiv 2305.16264)."""


def _end_token(tokenizer: Any, name: str | None) -> int:
    for candidate in (name,) if name else ENDS:
        number = tokenizer.token_to_id(candidate)
        if number is not None:
            return int(number)
    raise Refused(f"the tokenizer has no token {name or ' or '.join(ENDS)}; name one with --end")


def _documents(paths: Iterable[Path], key: str) -> Iterator[str]:
    for path in paths:
        name = path.name
        if name.endswith(".parquet"):
            yield from _parquet(path, key)
        elif name.endswith((".jsonl", ".jsonl.gz", ".json")):
            yield from _json_lines(path, key)
        else:
            yield path.read_text("utf-8")


def _json_lines(path: Path, key: str) -> Iterator[str]:
    opening = gzip.open if path.suffix == ".gz" else open
    with opening(path, "rt", encoding="utf-8") as lines:
        for number, line in enumerate(lines, start=1):
            if line.strip():
                try:
                    yield str(json.loads(line)[key])
                except (ValueError, KeyError, TypeError) as error:
                    raise Refused(
                        f"line {number} of {path} is not an object with {key!r}; correct it, or "
                        "choose another --text-key"
                    ) from error


def _parquet(path: Path, key: str) -> Iterator[str]:
    from pyarrow import parquet  # noqa: PLC0415 (only who has such files needs it)

    with parquet.ParquetFile(path) as file:
        if key not in file.schema_arrow.names:
            raise Refused(f"{path} has no column {key!r}; choose another --text-key")
        for batch in file.iter_batches(columns=[key]):
            yield from (text for text in batch.column(0).to_pylist() if text)


def _batches(documents: Iterable[str]) -> Iterator[list[str]]:
    batch: list[str] = []
    size = 0
    for document in documents:
        if not document.strip():
            continue
        batch.append(document)
        size += len(document)
        if size >= BATCH_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


if __name__ == "__main__":
    sys.exit(main())
