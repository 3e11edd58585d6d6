"""Read text from the standard library, files and folders, and Hugging Face datasets.

A source is one string:

- ``stdlib``: the Python standard library's own ``.py`` files, without its test suites;

- a path to a file of text, or to a folder, which is walked for text files by suffix, JSONL and
Parquet. Hidden entries, ``__pycache__`` and other suffixes are skipped, and the latter counted.
Symbolic links are followed within the folder, and each folder is read once; a link out of it is
refused, because whoever made the folder could link to the reader's private texts. A file that is
given itself is read as text whatever its suffix;

- ``hf:NAME[@CONFIG][:SPLIT]``: a Hugging Face dataset (``train`` by default), streamed; NAME may be
a local folder.

Text must be UTF-8; a byte order mark is dropped. Unreadable input raises a CorpusError that names
the file and, in JSONL, the line.
"""

import math
import os
import re
import stat
import sys
import sysconfig
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
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
        self.skipped_files = 0
        self.read_bytes = 0
        """Bytes of the sources read so far."""
        self._parts: list[tuple[int | None, Iterable[bytes]]] = []
        """Bytes of each file, and its documents; None for a dataset, which does not report them."""
        for source in sources:
            if source.startswith("hf:"):
                match = _HUB_SOURCE.fullmatch(source)
                if match is None:
                    raise CorpusError(
                        f"{source!r} names no dataset; write hf:NAME, hf:NAME:SPLIT or"
                        " hf:NAME@CONFIG:SPLIT"
                    )
                part = match["name"], match["config"], match["split"] or "train"
                self._parts.append((None, _each_cut(dataset_documents(*part, text_field))))
                continue
            path = Path(source).expanduser()
            try:
                paths = _stdlib_files() if source == "stdlib" else self._files(path)
                self._parts += [(file.stat().st_size, self._file_documents(file)) for file in paths]
            except OSError as error:
                raise _unreadable(Path(error.filename or path), error) from error

    @property
    def total_bytes(self) -> int | None:
        """Bytes to read; None if a dataset does not report them."""
        sizes = [size for size, _ in self._parts if size is not None]
        return sum(sizes) if len(sizes) == len(self._parts) else None

    def documents(self) -> Iterator[bytes]:
        """Yield every document as UTF-8, blank ones and duplicates included."""
        for size, documents in self._parts:
            end = math.inf if size is None else self.read_bytes + size
            for document in documents:
                yield document
                self.read_bytes = int(min(end, self.read_bytes + len(document)))
            if size is not None:
                self.read_bytes = int(end)

    def _file_documents(self, path: Path) -> Iterator[bytes]:
        kind = path.suffix.lower()
        try:
            with os.fdopen(open_regular(path), "rb") as file:
                if kind in RECORDS:
                    yield from _each_cut(RECORDS[kind](file, path, self._text_field))
                else:
                    first = file.read(BLOCK_BYTES).removeprefix(BYTE_ORDER_MARK)
                    blocks = chain([first], iter(partial(file.read, BLOCK_BYTES), b""))
                    yield from _checked(cut(blocks), path)
        except OSError as error:
            raise _unreadable(path, error) from error

    # --- which files ---

    def _files(self, path: Path) -> list[Path]:
        status = path.stat()
        if not stat.S_ISDIR(status.st_mode):
            if status.st_size == 0 and stat.S_ISREG(status.st_mode):
                raise CorpusError(f"{path} is empty; choose a file with text")
            return [path]
        files = []
        for file in _walk(path, within=Path(os.path.realpath(path))):
            if file.suffix.lower() in READ_SUFFIXES and stat.S_ISREG(file.stat().st_mode):
                files.append(file)
            else:
                self.skipped_files += 1  # of another suffix; or a pipe, socket or device
        if not files:
            raise CorpusError(
                f"the folder {path} holds no text, JSONL or Parquet file "
                f"({self.skipped_files} of other suffixes); choose another, or a file in it"
            )
        return sorted(files)


def _each_cut(texts: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the documents of each text."""
    for text in texts:
        yield from cut([text])


def _walk(folder: Path, within: Path | None = None) -> Iterator[Path]:
    """Yield every file below, without hidden ones, each folder once however many links lead to it.

    :param within: the folder's real path, which no link may leave; None: links may lead anywhere.
    :raises CorpusError: at a link that leaves it.
    """

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
        if within is not None:
            for name in (*subfolders, *names):
                _refuse_leading_out(Path(current, name), within)
        subfolders[:] = sorted(
            name for name in subfolders if not name.startswith(".") and name != "__pycache__"
        )
        yield from (Path(current, name) for name in names if not name.startswith("."))


def _refuse_leading_out(path: Path, within: Path) -> None:
    if path.is_symlink() and not path.name.startswith("."):
        target = Path(os.path.realpath(path))
        if not target.is_relative_to(within):
            raise CorpusError(
                f"{path} is a link out of the folder, to {target}; give that as a source of its "
                "own if you want its text, or remove the link"
            )


def _stdlib_files() -> list[Path]:
    """Return the standard library's files by module names, without a distribution's additions."""
    root = Path(sysconfig.get_path("stdlib"))
    found = []
    for name in sorted(sys.stdlib_module_names):
        module = root / f"{name}.py"
        found += [module] if module.is_file() else []
        if (root / name).is_dir():
            found += [
                path
                for path in _walk(root / name)
                if path.suffix == ".py" and TEST_FOLDERS.isdisjoint(path.relative_to(root).parts)
            ]
    if not found:
        raise CorpusError(
            f"this Python has no standard library source in {root}; choose a folder of text instead"
        )
    return found


# --- reading ---


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
