"""Write files atomically and durably, and turn disk errors into one sentence.

A new file is written beside its target under a random name and then renamed over it. So concurrent
writers do not collide, links beside the target are not followed, and readers see the old content or
the new. A kill midway leaves a ``.NAME.…`` file that nothing reads.
"""

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from autoresearch.errors import AutoresearchError, MachineryError

_NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_NO_FILE = {errno.ELOOP, errno.EMLINK, errno.EISDIR, errno.EINVAL, errno.ENOTDIR, errno.EXDEV}
"""Answers of :mod:`autoresearch.campaign_files` for an entry that is no plain file or folder."""


@contextmanager
def replacing(path: Path, *, durable: bool = False) -> Iterator[BinaryIO]:
    """Open a new file for writing that becomes ``path`` if the block succeeds and is removed if
    not.

    Its ``name`` is a path, for a library that opens the file by itself.

    :param durable: after the block the content and the name survive a power cut.
    :raises OSError: if the disk refuses; ``path`` is unchanged.
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
            with suppress(OSError):  # the first error is the one to report
                new.unlink()
            raise
    if durable:
        sync_directory(path.parent)


def replace_file(path: Path, data: bytes | str, *, durable: bool = False) -> None:
    """Replace a file's content in one step, as :func:`replacing` does; text as UTF-8."""
    with replacing(path, durable=durable) as file:
        file.write(data.encode() if isinstance(data, str) else data)


def sync_directory(directory: Path) -> None:
    """Sync the names in a directory to disk: a file's own fsync does not.

    :raises OSError: if the disk refuses.
    """
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read_at(descriptor: int, offset: int, length: int) -> bytes:
    """Return that many bytes of a file, fewer at its end; a signal may cut a single read short."""
    pieces = []
    while length > 0:
        piece = os.pread(descriptor, length, offset)
        if not piece:
            break
        pieces.append(piece)
        offset += len(piece)
        length -= len(piece)
    return b"".join(pieces)


def write_all(descriptor: int, data: bytes) -> None:
    """Write all of the data, which a full disk or a signal may cut into several writes."""
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def writing_to(directory: Path) -> AbstractContextManager[None]:
    """Return :func:`writing` for a campaign's directory."""
    return writing(
        f"the campaign in {directory}", instead="choose another directory with --campaign"
    )


@contextmanager
def writing(what: object, *, instead: str) -> Iterator[None]:
    """Turn an OSError into one sentence.

    :param instead: an alternative to freeing space or permissions there.
    :raises MachineryError: for an OSError within.
    """
    try:
        yield
    except OSError as error:
        fix = "free some space" if error.errno in _NO_ROOM else "make it writable"
        why = error.strerror or str(error)
        if error.errno in _NO_FILE and isinstance(error.filename, str):
            fix, why = "remove it", f"{error.filename}: {why}"
        raise MachineryError(f"cannot write {what}: {why}; {fix}, or {instead}") from error


_FULL_BYTES = 1 << 20


@contextmanager
def naming_full_disk(directory: Path) -> Iterator[None]:
    """Add the full disk's mount point to a MachineryError if the disk under ``directory`` is full.

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


MOST_BYTES = 16 << 20


def read_given(path: Path, most_bytes: int = MOST_BYTES, *, through_links: bool = True) -> bytes:
    """Return the content of a regular file, without waiting for a pipe or reading a device.

    :param through_links: see :func:`open_regular`.
    :raises OSError: if it cannot be read, is not a regular file, or is larger than ``most_bytes``;
        ``strerror`` says which.
    """
    with os.fdopen(open_regular(path, through_links=through_links), "rb") as file:
        data = file.read(most_bytes + 1)
    if len(data) > most_bytes:
        raise OSError(errno.EFBIG, f"it is larger than {most_bytes >> 20} MiB", str(path))
    return data


def open_regular(path: Path, *, through_links: bool = True) -> int:
    """Return a descriptor that reads a regular file.

    :param through_links: False if whoever could have put a link there, or a second name of another
        file, is not trusted.
    :raises OSError: if it cannot be read or is not a regular file; ``strerror`` says which.
    """
    # Without O_NONBLOCK, opening a pipe without a writer would block forever.
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC
    if not through_links:
        _refuse_second_name(path, path.lstat())
    descriptor = os.open(path, flags if through_links else flags | os.O_NOFOLLOW)
    status = os.fstat(descriptor)
    mode = status.st_mode
    try:
        if not through_links:
            _refuse_second_name(path, status)
        if stat.S_ISREG(mode):
            return descriptor
    except OSError:
        os.close(descriptor)
        raise
    os.close(descriptor)
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    raise OSError(errno.EINVAL, "it is a device or a pipe, not a regular file", str(path))


def _refuse_second_name(path: Path, status: os.stat_result) -> None:
    if stat.S_ISREG(status.st_mode) and status.st_nlink > 1:
        raise OSError(errno.EMLINK, "it has a second name elsewhere (a hard link)", str(path))


def write_new(path: Path, text: str, *, error: type[AutoresearchError]) -> None:
    """Write the whole file or nothing.

    :raises AutoresearchError: an ``error`` if the file exists with other content.
    """
    with writing(path, instead="choose another file"):
        if path.exists() and path.read_bytes() != text.encode():
            raise error(
                f"{path} exists already with other content; choose another file, or remove that one"
            )
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, text)
