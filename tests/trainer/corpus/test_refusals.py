"""Every invalid input yields one sentence that names it, and leaves no files behind."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest

from autoresearch.errors import AutoresearchError, CorpusError, MachineryError
from tests.support.texts import make_texts, write_folder
from trainer.corpus import corpus_directories, prepare

TEXTS = make_texts(120)
GOOD_LINES = "".join(json.dumps({"text": text}) + "\n" for text in TEXTS)


def write(path: Path, data: bytes | str) -> Path:
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    return path


def good_folder_with(home: Path, name: str, data: bytes) -> Path:
    folder = write_folder(home / "in", TEXTS)
    write(folder / name, data)
    return folder


def dangling(home: Path) -> Path:
    folder = write_folder(home / "in", TEXTS)
    (folder / "gone.txt").symlink_to(home / "nowhere")
    return folder


def looping_link(home: Path) -> Path:
    folder = write_folder(home / "in", TEXTS)
    (folder / "round.txt").symlink_to(folder / "round.txt")
    return folder


def pipe(home: Path) -> Path:
    os.mkfifo(home / "pipe.txt")
    return home / "pipe.txt"


def unix_socket(home: Path) -> Path:
    path = home / "s"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
    return path


def empty_folder(home: Path) -> Path:
    (home / "in").mkdir()
    write(home / "in" / "a.png", b"1")
    return home / "in"


def parquet(home: Path, column: pyarrow.Array) -> Path:
    pyarrow.parquet.write_table(pyarrow.table({"body": column}), home / "t.parquet")
    return home / "t.parquet"


def lines(home: Path, bad: bytes | str) -> Path:
    path = write(home / "a.jsonl", GOOD_LINES)
    with path.open("ab") as file:
        file.write(bad if isinstance(bad, bytes) else bad.encode())
    return path


REFUSED: dict[str, tuple[Callable[[Path], Path], str]] = {
    "missing": (lambda home: home / "no.txt", "no.txt: No such file or directory; check the path"),
    "beneath a file": (
        lambda home: write(home / "f.txt", "x") / "g.txt",
        "g.txt: Not a directory; check the path",
    ),
    "empty": (lambda home: write(home / "a.txt", ""), "a.txt is empty; choose a file"),
    "blank": (lambda home: write(home / "a.txt", " \n" * 99), "only white space; choose"),
    "empty folder": (empty_folder, "in holds no text, JSONL or Parquet file (1 of other suffixes)"),
    "NUL": (
        lambda home: write(home / "a.bin", b"abc\0def" * 9),
        "a.bin is binary: byte 3 is NUL; leave it out",
    ),
    "NUL far into a large file": (
        lambda home: write(home / "a.txt", b"line of text\n" * 20_000 + b"\0"),
        "a.txt is binary: byte 260,000 is NUL",
    ),
    "not UTF-8": (
        lambda home: write(home / "a.txt", "naïve".encode("latin-1")),
        "a.txt is not UTF-8 text: byte 2 is 0xef; leave it out, or save it as UTF-8",
    ),
    "not UTF-8 and no lines": (
        lambda home: write(home / "a.txt", b"\x80" * 200_000),
        "a.txt is not UTF-8 text: byte 0 is 0x80",
    ),
    "binary in a folder": (
        lambda home: good_folder_with(home, "zz.txt", b"a\0"),
        "zz.txt is binary: byte 1 is NUL",
    ),
    "UTF-16": (lambda home: write(home / "a.txt", "text".encode("utf-16")), "a.txt is binary"),
    "dangling link in a folder": (dangling, "gone.txt is a symbolic link to nothing; fix the"),
    "link to itself": (looping_link, "round.txt: Too many levels of symbolic links"),
    "pipe": (pipe, "pipe.txt is not a regular file; choose a file or folder of text"),
    "socket": (unix_socket, "cannot read"),
    "device": (lambda _: Path("/dev/zero"), "/dev/zero is not a regular file"),
    "broken JSON": (
        lambda home: lines(home, '{"text": "a"\n'),
        "a.jsonl line 121 is not JSON in UTF-8 (Expecting ',' delimiter); fix or remove",
    ),
    "JSON not in UTF-8": (
        lambda home: lines(home, b'{"text": "\xff"}\n'),
        "a.jsonl line 121 is not JSON in UTF-8 ('utf-8' codec",
    ),
    "JSON too deep": (
        lambda home: lines(home, "[" * 200_000 + "\n"),
        "a.jsonl line 121 is not JSON in UTF-8 (",
    ),
    "JSON but no object": (
        lambda home: lines(home, '["text"]\n'),
        "a.jsonl line 121 is a JSON list, not an object",
    ),
    "no such field": (
        lambda home: lines(home, '{"body": "a", "id": 3}\n'),
        "a.jsonl line 121 has no field 'text', only body, id; set --text-field to the one that",
    ),
    "no field at all": (lambda home: lines(home, "{}\n"), "has no field 'text', only none"),
    "field of another type": (
        lambda home: lines(home, '{"text": 5}\n'),
        "a.jsonl line 121: the field 'text' is a number, not a string",
    ),
    "half a surrogate pair": (
        lambda home: lines(home, '{"text": "a\\ud800"}\n'),
        "a.jsonl line 121: the field 'text' holds half a surrogate pair at character 1",
    ),
    "not Parquet": (
        lambda home: write(home / "t.parquet", "plain text, and more of it"),
        "t.parquet cannot be read as Parquet (Parquet magic bytes not found",
    ),
    "Parquet without the column": (
        lambda home: parquet(home, pyarrow.array(["a"])),
        "t.parquet has no field 'text', only body; set --text-field",
    ),
    "one document": (
        lambda home: write(home / "a.txt", "word " * 5000),
        "the text is too small to hold any of it out: a tenth of its 25,000 distinct bytes",
    ),
    "few bytes": (
        lambda home: write_folder(home / "in", make_texts(30, size=40)),
        "distinct bytes in 30 documents must hold 2 documents of 1,024 bytes together; add more",
    ),
    "one document many times": (
        lambda home: write_folder(home / "in", TEXTS[:1] * 500),
        "distinct bytes in 1 documents",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_it_is_refused_and_nothing_is_left(case: str, tmp_path: Path) -> None:
    make, message = REFUSED[case]
    source = make(tmp_path)
    cache_dir = tmp_path / "cache"
    with pytest.raises(CorpusError) as caught:
        prepare([str(source)], cache_dir=cache_dir)
    sentence = str(caught.value)
    assert message in sentence
    assert "\n" not in sentence
    assert not sentence.endswith(".")
    assert corpus_directories(cache_dir) == []
    assert {path.name for path in cache_dir.glob("*")} <= {".lock"}
    assert {path.name for path in cache_dir.glob(".*")} <= {".lock"}


@pytest.mark.parametrize(
    ("column", "message"),
    [
        (pyarrow.array(["a", 5.0][1:]), "t.parquet row 1: the field 'body' is a number"),
        (pyarrow.array([["a"]]), "t.parquet row 1: the field 'body' is a list"),
        (
            pyarrow.Array.from_buffers(
                pyarrow.string(),
                1,
                [None, pyarrow.py_buffer(b"\0\0\0\0\1\0\0\0"), pyarrow.py_buffer(b"\xff")],
            ),
            "t.parquet cannot be read as Parquet ('utf-8' codec",
        ),
    ],
)
def test_a_parquet_column_that_is_no_text(
    column: pyarrow.Array, message: str, tmp_path: Path
) -> None:
    source = parquet(tmp_path, column)
    with pytest.raises(CorpusError) as caught:
        prepare([str(source)], cache_dir=tmp_path / "cache", text_field="body")
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("hf:", "'hf:' names no dataset; write hf:NAME"),
        ("hf:{home}/none", "none:train (Couldn't find any data file"),
        ("hf:{home}/set:test", "set:test (Bad split: test. Available splits: ['train'])"),
        ("hf:{home}/set@other", "set@other:train (BuilderConfig 'other' not found"),
        ("hf:{home}/set", "set:train has no field 'text', only body"),
    ],
)
def test_a_dataset_that_is_not_there(source: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "set").mkdir()
    write(tmp_path / "set" / "train.jsonl", '{"body": "a"}\n')
    with pytest.raises(CorpusError) as caught:
        prepare([source.format(home=tmp_path)], cache_dir=tmp_path / "cache")
    assert message in str(caught.value)


def test_settings_that_make_no_sense(tmp_path: Path) -> None:
    folder = str(write_folder(tmp_path / "in", TEXTS))
    cache_dir = tmp_path / "cache"
    with pytest.raises(CorpusError):
        prepare([], cache_dir=cache_dir)
    with pytest.raises(CorpusError):
        prepare([folder], cache_dir=cache_dir, heldout_bytes=1000)
    for name in ("", "../up", ".hidden", "a/b", "x" * 65):
        with pytest.raises(CorpusError):
            prepare([folder], cache_dir=cache_dir, name=name)
    assert not cache_dir.exists()


def test_a_cache_that_cannot_be_written_is_the_machinerys_fault(tmp_path: Path) -> None:
    folder = str(write_folder(tmp_path / "in", TEXTS))
    occupied = write(tmp_path / "cache", "a file")
    with pytest.raises(MachineryError):
        prepare([folder], cache_dir=occupied)


def test_a_disk_that_refuses_half_way_leaves_nothing(tmp_path: Path) -> None:
    """A limit on the file size simulates the full disk; the write fails the same way."""
    folder = write_folder(tmp_path / "in", make_texts(400, size=1000))
    code = (
        "import resource, sys\n"
        "from pathlib import Path\n"
        "from trainer.corpus import prepare\n"
        "from autoresearch.errors import MachineryError\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (600_000, 600_000))\n"
        "try:\n"
        "    prepare([sys.argv[1]], cache_dir=Path(sys.argv[2]))\n"
        "except MachineryError as error:\n"
        "    print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(folder), str(tmp_path / "cache")],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "cannot write a corpus under" in done.stdout, done.stderr
    assert "File too large" in done.stdout
    assert [path.name for path in (tmp_path / "cache").iterdir()] == [".lock"]


@pytest.mark.parametrize("module", ["pyarrow", "datasets"])
def test_a_missing_extra_is_named(module: str, tmp_path: Path) -> None:
    """Python itself marks an unimportable module with None in ``sys.modules``."""
    source = parquet(tmp_path, pyarrow.array(["a"])) if module == "pyarrow" else "hf:some/set"
    extra = {"pyarrow": "parquet", "datasets": "huggingface"}[module]
    code = (
        "import sys\n"
        "from pathlib import Path\n"
        "from trainer.corpus import prepare\n"
        "sys.modules[sys.argv[1]] = None\n"
        "prepare([sys.argv[2]], cache_dir=Path(sys.argv[3]))\n"
    )
    arguments = [module, str(source), str(tmp_path / "cache")]
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False
    )
    last_line = done.stderr.strip().splitlines()[-1]
    assert f"run: pip install 'autoresearch[{extra}]'" in last_line
    assert issubclass(CorpusError, AutoresearchError)
    assert "CorpusError" in last_line


# --- decompression bombs -------------------------------------------------------------------------

PEAK = """
import sys
from pathlib import Path
import pyarrow.parquet
from trainer.corpus.records import parquet_documents

