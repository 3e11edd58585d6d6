import hashlib
import json
import os
import random
import shutil
import sys
import sysconfig
from pathlib import Path

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoresearch.errors import CorpusError
from tests.support.texts import corpus_texts, make_texts, write_folder
from trainer.corpus import Corpus, Progress, open_corpus, prepare
from trainer.corpus.documents import cut, normal_form
from trainer.corpus.store import HELDOUT, TRAIN, file_sha256
from trainer.corpus.tokenization import parse_tokenizer

TEXTS = make_texts(120)


def texts_of(corpus: Corpus) -> list[str]:
    return [*corpus_texts(corpus, "train"), *corpus_texts(corpus, "heldout")]


def files_of(corpus: Corpus) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in corpus.directory.iterdir()}


def write_jsonl(path: Path, texts: list[str], field: str = "text") -> Path:
    records = ({"id": i, field: text} for i, text in enumerate(texts))
    path.write_text("".join(json.dumps(record) + "\n" for record in records), "utf-8")
    return path


def write_parquet(path: Path, texts: list[str | None], field: str = "text") -> Path:
    table = pyarrow.table({"id": list(range(len(texts))), field: texts})
    pyarrow.parquet.write_table(table, path, row_group_size=50)
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_folder(tmp_path / "in", TEXTS)


@pytest.mark.parametrize("tokenizer", ["bytes", "bpe:300"])
def test_every_byte_is_accounted_for(folder: Path, tmp_path: Path, tokenizer: str) -> None:
    corpus = prepare([str(folder)], cache_dir=tmp_path / "cache", tokenizer=tokenizer)
    info = corpus.info
    assert sorted(texts_of(corpus)) == sorted(TEXTS)
    for part, tokens, documents, text_bytes in (
        (corpus.train, info.train_tokens, info.train_documents, info.train_bytes),
        (corpus.heldout, info.heldout_tokens, info.heldout_documents, info.heldout_bytes),
    ):
        assert part.ndim == 1
        assert part[0] == info.separator_id
        assert len(part) == tokens
        assert int((part == info.separator_id).sum()) == documents
        assert int(part.max()) < info.vocab_size
        if tokenizer == "bytes":
            assert text_bytes == tokens - documents
    texts = list(corpus_texts(corpus, "heldout"))
    assert info.heldout_bytes == sum(len(text.encode()) for text in texts)
    assert info.documents == len(TEXTS)
    assert info.duplicates == 0
    assert info.dtype == "uint16"
    assert info.vocab_size == info.separator_id + 1 == (257 if tokenizer == "bytes" else 300)
    assert info.train_bytes > 8 * info.heldout_bytes


def test_its_hashes_are_those_of_its_files(folder: Path, tmp_path: Path) -> None:
    corpus = prepare([str(folder)], cache_dir=tmp_path / "cache")
    digest = hashlib.sha256((corpus.directory / HELDOUT).read_bytes()).hexdigest()
    assert corpus.info.heldout_sha256 == digest
    assert file_sha256(corpus.directory / HELDOUT) == digest
    others = [
        prepare([str(folder)], cache_dir=tmp_path / "cache", tokenizer="bpe:300"),
        prepare([str(folder)], cache_dir=tmp_path / "cache", heldout_bytes=1024),
        prepare([str(write_folder(tmp_path / "less", TEXTS[1:]))], cache_dir=tmp_path / "cache"),
    ]
    assert len({corpus.info.sha256, *(other.info.sha256 for other in others)}) == 4


@settings(max_examples=15)
@given(seed=st.integers(0, 10**6), per_file=st.integers(1, 40))
def test_only_the_set_of_documents_matters(
    tmp_path_factory: pytest.TempPathFactory, seed: int, per_file: int
) -> None:
    """The order, names, times and format of the texts do not matter."""
    home = tmp_path_factory.mktemp("set")
    plain = prepare([str(write_folder(home / "a", TEXTS))], cache_dir=home / "1", name="c")
    rng = random.Random(seed)
    texts = rng.sample(TEXTS, len(TEXTS))
    (home / "b").mkdir()
    sources = []
    for start in range(0, len(texts), per_file):
        part = texts[start : start + per_file]
        stem = f"{rng.random()}"
        match rng.randrange(3):
            case 0:
                path = write_jsonl(home / "b" / f"{stem}.jsonl", part)
            case 1:
                path = write_parquet(home / "b" / f"{stem}.parquet", [*part, None])
            case _:
                path = write_folder(home / "b" / stem, part)
        os.utime(path, (rng.randrange(10**9), rng.randrange(10**9)))
        sources.append(str(path))
    rng.shuffle(sources)
    assert files_of(prepare(sources, cache_dir=home / "2", name="c")) == files_of(plain)


