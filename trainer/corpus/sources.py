"""Read text from the standard library, files and folders, and Hugging Face datasets.

A source is one string:

- ``stdlib``: the Python standard library's own ``.py`` files, without its test suites;

- a path to a file of text, or to a folder, which is walked for text files by suffix, JSONL and
Parquet. Hidden entries, ``__pycache__`` and other suffixes are skipped, and the latter counted.
Symbolic links are followed, and each folder is read once. A file that is given itself is read as
text whatever its suffix;

- ``hf:NAME[@CONFIG][:SPLIT]``: a Hugging Face dataset (``train`` by default), streamed; NAME may be
a local folder.

Text must be UTF-8; a byte order mark is dropped. Unreadable input raises a CorpusError that names
the file and, in JSONL, the line.
"""

import os
import re
import stat
import sys
import sysconfig
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from autoresearch.errors import CorpusError
from autoresearch.files import open_regular
from trainer.corpus.documents import cut
from trainer.corpus.records import dataset_documents, jsonl_documents, parquet_documents

TEXT_SUFFIXES = frozenset(
    ".txt .text .md .markdown .rst .adoc .tex .org .py .pyi .c .h .cc .cpp .hpp .cu .cuh .rs .go "
    ".java .kt .scala .js .mjs .ts .tsx .jsx .rb .php .pl .lua .r .jl .hs .ml .swift .sh .sql .css "
    ".html .htm .xml .toml .yaml .yml .ini .cfg .srt .vtt".split()
)
RECORDS: Mapping[str, Callable[[BinaryIO, Path, str], Iterator[bytes]]] = {
    ".jsonl": jsonl_documents,
    ".ndjson": jsonl_documents,
    ".parquet": parquet_documents,
    ".pq": parquet_documents,
}
"""Readers of the texts in a file of records, by suffix."""
READ_SUFFIXES = TEXT_SUFFIXES | RECORDS.keys()

TEST_FOLDERS = frozenset({"test", "tests", "idle_test"})
BLOCK_BYTES = 1 << 20
BYTE_ORDER_MARK = b"\xef\xbb\xbf"

_HUB_SOURCE = re.compile(r"hf:(?P<name>[^:@]+)(@(?P<config>[^:]+))?(:(?P<split>.+))?")


@dataclass(frozen=True, slots=True)
class SourceFile:
    path: Path
    size: int


@dataclass(frozen=True, slots=True)
class HubDataset:
    name: str
    config: str | None
    split: str