def peak_mib():
    return int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0]) / 1024

path = Path(sys.argv[1])
before = peak_mib()
with path.open("rb") as file:
    rows = sum(1 for _ in parquet_documents(file, path, "text", lambda _: None))
print(rows, peak_mib() - before)
"""


@pytest.mark.parametrize("use_dictionary", [True, False])
def test_a_parquet_bomb_is_refused(tmp_path: Path, use_dictionary: bool) -> None:
    """A few kilobytes expand to gigabytes: many rows of one text of 16 MiB."""
    bomb = tmp_path / "bomb.parquet"
    write_rows(bomb, "x" * (16 << 20), rows=128 if use_dictionary else 4, plain=not use_dictionary)
    assert bomb.stat().st_size < 1 << 16
    with pytest.raises(CorpusError, match=r"bomb\.parquet"):
        prepare([str(bomb)], cache_dir=tmp_path / "cache")


@pytest.mark.parametrize(
    ("text", "rows", "most_mib"),
    [
        pytest.param(os.urandom(8 << 20).hex(), 64, 400, id="a dictionary that cannot be packed"),
        pytest.param("x" * (3 << 20), 1000, 200, id="one too small to be refused"),
    ],
)
def test_a_long_text_that_many_rows_repeat_is_held_a_few_times(
    tmp_path: Path, text: str, rows: int, most_mib: int
) -> None:
    repeats = tmp_path / "repeats.parquet"
    write_rows(repeats, text, rows=rows)
    assert repeats.stat().st_size < 32 << 20
    done = subprocess.run(
        [sys.executable, "-c", PEAK, repeats], capture_output=True, text=True, check=True
    )
    read, growth_mib = done.stdout.split()
    assert int(read) == rows
    assert float(growth_mib) < most_mib


def write_rows(path: Path, text: str, *, rows: int, plain: bool = False) -> None:
    once = pyarrow.array([text])
    table = pyarrow.table(
        {"text": pyarrow.DictionaryArray.from_arrays(pyarrow.array([0] * rows, "int32"), once)}
    )
    if plain:
        table = pyarrow.table({"text": [text] * rows})
    pyarrow.parquet.write_table(table, path, compression="zstd", use_dictionary=not plain)
