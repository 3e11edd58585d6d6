"""Every invalid input yields one sentence that names it, and leaves no files behind."""

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

from autoresearch.errors import CorpusError, MachineryError
from autoresearch.program import install_command
from tests.support.texts import make_texts, write_folder
from trainer.corpus import corpus_directories, prepare

TEXTS = make_texts(120)
GOOD_LINES = "".join(json.dumps({"text": text}) + "\n" for text in TEXTS)


def write(path: Path, data: bytes | str) -> Path:
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    return path


def good_folder_with(home: Path, name: str, data: bytes | Path) -> Path:
    """Return a folder of good texts and this file, or a link to this path."""
    folder = write_folder(home / "in", TEXTS)
    if isinstance(data, Path):
        (folder / name).symlink_to(data)
    else:
        write(folder / name, data)
    return folder


def pipe(home: Path) -> Path:
    os.mkfifo(home / "pipe.txt")
    return home / "pipe.txt"


def unix_socket(home: Path) -> Path:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(home / "s"))
    return home / "s"


def empty_folder(home: Path) -> Path:
    (home / "in").mkdir()
    write(home / "in" / "a.png", b"1")
    return home / "in"


def parquet(home: Path, column: pyarrow.Array, field: str = "text") -> Path:
    pyarrow.parquet.write_table(pyarrow.table({field: column}), home / "t.parquet")
    return home / "t.parquet"


def lines(home: Path, bad: str) -> Path:
    """Return 120 good lines and a bad one."""
    return write(home / "a.jsonl", GOOD_LINES + bad)


NO_UTF8 = pyarrow.Array.from_buffers(
    pyarrow.string(), 1, [None, pyarrow.py_buffer(b"\0\0\0\0\1\0\0\0"), pyarrow.py_buffer(b"\xff")]
)
REFUSED: dict[str, tuple[Callable[[Path], Path], str]] = {
    "missing": (lambda home: home / "no.txt", "no.txt"),
    "beneath a file": (lambda home: write(home / "f.txt", "x") / "g.txt", "g.txt"),
    "empty": (lambda home: write(home / "a.txt", ""), "a.txt"),
    "blank": (lambda home: write(home / "a.txt", " \n" * 99), ""),
    "empty folder": (empty_folder, "1 of other suffixes"),
    "NUL": (lambda home: write(home / "a.txt", b"line of text\n" * 20_000 + b"\0"), "byte 260,000"),
    "NUL in a folder": (lambda home: good_folder_with(home, "zz.txt", b"a\0"), "zz.txt"),
    "not UTF-8": (lambda home: write(home / "a.txt", "naïve".encode("latin-1")), "byte 2 is 0xef"),
    "not UTF-8 and no lines": (
        lambda home: write(home / "a.txt", b"\x80" * 200_000),
        "byte 0 is 0x80",
    ),
    "dangling link": (lambda home: good_folder_with(home, "b.txt", home / "nowhere"), "b.txt"),
    "link to itself": (lambda home: good_folder_with(home, "b.txt", home / "in/b.txt"), "b.txt"),
    "pipe": (pipe, "pipe.txt"),
    "socket": (unix_socket, "/s"),
    "device": (lambda _: Path("/dev/zero"), "/dev/zero"),
    "broken JSON": (lambda home: lines(home, '{"text": "a"\n'), "a.jsonl line 121"),
    "JSON too deep": (lambda home: lines(home, "[" * 200_000 + "\n"), "a.jsonl line 121"),
    "JSON but no object": (lambda home: lines(home, '["text"]\n'), "a.jsonl line 121"),
    "no such field": (lambda home: lines(home, '{"body": "a", "id": 3}\n'), "only body, id"),
    "field of another type": (lambda home: lines(home, '{"text": 5}\n'), "a.jsonl line 121"),
    "half a surrogate pair": (lambda home: lines(home, '{"text": "a\\ud800"}\n'), "character 1"),
    "not Parquet": (lambda home: write(home / "t.parquet", "plain text, and more"), "t.parquet"),
    "Parquet without the column": (
        lambda home: parquet(home, pyarrow.array(["a"]), "body"),
        "only body",
    ),
    "Parquet of numbers": (lambda home: parquet(home, pyarrow.array([5.0])), "t.parquet row 1"),
    "Parquet of lists": (lambda home: parquet(home, pyarrow.array([["a"]])), "t.parquet row 1"),
    "Parquet not in UTF-8": (lambda home: parquet(home, NO_UTF8), "t.parquet"),
    "one document": (lambda home: write(home / "a.txt", "word " * 5000), "25,000 distinct bytes"),
    "few bytes": (lambda home: write_folder(home / "in", make_texts(30, size=40)), "30 documents"),
    "one many times": (lambda home: write_folder(home / "in", TEXTS[:1] * 500), "1 documents"),
}
"""Sources, each with the place, the number or the field that its refusal names."""


