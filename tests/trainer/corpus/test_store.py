import json
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from autoresearch.errors import CorpusError
from tests.support.present import known
from tests.support.texts import corpus_texts, make_texts, write_folder
from trainer.corpus import Corpus, corpus_directories, find_corpus, open_corpus, prepare
from trainer.corpus.store import BUILDING, file_sha256

TEXTS = make_texts(120)

# Prints each stage on stdout and waits for a line before the next one.
STEPPING_PREPARE = """
import sys
from pathlib import Path
from trainer.corpus import prepare

def step(at):
    print(at.stage, at.done_bytes, flush=True)
    sys.stdin.readline()

prepare([sys.argv[1]], cache_dir=Path(sys.argv[2]), tokenizer="bpe:300", on_progress=step)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_folder(tmp_path / "in", TEXTS)


@pytest.fixture
def corpus(folder: Path, tmp_path: Path) -> Corpus:
    return prepare([str(folder)], cache_dir=tmp_path / "cache", tokenizer="bpe:300")


def start_stepping(folder: Path, cache_dir: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", STEPPING_PREPARE, str(folder), str(cache_dir)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def step_to(process: subprocess.Popen[str], stage: str, at_least: int) -> None:
    for line in known(process.stdout):
        said, _, done = line.rpartition(" ")
        if said == stage and int(done) >= at_least:
            return
        known(process.stdin).write("\n")
        known(process.stdin).flush()
    pytest.fail(f"never came to {stage}")


def building(cache_dir: Path) -> list[Path]:
    return sorted(cache_dir.glob(f"{BUILDING}*"))


def test_it_opens_as_it_was_prepared(corpus: Corpus, monkeypatch: pytest.MonkeyPatch) -> None:
    again = open_corpus(corpus.directory)
    assert again.info == corpus.info
    assert np.array_equal(again.train, corpus.train)
    assert np.array_equal(again.heldout, corpus.heldout)
    assert not again.train.flags.writeable
    monkeypatch.chdir(corpus.directory.parent)
    assert open_corpus(Path(corpus.directory.name)).directory == corpus.directory


@pytest.mark.parametrize(
    ("name", "content"),
    [
        *((name, None) for name in ("meta.json", "train.bin", "heldout.bin", "tokenizer.json")),
        *((name, b"of another size") for name in ("train.bin", "heldout.bin")),
        *(("meta.json", content) for content in (b"", b"{}", b"null", b'{"name": 5}')),
    ],
)
def test_a_partial_corpus_does_not_open(corpus: Corpus, name: str, content: bytes | None) -> None:
    path = corpus.directory / name
    path.unlink()
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(CorpusError, match=name):
        open_corpus(corpus.directory)
    with pytest.raises(CorpusError):
        open_corpus(corpus.directory / "none")
    with pytest.raises(CorpusError):
        file_sha256(corpus.directory)


@pytest.mark.parametrize("name", ["train.bin", "heldout.bin", "tokenizer.json", "meta.json"])
def test_a_changed_corpus_is_prepared_again(corpus: Corpus, folder: Path, name: str) -> None:
    path = corpus.directory / name
    sound = path.read_bytes()
    changed = bytearray(sound)
    changed[len(sound) // 2] ^= 1
    path.write_bytes(changed)
    again = prepare([str(folder)], cache_dir=corpus.directory.parent, tokenizer="bpe:300")
    assert again.directory == corpus.directory
    assert path.read_bytes() == sound
    assert building(corpus.directory.parent) == []


@pytest.mark.parametrize(
    ("stage", "at_least"), [("read", 1), ("train tokenizer", 0), ("encode", 0), ("encode", 1)]
)
def test_a_kill_leaves_no_corpus(folder: Path, tmp_path: Path, stage: str, at_least: int) -> None:
    cache_dir = tmp_path / "killed"
    with start_stepping(folder, cache_dir) as process:
        step_to(process, stage, at_least)
        assert len(building(cache_dir)) == 1
        process.send_signal(signal.SIGKILL)
    assert process.returncode == -signal.SIGKILL
    assert corpus_directories(cache_dir) == []
    assert len(building(cache_dir)) == 1
    after = prepare([str(folder)], cache_dir=cache_dir, tokenizer="bpe:300")
    assert building(cache_dir) == []
    untouched = prepare([str(folder)], cache_dir=tmp_path / "other", tokenizer="bpe:300")
    assert after.info == untouched.info


def test_interrupted_it_cleans_up_itself(folder: Path, tmp_path: Path) -> None:
    cache_dir = tmp_path / "cache"

    def interrupt(_: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        prepare([str(folder)], cache_dir=cache_dir, on_progress=interrupt)
    assert [path.name for path in cache_dir.iterdir()] == [".lock"]


def test_many_at_once_make_one_corpus(folder: Path, tmp_path: Path) -> None:
    cache_dir = tmp_path / "cache"
    processes = [start_stepping(folder, cache_dir) for _ in range(3)]
    for process in processes:
        known(process.stdin).write("\n" * 1000)
        known(process.stdin).close()
    for process in processes:
        known(process.stdout).read()
        known(process.stdout).close()
        assert process.wait() == 0
    (directory,) = corpus_directories(cache_dir)
    assert building(cache_dir) == []
    assert sorted(corpus_texts(open_corpus(directory), "train"))


def test_a_corpus_is_found_by_its_names(corpus: Corpus, folder: Path, tmp_path: Path) -> None:
    cache_dir = corpus.directory.parent
    for name in (str(corpus.directory), corpus.directory.name, "in", corpus.directory.name[:6]):
        assert find_corpus(name, cache_dir).directory == corpus.directory
    with pytest.raises(CorpusError):
        find_corpus("other", cache_dir)
    with pytest.raises(CorpusError):
        find_corpus("in", tmp_path / "no-cache")
    bytes_corpus = prepare([str(folder)], cache_dir=cache_dir)
    with pytest.raises(CorpusError, match=f"'in' names 2 corpora.*{bytes_corpus.directory.name}"):
        find_corpus("in", cache_dir)
    shutil.rmtree(bytes_corpus.directory)
    other = prepare([str(folder)], cache_dir=cache_dir, name="in-other", tokenizer="bpe:300")
    assert find_corpus("in", cache_dir).directory == corpus.directory
    assert find_corpus("in-o", cache_dir).directory == other.directory
    meta = json.loads((other.directory / "meta.json").read_text())
    assert meta["name"] == "in-other"
