"""Files that appear whole or not at all, names that survive a power cut, and what a disk that
refuses is called.

A new file is made beside its place, under a name that nobody else has, and then takes the place in
one step. So two who replace one file at once do not meet, nothing that lies beside the place is
written through or over, and whoever reads the place sees the old content or the new. A kill in the
middle leaves a ``.NAME.…`` beside it, which nothing reads; :func:`sweep` takes it away where nobody
else can be writing.
"""

from __future__ import annotations

import errno
import glob
import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from autoresearch.errors import MachineryError

_NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


@contextmanager
def replacing(path: Path, *, durable: bool = False) -> Iterator[BinaryIO]:
    """A new file, open for writing, that becomes ``path`` where the block ends well and is gone
    where it does not. Its ``name`` is a path, for a library that opens it by itself.

    :param durable: after the block the content and the name would survive a power cut.
    :raises OSError: where the disk refuses; ``path`` is as it was.
    """
    new = path.with_name(f".{path.name}.{os.urandom(8).hex()}")
    with new.open("xb") as file:
        try:
            yield file
            file.flush()
            if durable:
                os.fsync(file.fileno())
            new.replace(path)
        except BaseException:
            with suppress(OSError):  # the first refusal is the one to tell
                new.unlink()
            raise
    if durable:
        sync_directory(path.parent)


def replace_file(path: Path, data: bytes | str, *, durable: bool = False) -> None:
    """Give a file new content in one step, as :func:`replacing` does; text as UTF-8."""
    with replacing(path, durable=durable) as file:
        file.write(data.encode() if isinstance(data, str) else data)


def sweep(path: Path) -> None:
    """Take away what kills in the middle of replacing ``path`` have left beside it.

    Only for whoever alone may write there: another's new file would go, too.

    :raises OSError: where the disk refuses.
    """
    for left in path.parent.glob(f".{glob.escape(path.name)}.{'[0-9a-f]' * 16}"):
        left.unlink()


def sweep_all(directory: Path) -> None:
    """:func:`sweep` for every file of a directory; one that is not there has none."""
    for left in directory.glob(f".*.{'[0-9a-f]' * 16}"):
        left.unlink()


def sync_directory(directory: Path) -> None:
    """See the names in a directory onto the disk: a file's own fsync does not.

    :raises OSError: where the disk refuses.
    """
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def writing_to(directory: Path) -> AbstractContextManager[None]:
    """What :func:`writing` says of a campaign's directory."""
    return writing(f"the campaign in {directory}", instead="name another directory with --campaign")


@contextmanager
def writing(what: object, *, instead: str) -> Iterator[None]:
    """Turn a refusal of the disk into one sentence.

    :param instead: what else to do than to make room there.
    :raises MachineryError: for an OSError within.
    """
    try:
        yield
    except OSError as error:
        mend = "free some space" if error.errno in _NO_ROOM else "make it writable"
        raise MachineryError(
            f"cannot write {what}: {error.strerror or error}; {mend}, or {instead}"
        ) from error


_FULL_BYTES = 1 << 20


@contextmanager
def naming_a_full_disk(directory: Path) -> Iterator[None]:
    """Add which disk is full to a MachineryError, where the one under ``directory`` is.

    :raises MachineryError: for a MachineryError within.
    """
    try:
        yield
    except MachineryError as error:
        try:
            disk = os.statvfs(directory)
        except OSError:
            raise error from None
        free = disk.f_bavail * disk.f_frsize
        if free >= _FULL_BYTES and (disk.f_favail or not disk.f_files):
            raise
        mount = directory.resolve()
        while not mount.is_mount():
            mount = mount.parent
        raise MachineryError(
            f"{error}. The disk mounted at {mount}, where the campaign {directory} is, is full "
            f"({free >> 10:,} KiB and {disk.f_favail:,} files left); free some space there and run "
            "the same command again"
        ) from error