def test_duplicates_are_dropped_whichever_side_they_would_fall_on(tmp_path: Path) -> None:
    respaced = [text.replace(" ", "\r\n\t ") + "  " for text in TEXTS]
    decomposed = [text.replace("é", "e\u0301") for text in TEXTS[:50]]
    first = write_folder(tmp_path / "first", TEXTS)
    second = write_folder(tmp_path / "second", respaced + decomposed)
    corpus = prepare([str(first), str(second), str(first)], cache_dir=tmp_path / "1", name="c")
    assert corpus.info.duplicates == 2 * 120 + 50
    assert corpus.info.documents == 3 * 120 + 50
    kept = [normal_form(text.encode()) for text in texts_of(corpus)]
    assert sorted(kept) == sorted(normal_form(text.encode()) for text in TEXTS)
    turned = prepare([str(second), str(first), str(first)], cache_dir=tmp_path / "2", name="c")
    assert files_of(turned) == files_of(corpus)


def test_a_single_large_file_is_cut_and_split(tmp_path: Path) -> None:
    text = "".join(make_texts(600, size=1500))
    path = tmp_path / "book.txt"
    path.write_text(text, "utf-8")
    corpus = prepare([str(path)], cache_dir=tmp_path / "cache", heldout_bytes=30_000)
    assert corpus.info.name == "book"
    assert 30_000 <= corpus.info.heldout_bytes <= 30_000 + (64 << 10)
    assert corpus.info.heldout_documents >= 2
    pieces = [piece.decode() for piece in cut([text.encode()])]
    assert len(pieces) == corpus.info.documents
    assert sorted(texts_of(corpus)) == sorted(pieces)


def test_a_second_preparation_finds_the_first(folder: Path, tmp_path: Path) -> None:
    seen: list[Progress] = []
    first = prepare([str(folder)], cache_dir=tmp_path / "cache", on_progress=seen.append)
    assert [at.stage for at in seen if at.stage != "read"][-1] == "encode"
    assert seen[-1].done_bytes == seen[-1].total_bytes == sum(len(t.encode()) for t in TEXTS)
    inode = (first.directory / TRAIN).stat().st_ino
    seen.clear()
    again = prepare([str(folder)], cache_dir=tmp_path / "cache", on_progress=seen.append)
    assert {at.stage for at in seen} == {"read"}
    assert (again.directory / TRAIN).stat().st_ino == inode
    assert again.info == first.info == open_corpus(first.directory).info
    assert again.directory == first.directory


def test_changed_text_is_never_answered_from_the_cache(folder: Path, tmp_path: Path) -> None:
    first = prepare([str(folder)], cache_dir=tmp_path / "cache")
    path = folder / "0007.txt"
    before = path.stat()
    path.write_bytes(path.read_bytes().replace(b"ta", b"at", 1))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    second = prepare([str(folder)], cache_dir=tmp_path / "cache")
    assert second.info.sha256 != first.info.sha256
    assert path.read_text("utf-8") in texts_of(second)


def test_a_folder_is_read_by_suffix_and_the_rest_is_counted(folder: Path, tmp_path: Path) -> None:
    (folder / "image.png").write_bytes(b"\x89PNG\0\xff")
    (folder / "LICENSE").write_text("no suffix")
    (folder / ".hidden.txt").write_bytes(b"\0")
    for hidden in (".git", "__pycache__"):
        (folder / hidden).mkdir()
        (folder / hidden / "a.txt").write_bytes(b"\0")
    (folder / "empty.txt").touch()
    (folder / "blank.MD").write_text(" \n\n")
    os.mkfifo(folder / "pipe.txt")
    seen: list[Progress] = []
    corpus = prepare([str(folder)], cache_dir=tmp_path / "cache", on_progress=seen.append)
    assert corpus.info.documents == len(TEXTS)
    assert seen[-1].skipped_files == 3
    assert seen[-1].blank_documents == 1


def test_links_are_followed_once_round(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "in" / "deep", TEXTS[:100])
    elsewhere = write_folder(tmp_path / "in" / "elsewhere", TEXTS[100:])
    (folder / "up").symlink_to(tmp_path / "in")
    (folder / "self").symlink_to(folder)
    (folder / "away").symlink_to(elsewhere)
    (elsewhere / "back").symlink_to(folder)
    corpus = prepare([str(tmp_path / "in")], cache_dir=tmp_path / "cache")
    assert corpus.info.documents == len(TEXTS)
    assert corpus.info.duplicates == 0