class SourceReader:
    """Reads the documents of several sources, each text cut into documents as :mod:`documents`
    describes.

    :raises CorpusError: at construction, for a source that is missing or holds nothing to read;
        from :meth:`documents`, for a file that cannot be read.
    """

    def __init__(self, sources: Sequence[str], text_field: str) -> None:
        if not sources:
            raise CorpusError("no source was given; choose stdlib, a file, a folder or hf:NAME")
        self._text_field = text_field
        self._parts: list[SourceFile | HubDataset] = []
        self.skipped_files = 0
        self.read_bytes = 0
        """Bytes of the sources read so far."""
        for source in sources:
            self._parts += self._expand(source)

    @property
    def total_bytes(self) -> int | None:
        """Bytes to read; None if a dataset does not report them."""
        sizes = [part.size for part in self._parts if isinstance(part, SourceFile)]
        return sum(sizes) if len(sizes) == len(self._parts) else None

    def documents(self) -> Iterator[bytes]:
        """Yield every document as UTF-8, blank ones and duplicates included."""
        for part in self._parts:
            if isinstance(part, SourceFile):
                end = self.read_bytes + part.size
                for document in self._file_documents(part.path):
                    yield document
                    self.read_bytes = min(end, self.read_bytes + len(document))
                self.read_bytes = end
            else:
                for text in dataset_documents(part.name, part.config, part.split, self._text_field):
                    self.read_bytes += len(text)
                    yield from cut([text])

    def _file_documents(self, path: Path) -> Iterator[bytes]:
        kind = path.suffix.lower()
        try:
            with os.fdopen(open_regular(path), "rb") as file:
                if kind not in RECORDS:
                    yield from _checked(cut(_blocks(file)), path)
                    return
                for text in RECORDS[kind](file, path, self._text_field):
                    yield from cut([text])
        except OSError as error:
            raise _unreadable(path, error) from error

    # --- which files ---

    def _expand(self, source: str) -> Sequence[SourceFile | HubDataset]:
        if source == "stdlib":
            return list(_stdlib_files())
        if source.startswith("hf:"):
            match = _HUB_SOURCE.fullmatch(source)
            if match is None:
                raise CorpusError(
                    f"{source!r} names no dataset; write hf:NAME, hf:NAME:SPLIT or"
                    " hf:NAME@CONFIG:SPLIT"
                )
            return [HubDataset(match["name"], match["config"], match["split"] or "train")]
        path = Path(source).expanduser()
        try:
            return self._expand_path(path)
        except OSError as error:
            raise _unreadable(Path(error.filename or path), error) from error

    def _expand_path(self, path: Path) -> list[SourceFile]:
        status = path.stat()
        if not stat.S_ISDIR(status.st_mode):
            if status.st_size == 0 and stat.S_ISREG(status.st_mode):
                raise CorpusError(f"{path} is empty; choose a file with text")
            return [SourceFile(path, status.st_size)]
        files = []
        for file in _walk(path):
            found = file.stat() if file.suffix.lower() in READ_SUFFIXES else None
            if found is not None and stat.S_ISREG(found.st_mode):
                files.append(SourceFile(file, found.st_size))
            else:
                self.skipped_files += 1  # of another suffix; or a pipe, socket or device
        if not files:
            raise CorpusError(
                f"the folder {path} holds no text, JSONL or Parquet file "
                f"({self.skipped_files} of other suffixes); choose another, or a file in it"
            )
        return sorted(files, key=lambda file: file.path)


def _walk(folder: Path) -> Iterator[Path]:
    """Yield every file below, without hidden ones, each folder once however many links lead to
    it."""

    def fail(error: OSError) -> None:
        raise error

    seen: set[tuple[int, int]] = set()
    for current, subfolders, names in os.walk(folder, followlinks=True, onerror=fail):
        status = Path(current).stat()
        identity = (status.st_dev, status.st_ino)
        if identity in seen:
            subfolders.clear()
            continue
        seen.add(identity)
        subfolders[:] = sorted(
            name for name in subfolders if not name.startswith(".") and name != "__pycache__"
        )
        yield from (Path(current, name) for name in names if not name.startswith("."))


def _stdlib_files() -> Iterator[SourceFile]:
    """Yield the standard library's files by module names, without a distribution's additions."""
    root = Path(sysconfig.get_path("stdlib"))
    found = False
    for name in sorted(sys.stdlib_module_names):
        module = root / f"{name}.py"
        paths = [module] if module.is_file() else []
        if (root / name).is_dir():
            paths += [
                path
                for path in _walk(root / name)
                if path.suffix == ".py" and TEST_FOLDERS.isdisjoint(path.relative_to(root).parts)
            ]
        for path in paths:
            found = True
            yield SourceFile(path, path.stat().st_size)
    if not found:
        raise CorpusError(
            f"this Python has no standard library source in {root}; choose a folder of text instead"
        )


# --- reading ---


def _blocks(file: BinaryIO) -> Iterator[bytes]:
    yield file.read(BLOCK_BYTES).removeprefix(BYTE_ORDER_MARK)
    while block := file.read(BLOCK_BYTES):
        yield block


def _checked(documents: Iterable[bytes], path: Path) -> Iterator[bytes]:
    """Yield the same documents after checking that each is text."""
    offset = 0
    for document in documents:
        try:
            document.decode()
            at = document.find(b"\0")
        except UnicodeDecodeError as error:
            at = error.start
        if at >= 0:
            raise CorpusError(
                f"{path} is not UTF-8 text: byte {offset + at:,} is 0x{document[at]:02x}; leave "
                "it out, or save it as UTF-8"
            )
        offset += len(document)
        yield document


def _unreadable(path: Path, error: OSError) -> CorpusError:
    return CorpusError(
        f"cannot read {path}: {error.strerror or error}; check the path and its permissions"
    )
