"""Open the files of a campaign, and no others.

A campaign may come from somebody else: a cloned repository brings its own ``runs``, and a colleague
sends a folder. So an entry below a campaign's directory is untrusted: it may be a link to the
user's keys, a pipe that never ends, or a file of terabytes. Every function here takes the
campaign's directory, which the user named and which may be reached through links, and a name below
it, and follows no link from there on. A file is opened only if it is a regular file with one name
that belongs to this user; to read, it may also belong to whoever owns the directory itself.

A trial cannot change names in its campaign's directory. So a folder that was checked by
:func:`make_folder` or :func:`open_folder` may itself be the directory of later calls.

Functions raise OSError, whose ``strerror`` says what is wrong with the entry.
"""

import errno
import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import BinaryIO

from autoresearch.beneath import A_LINK, open_beneath, refused
from autoresearch.files import MOST_BYTES

_NEW_NAME = re.compile(r"\.(.+)\.[0-9a-f]{16}")
"""Names of files that are being written; see :func:`replacing`."""
_MOST_NAMES = 1_000_000
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
# Without O_NONBLOCK, opening a pipe would block; with O_NOCTTY, a terminal does not become ours.
_SAFELY = os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


def open_file(directory: Path, name: str, flags: int = os.O_RDONLY) -> int:
    """Return a descriptor of a regular file below a directory.

    :param flags: as for :func:`os.open`. With O_TRUNC, the file is emptied only once it has passed
        the checks.
    """
    with _folder_of(directory, name) as (folder, last):
        with suppress(FileNotFoundError):
            # Opening a device can have effects, so it is not even opened.
            _check_file(os.stat(last, dir_fd=folder, follow_symlinks=False), folder, name, flags)
        descriptor = open_beneath(folder, last, flags & ~os.O_TRUNC | _SAFELY)
        try:
            _check_file(os.fstat(descriptor), folder, name, flags)
            if flags & os.O_TRUNC:
                os.ftruncate(descriptor, 0)
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor


def read_file(directory: Path, name: str, most_bytes: int = MOST_BYTES) -> bytes:
    """Return a file's content, which may have at most ``most_bytes``."""
    with os.fdopen(open_file(directory, name), "rb") as file:
        too_large = os.fstat(file.fileno()).st_size > most_bytes
        data = b"" if too_large else file.read(most_bytes + 1)
    if too_large or len(data) > most_bytes:
        raise refused(errno.EFBIG, f"it is larger than {most_bytes:,} bytes", name)
    return data


@contextmanager
def replacing(directory: Path, name: str, *, durable: bool = False) -> Iterator[BinaryIO]:
    """Open a new file that becomes ``name`` if the block succeeds and is removed if not; a link of
    that name is replaced, not followed.

    :param durable: after the block the content and the name survive a power cut.
    """
    with _folder_of(directory, name) as (folder, last):
        new = f".{last}.{os.urandom(8).hex()}"
        descriptor = open_beneath(
            folder, new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _SAFELY, 0o666
        )
        try:
            with os.fdopen(descriptor, "wb") as file:
                yield file
                file.flush()
                if durable:
                    os.fsync(file.fileno())
            os.rename(new, last, src_dir_fd=folder, dst_dir_fd=folder)
        except BaseException:
            with suppress(OSError):  # the first error is the one to report
                os.unlink(new, dir_fd=folder)
            raise
        if durable:
            os.fsync(folder)


def replace_file(directory: Path, name: str, data: bytes | str, *, durable: bool = False) -> None:
    """Replace a file's content in one step, as :func:`replacing` does; text as UTF-8."""
    with replacing(directory, name, durable=durable) as file:
        file.write(data.encode() if isinstance(data, str) else data)


def sweep(directory: Path, folder: str = ".", name: str | None = None) -> None:
    """Remove what kills during a replacement of ``name``, or of any file, left in a folder.

    Call it only while holding the sole right to write there.
    """
    for left in names(directory, folder):
        found = _NEW_NAME.fullmatch(left)
        if found is not None and name in (None, found[1]):
            remove(directory, f"{folder}/{left}")


def make_folder(directory: Path, name: str = ".") -> None:
    """Make a folder, with those above it, unless it is there.

    :raises OSError: also if something else is there, such as a link to a folder.
    """
    parts = Path(name).parts
    directory.mkdir(parents=True, exist_ok=True)
    for count in range(1, len(parts) + 1):
        below = str(Path(*parts[:count]))
        with _folder_of(directory, below) as (folder, last), suppress(FileExistsError):
            os.mkdir(last, dir_fd=folder)
    os.close(open_folder(directory, name, writes=True))