def run_python(code: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("case", REFUSED)
def test_it_is_refused_and_nothing_is_left(case: str, tmp_path: Path) -> None:
    make, named = REFUSED[case]
    source = make(tmp_path)
    cache_dir = tmp_path / "cache"
    with pytest.raises(CorpusError) as caught:
        prepare([str(source)], cache_dir=cache_dir)
    assert named in str(caught.value)
    assert "\n" not in str(caught.value)
    assert corpus_directories(cache_dir) == []
    assert {path.name for path in cache_dir.glob("*")} <= {".lock"}
    assert {path.name for path in cache_dir.glob(".*")} <= {".lock"}


@pytest.mark.parametrize(
    ("source", "named"),
    [
        ("hf:", "'hf:'"),
        ("hf:{home}/none", "none:train"),
        ("hf:{home}/set:test", "set:test"),
        ("hf:{home}/set@other", "set@other:train"),
        ("hf:{home}/set", "only body"),
    ],
)
def test_a_dataset_that_is_not_there(source: str, named: str, tmp_path: Path) -> None:
    (tmp_path / "set").mkdir()
    write(tmp_path / "set" / "train.jsonl", '{"body": "a"}\n')
    with pytest.raises(CorpusError) as caught:
        prepare([source.format(home=tmp_path)], cache_dir=tmp_path / "cache")
    assert named in str(caught.value)


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
    done = run_python(code, folder, tmp_path / "cache")
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
    done = run_python(code, module, source, tmp_path / "cache")
    last_line = done.stderr.strip().splitlines()[-1]
    assert install_command(extra) in last_line
    assert "CorpusError" in last_line


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
    rows = sum(1 for _ in parquet_documents(file, path, "text"))
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


def test_a_parquet_bomb_whose_footer_lies_is_refused(tmp_path: Path) -> None:
    bomb = tmp_path / "bomb.parquet"
    write_rows(bomb, "x" * (256 << 20), rows=1, plain=True)
    column = pyarrow.parquet.ParquetFile(bomb).metadata.row_group(0).column(0)
    told = varint(column.total_uncompressed_size, 5)
    data = bomb.read_bytes()
    footer = int.from_bytes(data[-8:-4], "little") + 8
    lies = data[-footer:].replace(told, varint(1000, 5))
    bomb.write_bytes(data[:-footer] + lies)
    column = pyarrow.parquet.ParquetFile(bomb).metadata.row_group(0).column(0)
    assert column.total_uncompressed_size == 1000
    # In a process of its own: this one keeps the memory that it took to write the text.
    code = "from trainer.corpus import records\nrecords.PARQUET_SPARE = 32 << 20\n" + PEAK
    done = run_python(code, bomb)
    assert "CorpusError" in done.stderr.splitlines()[-1]


def varint(number: int, size: int) -> bytes:
    """Return a whole number as Thrift's compact protocol writes it, in ``size`` bytes."""
    bits = [(2 * number >> 7 * place) & 0x7F for place in range(size)]
    return bytes([*(part | 0x80 for part in bits[:-1]), bits[-1]])


@pytest.mark.parametrize(
    ("text", "rows", "most_mib"),
    [
        pytest.param(os.urandom(8 << 20).hex(), 64, 400, id="a dictionary that cannot be packed"),
        pytest.param("x" * (3 << 20), 1000, 200, id="one too small to be refused"),
    ],
)
def test_repeated_texts_fit_in_memory(tmp_path: Path, text: str, rows: int, most_mib: int) -> None:
    repeats = tmp_path / "repeats.parquet"
    write_rows(repeats, text, rows=rows)
    assert repeats.stat().st_size < 32 << 20
    read, growth_mib = run_python(PEAK, repeats).stdout.split()
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