@pytest.mark.parametrize("name", ["notes.txt", "notes", "data.bin", "deep/notes.txt", "up"])
def test_a_link_out_of_the_folder_brings_no_private_text_in(tmp_path: Path, name: str) -> None:
    folder = write_folder(tmp_path / "in", TEXTS)
    private = write_folder(tmp_path / "private", ["PRIVATE-DECOY " * 20] * 200)
    (folder / "deep").mkdir(exist_ok=True)
    text = next(private.glob("*.txt"))
    target = {"notes": private, "up": tmp_path}.get(name, text)
    (folder / name).symlink_to(os.path.relpath(target, (folder / name).parent))
    with pytest.raises(CorpusError):
        prepare([str(folder)], cache_dir=tmp_path / "cache")
    (tmp_path / "short").symlink_to(folder)
    (folder / name).unlink()
    corpus = prepare([str(tmp_path / "short")], cache_dir=tmp_path / "cache")
    assert not any("PRIVATE-DECOY" in text for text in texts_of(corpus))


def test_a_named_file_is_text_whatever_its_suffix(tmp_path: Path) -> None:
    path = tmp_path / "NOTES.weird"
    path.write_text("\ufeff" + "".join(make_texts(400, size=1500)), "utf-8")
    corpus = prepare([str(path)], cache_dir=tmp_path / "cache")
    assert corpus.info.name == "NOTES.weird"
    assert not any("\ufeff" in text for text in texts_of(corpus))


def test_records_of_another_field(tmp_path: Path) -> None:
    lines = write_jsonl(tmp_path / "a.jsonl", TEXTS[:60], "body")
    lines.write_bytes(b"\xef\xbb\xbf" + lines.read_bytes().rstrip() + b'\n{"body": null}\n\n')
    table = write_parquet(tmp_path / "b.parquet", [*TEXTS[60:], None], "body")
    corpus = prepare([str(lines), str(table)], cache_dir=tmp_path / "cache", text_field="body")
    assert sorted(texts_of(corpus)) == sorted(TEXTS)
    assert corpus.info.name == "a+b"


def test_a_dataset_by_name(tmp_path: Path) -> None:
    """A local folder takes the same path as every dataset: ``datasets.load_dataset``, streamed."""
    (tmp_path / "set").mkdir()
    write_jsonl(tmp_path / "set" / "train.jsonl", TEXTS)
    write_jsonl(tmp_path / "set" / "test.jsonl", make_texts(80, seed=1))
    seen: list[Progress] = []
    source = f"hf:{tmp_path / 'set'}"
    corpus = prepare([source], cache_dir=tmp_path / "cache", on_progress=seen.append)
    assert sorted(texts_of(corpus)) == sorted(TEXTS)
    assert seen[0].total_bytes is None
    test = prepare([f"{source}:test"], cache_dir=tmp_path / "cache")
    assert sorted(texts_of(test)) == sorted(make_texts(80, seed=1))


def test_a_tokenizer_file_travels_with_the_corpus(folder: Path, tmp_path: Path) -> None:
    trained = prepare([str(folder)], cache_dir=tmp_path / "cache", tokenizer="bpe:300")
    path = tmp_path / "own.json"
    shutil.copy(trained.directory / "tokenizer.json", path)
    corpus = prepare([str(folder)], cache_dir=tmp_path / "cache", tokenizer=f"file:{path}")
    path.unlink()
    assert corpus.info.tokenizer == "file:own.json"
    assert corpus.info.sha256 == trained.info.sha256
    assert sorted(texts_of(open_corpus(corpus.directory))) == sorted(TEXTS)


def test_a_bpe_is_trained_on_the_train_split_alone(folder: Path, tmp_path: Path) -> None:
    corpus = prepare([str(folder)], cache_dir=tmp_path / "cache", tokenizer="bpe:300")
    train = [text.encode() for text in corpus_texts(corpus, "train")]
    heldout = [text.encode() for text in corpus_texts(corpus, "heldout")]
    recipe = parse_tokenizer("bpe:300")
    stored = (corpus.directory / "tokenizer.json").read_bytes()
    assert recipe.build(train).json == stored
    assert recipe.build(train + heldout).json != stored


def test_the_standard_library(tmp_path: Path) -> None:
    corpus = prepare(["stdlib"], cache_dir=tmp_path / "cache")
    info = corpus.info
    assert info.name == "stdlib"
    assert info.train_bytes > 5e6
    assert 262_144 <= info.heldout_bytes <= 262_144 + (64 << 10)
    assert np.array_equal(np.unique(corpus.heldout)[-1:], [256])
    argparse = Path(sysconfig.get_path("stdlib"), "argparse.py").read_bytes()
    stored = set(texts_of(corpus))
    assert all(piece.decode() in stored for piece in cut([argparse]))
    assert "argparse" in sys.stdlib_module_names
