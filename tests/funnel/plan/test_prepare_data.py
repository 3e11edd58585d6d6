"""The prepared files equal those that Megatron-Core itself writes and reads."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet
from tokenizers import Tokenizer, models, pre_tokenizers

from funnel.plan.scripts.prepare_data import main

# Megatron-Core imports deprecated parts of PyTorch.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")

TEXTS = ["The cat sat.", "A dog, and a cat.\nTwo lines.", "çedilla – ünïcode", "x"]
VOCAB = 300
Prepare = Callable[..., int]


@pytest.fixture
def tokenizer(tmp_path: Path) -> Path:
    """Write a tokenizer of single bytes and an end-of-document token; return its path."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    made = Tokenizer(models.BPE({sign: n for n, sign in enumerate(alphabet)}, []))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.add_special_tokens(["<|endoftext|>"])
    path = tmp_path / "tokenizer.json"
    made.save(str(path))
    return path


@pytest.fixture
def prepare(tmp_path: Path, tokenizer: Path) -> Prepare:
    texts = tmp_path / "texts.jsonl"
    texts.write_text("".join(json.dumps({"text": text}) + "\n" for text in TEXTS))

    def run(*more: object, vocab: int = VOCAB, of: Path = texts) -> int:
        words = ["--tokenizer", tokenizer, "--output", tmp_path / "data/corpus"]
        return main([str(word) for word in (*words, "--vocab-size", vocab, *more, of)])

    return run


def expected(tokenizer: Path) -> list[list[int]]:
    made = Tokenizer.from_file(str(tokenizer))
    return [[*made.encode(text).ids, 256] for text in TEXTS]


def test_megatron_core_reads_the_documents_back(
    tmp_path: Path, tokenizer: Path, prepare: Prepare
) -> None:
    from megatron.core.datasets.indexed_dataset import IndexedDataset

    assert prepare() == 0
    dataset = IndexedDataset(str(tmp_path / "data/corpus"))
    assert [list(dataset[n]) for n in range(len(dataset))] == expected(tokenizer)
    assert dataset.index.dtype is np.uint16
    assert list(dataset.document_indices) == [0, 1, 2, 3, 4]
    assert not list((tmp_path / "data").glob("*.part"))


@pytest.mark.parametrize("vocab", [VOCAB, 128_256])
def test_the_files_are_those_of_megatron_cores_own_builder(
    tmp_path: Path, tokenizer: Path, prepare: Prepare, vocab: int
) -> None:
    import torch
    from megatron.core.datasets.indexed_dataset import DType, IndexedDatasetBuilder

    assert prepare(vocab=vocab) == 0
    own = tmp_path / "data/corpus"
    theirs = tmp_path / "theirs"
    builder = IndexedDatasetBuilder(f"{theirs}.bin", dtype=DType.optimal_dtype(vocab))
    for tokens in expected(tokenizer):
        builder.add_document(torch.tensor(tokens), [len(tokens)])
    builder.finalize(f"{theirs}.idx")
    for suffix in ("bin", "idx"):
        assert Path(f"{own}.{suffix}").read_bytes() == Path(f"{theirs}.{suffix}").read_bytes()


def test_a_gpt_dataset_of_megatron_core_takes_its_samples_from_it(
    tmp_path: Path, tokenizer: Path, prepare: Prepare
) -> None:
    """Every token of an epoch is in a sample, and its runs of tokens are those of the documents."""
    from megatron.core.datasets.gpt_dataset import GPTDataset, GPTDatasetConfig
    from megatron.core.datasets.indexed_dataset import IndexedDataset
    from megatron.core.datasets.utils import Split

    assert prepare() == 0
    prefix = str(tmp_path / "data/corpus")
    config = GPTDatasetConfig(
        random_seed=1,
        sequence_length=8,
        blend=([prefix], None),
        split="1,0,0",
        reset_position_ids=True,
        reset_attention_mask=False,
        eod_mask_loss=False,
        create_attention_mask=False,
        tokenizer=_Ends(256),
        path_to_cache=str(tmp_path / "cache"),
        mid_level_dataset_surplus=0.005,
    )
    dataset = GPTDataset(
        IndexedDataset(prefix), prefix, np.arange(4, dtype=np.int32), 4, Split.train, config
    )
    sample = dataset[0]
    joined = "".join(f" {token} " for tokens in expected(tokenizer) for token in tokens)
    seen = [int(token) for token in sample["tokens"]]
    assert len(seen) == 8
    ends = [n for n, token in enumerate(seen) if token == 256]
    runs = "".join(f" {token} " for token in seen[: ends[0] + 1 if ends else 8])
    assert runs in joined
    for end in ends:
        if end < 7:
            assert int(sample["position_ids"][end + 1]) == 0


