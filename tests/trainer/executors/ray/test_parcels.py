"""Nodes receive parcels whole, by hash, and unpack them identically."""

from __future__ import annotations

import hashlib
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from autoresearch.errors import CorpusError, SpecError
from tests.support.commands import command, command_spec, script
from tests.support.corpora import prose
from tests.support.present import known
from tests.support.trials import trial_spec
from trainer.corpus import Corpus, open_corpus, prepare
from trainer.executors.base import LaneLost
from trainer.executors.local import COMMAND_ENTRY, LocalExecutor
from trainer.executors.ray import parcels as module
from trainer.executors.ray.messages import LaneOrder
from trainer.executors.ray.parcels import Received, fill
from trainer.isolation.kernel.sandbox import Layers
from trainer.schema import Command, CommandOk, ScoredText, TextPart, TrialSpec

PRINTS = "print('val loss', open('data/part.txt').read())"


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    folder = tmp_path_factory.mktemp("text")
    for number in range(20):
        (folder / f"{number}.txt").write_bytes(prose(3000, seed=number))
    return prepare([str(folder)], tokenizer="bpe:300", cache_dir=folder / "cache")


@pytest.fixture
def own(tmp_path: Path) -> Path:
    script(tmp_path / "own" / "data", "1.25", "part.txt")
    return script(tmp_path / "own", PRINTS)


def received(
    tmp_path: Path, command: Command | None = None, corpus: Path | None = None, **order: str
) -> Received:
    """Return a lane's side of the files that Ray has sent."""
    home, parcel = tmp_path / "node" / "lanes" / ("b" * 16), tmp_path / "parcel"
    home.mkdir(parents=True)
    parcel.mkdir()
    script_sha256 = fill(parcel, command, corpus, tmp_path / "c")
    shutil.copytree(parcel, tmp_path / "sent")
    told = LaneOrder(home.name, "", 60, script_sha256=script_sha256)
    return Received(tmp_path / "sent", home, replace(told, **order))


def there(spec: TrialSpec, got: Received, **texts: bytes) -> TrialSpec:
    return got.localised(spec, texts, has_corpus=True)


def test_a_small_corpus_is_sent_and_is_the_same_there(corpus: Corpus, tmp_path: Path) -> None:
    spec = trial_spec(corpus.directory, corpus_sha256=corpus.info.sha256)
    found = there(spec, received(tmp_path, corpus=corpus.directory))
    assert Path(found.corpus_dir).is_relative_to(tmp_path / "sent")
    assert open_corpus(Path(found.corpus_dir)).info == corpus.info


def test_a_large_corpus_must_be_at_its_path(
    corpus: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST_CORPUS_BYTES", 100)
    disk = tmp_path / "disk"
    shutil.copytree(corpus.directory, disk)
    spec = trial_spec(disk, corpus_sha256=corpus.info.sha256)
    assert there(spec, received(tmp_path / "a", corpus=disk)).corpus_dir == str(disk)
    got = received(tmp_path / "b", corpus=disk)
    shutil.rmtree(disk)
    with pytest.raises(CorpusError):
        there(spec, got)


def test_a_corpus_that_was_damaged_is_refused(corpus: Corpus, tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    shutil.copytree(corpus.directory, disk)
    spec = trial_spec(disk, corpus_sha256=corpus.info.sha256)
    got = received(tmp_path, corpus=disk)
    for place in (disk, tmp_path / "sent" / "corpus-files"):
        data = bytearray((place / "train.bin").read_bytes())
        data[100] ^= 1
        (place / "train.bin").write_bytes(data)
    with pytest.raises(CorpusError):
        there(spec, got)


def test_a_text_is_kept_by_its_hash(corpus: Corpus, tmp_path: Path) -> None:
    """The trial itself checks the hash."""
    data = bytes(range(200))
    text = ScoredText(
        name="second",
        path="/elsewhere",
        sha256=hashlib.sha256(data).hexdigest(),
        parts=(TextPart(tokens=100, bytes=90),),
    )
    got = received(tmp_path, corpus=corpus.directory)
    spec = trial_spec(corpus.directory, corpus_sha256=corpus.info.sha256, texts=(text,))
    [first] = there(spec, got, **{text.sha256: data}).texts
    [again] = there(spec, got).texts
    assert Path(first.path).read_bytes() == data
    assert again == first


def sent(own: Path, tmp_path: Path, **changes: Any) -> tuple[TrialSpec, Received]:
    told = command(directory=str(own), **changes)
    return command_spec(command=told), received(tmp_path, told)


def test_a_script_is_the_same_there(own: Path, tmp_path: Path) -> None:
    (own / "train.py").chmod(0o755)
    (own / "data" / "part.txt").chmod(0o444)
    (own / "data").chmod(0o555)
    spec, got = sent(own, tmp_path)
    tree = Path(known(there(spec, got).command).directory)
    assert tree.is_relative_to(tmp_path / "node")
    assert (tree / "data" / "part.txt").read_text() == "1.25"
    assert (tree / "train.py").stat().st_mode & 0o777 == 0o755
    assert (tree / "data" / "part.txt").stat().st_mode & 0o600 == 0o600, "a copy can be edited"


def test_one_that_changed_on_its_way_is_refused(own: Path, tmp_path: Path) -> None:
    with pytest.raises(SpecError):
        received(tmp_path, command(directory=str(own)), script_sha256="0" * 64)


@pytest.mark.parametrize("damage", ["changed", "added", "removed", "all"])
def test_code_that_was_damaged_there_trains_nothing(own: Path, tmp_path: Path, damage: str) -> None:
    script(own, "x = 1", "part.py")
    spec, got = sent(own, tmp_path)
    tree = Path(known(there(spec, got).command).directory)
    if damage == "added":
        (tree / "more.py").touch()
    if damage == "changed":
        (tree / "part.py").write_text("x = 2")
    if damage == "removed":
        (tree / "part.py").unlink()
    if damage == "all":
        shutil.rmtree(tree)
    with pytest.raises(LaneLost):
        there(spec, got)


@pytest.mark.skipif(Layers.detect().landlock_abi < 3, reason="this kernel cannot confine a trial")
def test_a_trial_runs_of_what_came(own: Path, tmp_path: Path) -> None:
    """The menu reads data of the node's own, in the script's folder and beside it."""
    big = script(own / "big", "0.5", "part.txt")
    (own / "train.py").write_text(
        PRINTS + "\nprint('iter 1: loss', open('big/part.txt').read())\n"
        "for place in ('train.py', 'data/part.txt', 'big/part.txt', 'data/new', 'big/new'):\n"
        "    try:\n"
        "        open(place, 'w')\n"
        "        print('WROTE', place)\n"
        "    except OSError:\n"
        "        pass\n"
    )
    spec, got = sent(own, tmp_path, reads=(str(big),))
    shutil.rmtree(own / "data")
    trial = tmp_path / "node" / "lanes" / ("b" * 16) / "t000001"
    with LocalExecutor(entry=COMMAND_ENTRY) as executor:
        result = executor.submit(there(spec, got), trial).result().result
    log = (trial / "trainer.log").read_text()
    assert isinstance(result, CommandOk), log
    assert result.score == 1.25
    assert "iter 1: loss 0.5" in log
    assert "WROTE" not in log
    assert there(spec, got).command, "the trial has changed nothing of it"