def open_folder(directory: Path, name: str = ".", *, writes: bool = False) -> int:
    """Return a descriptor of a folder.

    :param writes: whether the folder must belong to this user.
    """
    root = os.open(directory, _FOLDER)
    try:
        if Path(name) == Path():
            return os.dup(root)
        descriptor = open_beneath(root, name, _FOLDER)
        try:
            _check_owner(os.fstat(descriptor), root, name, writes=writes)
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor
    finally:
        os.close(root)


def sync_folder(directory: Path, name: str = ".") -> None:
    """Sync the names in a folder to disk."""
    descriptor = open_folder(directory, name)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def names(directory: Path, folder: str = ".") -> list[str]:
    """Return the sorted names in a folder, at most a million; none if there is no such folder."""
    try:
        descriptor = open_folder(directory, folder)
    except OSError:
        return []
    try:
        with os.scandir(descriptor) as entries:
            return sorted(entry.name for entry in islice(entries, _MOST_NAMES))
    except OSError:
        return []
    finally:
        os.close(descriptor)


def status_of(directory: Path, name: str) -> os.stat_result | None:
    """Return the status of an entry, of a link itself; None if there is none."""
    try:
        with _folder_of(directory, name) as (folder, last):
            return os.stat(last, dir_fd=folder, follow_symlinks=False)
    except OSError:
        return None


def has_file(directory: Path, name: str) -> bool:
    """Return whether there is a regular file of this name."""
    status = status_of(directory, name)
    return status is not None and stat.S_ISREG(status.st_mode)


def has_folder(directory: Path, name: str) -> bool:
    """Return whether there is a folder of this name."""
    status = status_of(directory, name)
    return status is not None and stat.S_ISDIR(status.st_mode)


def remove(directory: Path, name: str) -> bool:
    """Remove an entry that is not a folder, and return whether there was one; a link itself."""
    try:
        with _folder_of(directory, name) as (folder, last):
            os.unlink(last, dir_fd=folder)
    except FileNotFoundError:
        return False
    return True


def rename(directory: Path, name: str, new: str) -> None:
    """Rename an entry of any kind; a link itself."""
    with _folder_of(directory, name) as (folder, last), _folder_of(directory, new) as (into, to):
        os.rename(last, to, src_dir_fd=folder, dst_dir_fd=into)


def make_shared_folder(directory: Path, name: str) -> None:
    """Make a folder that trials may write, as :func:`make_folder` does.

    :raises OSError: also if a file in it has a second name elsewhere, which trials would write too.
    """
    make_folder(directory, name)
    descriptor = open_folder(directory, name)
    try:
        for _, _, files, folder in os.fwalk(dir_fd=descriptor):
            for file in files:
                status = os.stat(file, dir_fd=folder, follow_symlinks=False)
                if stat.S_ISREG(status.st_mode):
                    _check_file(status, folder, f"{name}/…/{file}", os.O_WRONLY)
    finally:
        os.close(descriptor)


def check_database(directory: Path, name: str) -> None:
    """Check a file that SQLite opens by its path, and the files that it keeps beside it: each must
    be missing, or be one that :func:`open_file` would open for writing."""
    for suffix in ("", "-wal", "-shm", "-journal"):
        with suppress(FileNotFoundError):
            os.close(open_file(directory, name + suffix, os.O_RDWR))


@contextmanager
def _folder_of(directory: Path, name: str) -> Iterator[tuple[int, str]]:
    """Lend a descriptor of the folder that holds ``name``, and the last part of the name."""
    path = Path(name)
    if path.name in {"", ".."}:
        raise refused(errno.EINVAL, "it is not the name of a file", name)
    folder = open_folder(directory, str(path.parent))
    try:
        yield folder, path.name
    finally:
        os.close(folder)


def _check_file(status: os.stat_result, folder: int, name: str, flags: int) -> None:
    if stat.S_ISLNK(status.st_mode):
        raise refused(errno.ELOOP, A_LINK, name)
    if stat.S_ISDIR(status.st_mode):
        raise refused(errno.EISDIR, "it is a folder, not a file", name)
    if not stat.S_ISREG(status.st_mode):
        raise refused(errno.EINVAL, "it is a pipe, a socket or a device, not a regular file", name)
    if status.st_nlink > 1:
        raise refused(
            errno.EMLINK, "it has a second name elsewhere (a hard link); put a copy there", name
        )
    _check_owner(status, folder, name, writes=flags & os.O_ACCMODE != os.O_RDONLY)


def _check_owner(status: os.stat_result, folder: int, name: str, *, writes: bool) -> None:
    mine = os.geteuid()
    allowed = {mine} if writes else {mine, os.fstat(folder).st_uid}
    if status.st_uid not in allowed:
        raise refused(
            errno.EPERM, f"it belongs to user {status.st_uid} and you are user {mine}", name
        )