class _Ends:
    """Attributes that the dataset requires of a tokenizer."""

    def __init__(self, end: int) -> None:
        self.eod = end
        self.pad = end
        self.vocab_size = VOCAB
        self.unique_identifiers: dict[str, Any] = {"class": "stand-in"}


def test_every_form_of_text_gives_the_same_tokens(tmp_path: Path, prepare: Prepare) -> None:
    assert prepare() == 0
    first = (tmp_path / "data/corpus.bin").read_bytes()
    lines = (tmp_path / "texts.jsonl").read_bytes()
    (tmp_path / "texts.jsonl.gz").write_bytes(gzip.compress(lines))
    table = pa.table({"text": TEXTS})
    parquet.write_table(table, tmp_path / "texts.parquet")
    for name in ("texts.jsonl.gz", "texts.parquet"):
        assert prepare(of=tmp_path / name) == 0
        assert (tmp_path / "data/corpus.bin").read_bytes() == first, name
    (tmp_path / "plain.txt").write_text(TEXTS[0])
    assert prepare(of=tmp_path / "plain.txt") == 0
    assert first.startswith((tmp_path / "data/corpus.bin").read_bytes())


def test_tokens_are_counted_and_too_few_for_the_run_are_refused(
    tmp_path: Path, tokenizer: Path, prepare: Prepare, capsys: pytest.CaptureFixture[str]
) -> None:
    tokens = sum(map(len, expected(tokenizer)))
    size = sum(len(text.encode()) for text in TEXTS)
    assert prepare("--need-tokens", 1.5 * tokens) == 0
    said = capsys.readouterr().out
    for number in (f"{tokens} tokens", f"{size / tokens:.4f} bytes", "1.50 times"):
        assert number in said
    notes = json.loads((tmp_path / "data/corpus.json").read_text())
    assert (notes["tokens"], notes["text_bytes"]) == (tokens, size)
    assert prepare("--need-tokens", 1e6) == 1


def test_damage_is_found(
    tmp_path: Path, prepare: Prepare, capsys: pytest.CaptureFixture[str]
) -> None:
    """Megatron-LM loads each damaged file without an error or trains on nonsense."""
    prefix = tmp_path / "data/corpus"
    assert prepare() == 0
    files = {suffix: Path(f"{prefix}.{suffix}") for suffix in ("bin", "idx")}
    whole = {suffix: path.read_bytes() for suffix, path in files.items()}
    zeros = b"\x05\x00" * (len(whole["bin"]) // 2)
    for suffix, content, vocab, said in (
        ("bin", whole["bin"], VOCAB, ""),
        ("bin", whole["bin"][:-2], VOCAB, "prepare the corpus again"),
        ("bin", zeros, VOCAB, "do not end with token 256"),
        ("bin", whole["bin"], 200, "vocabulary ends at 199"),
        ("idx", whole["idx"][:-8], VOCAB, "was cut short"),
        ("idx", b"PK" + whole["idx"], VOCAB, "not an index of Megatron-LM"),
    ):
        files[suffix].write_bytes(content)
        assert main(["--check", str(prefix), "--vocab-size", str(vocab)]) == bool(said)
        assert said in capsys.readouterr().err
        files[suffix].write_bytes(whole[suffix])


def test_another_vocabulary_or_a_bad_line_is_one_sentence(
    tmp_path: Path, prepare: Prepare, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "bad.jsonl").write_text('{"text": "good"}\n{"body": 1}\n')
    bad: tuple[dict[str, Any], ...] = ({"vocab": 100}, {"of": tmp_path / "bad.jsonl"})
    assert [prepare(**changes) for changes in bad] == [1, 1]
    assert prepare("--end", "<stop>") == 1
    errors = capsys.readouterr().err.splitlines()
    for error, said in zip(errors, ("257", "line 2 of", "no token <stop>"), strict=True):
        assert said in error
