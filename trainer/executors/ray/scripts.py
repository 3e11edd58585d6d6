"""Scripts on a node: sent there once, by hash, verified there, read by trials and written by none.

    DIRECTORY/scripts/<sha256>/manifest.json    which hashes to that name
    DIRECTORY/scripts/<sha256>/tree/            what it says, and nothing besides
    DIRECTORY/scripts/<sha256>/used             when it was last, by its time; locked meanwhile

One is put together in the lane's home, which goes with the lane, and takes its place once all of it
hashes to what was promised. One that no lane has used for two weeks goes when the next one comes.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from pydantic import ValidationError

from autoresearch.errors import SpecError
from autoresearch.files import writing
from autoresearch.plain_text import plain
from trainer.command.tree import Manifest, TreeFile

MANIFEST, CONTENTS = "manifest.json", "contents"
PARTS = (MANIFEST, CONTENTS)
"""What a script is sent as."""
_TREE = "tree"
_USED = "used"
_UNUSED_S = 14 * 86_400.0
_CHUNK_BYTES = 1 << 20


class Scripts:
    """The node's side, for one lane.

    :raises MachineryError: from any method, where the disk refuses.
    """

    def __init__(self, directory: Path, home: Path) -> None:
        """
        :param home: the lane's, where nobody else writes.
        """
        self._scripts = directory / "scripts"
        self._arriving = home / ".script"
        self._used: tuple[str, int] | None = None
        """The hash of the script in use, and the descriptor that holds its lock."""
        self._door = threading.Lock()

    def find(self, sha256: str) -> Path | None:
        """The directory of the script of that hash, if it is here and not a byte of it has
        changed; it alone is in use from then on."""
        with self._door:
            folder = self._scripts / sha256
            if self._used is None or self._used[0] != sha256:
                with self._writing():
                    lock = _locked(folder, sha256)
                if lock is None:
                    return None
                self._let_go()
                self._used = sha256, lock
            return folder / _TREE

    def take(self, sha256: str, name: str, data: bytes) -> None:
        """Add a piece to a part of the script that is to hash to ``sha256``: its manifest, which is
        one piece, and then its contents."""
        with self._door, self._writing():
            folder = self._arriving / sha256
            if name == MANIFEST:
                shutil.rmtree(self._arriving, ignore_errors=True)  # what came half, and no further
            folder.mkdir(parents=True, exist_ok=True)
            with (folder / PARTS[PARTS.index(name)]).open("ab") as part:
                part.write(data)

    def keep(self, sha256: str) -> None:
        """All pieces have come: put them together, verify them, and keep them.

        :raises SpecError: where they are not what was promised.
        """
        folder = self._arriving / sha256
        with self._door, self._writing():
            try:
                (folder / CONTENTS).touch()
                _unpack(folder, sha256)
                (folder / _USED).touch()
                self._publish(folder, sha256)
            finally:
                shutil.rmtree(self._arriving, ignore_errors=True)

    def close(self) -> None:
        """The lane uses none any more."""
        with self._door:
            self._let_go()

    def _let_go(self) -> None:
        if self._used is not None:
            os.close(self._used[1])
            self._used = None

    def _publish(self, folder: Path, sha256: str) -> None:
        self._scripts.mkdir(parents=True, exist_ok=True)
        with (self._scripts / ".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            self._remove_unused()
            there = self._scripts / sha256
            if _is_intact(there, sha256):  # by another lane of this node meanwhile
                os.utime(there / _USED)
                return
            if there.exists():
                there.rename(self._arriving / "damaged")
            folder.rename(there)

    def _remove_unused(self) -> None:
        for other in self._scripts.glob(f"[!.]*/{_USED}"):
            with contextlib.suppress(OSError), other.open("r+") as used:
                if not _is_unused(used.fileno()):
                    continue
                fcntl.flock(used, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if _is_unused(used.fileno()):  # nor was it taken into use before the lock
                    shutil.rmtree(other.parent, ignore_errors=True)

    def _writing(self) -> contextlib.AbstractContextManager[None]:
        return writing(f"a script under {self._scripts}", instead="set AUTORESEARCH_DATA_DIR there")


def _locked(folder: Path, sha256: str) -> int | None:
    """A descriptor whose lock keeps a script from going; None where it is not there whole.

    The lock comes first. Who waited for that of one that was being removed holds it on a file
    without a name.
    """
    used = folder / _USED
    with contextlib.suppress(FileNotFoundError), used.open("r+b") as file:
        fcntl.flock(file, fcntl.LOCK_SH)
        is_named = os.path.samestat(os.fstat(file.fileno()), used.stat())
        if is_named and _is_intact(folder, sha256):
            os.utime(file.fileno())
            return os.dup(file.fileno())  # which keeps the lock
    return None


def _is_unused(used: int) -> bool:
    return time.time() - os.fstat(used).st_mtime > _UNUSED_S


def _manifest(folder: Path, sha256: str) -> Manifest | None:
    """What a script is to hold; None where that is not here, or is another's."""
    try:
        data = (folder / MANIFEST).read_bytes()
        if hashlib.sha256(data).hexdigest() != sha256:
            return None
        return Manifest.model_validate_json(data)
    except (OSError, ValidationError):
        return None


def _unpack(folder: Path, sha256: str) -> None:
    """
    :raises SpecError: where what came is not what was promised.
    """
    manifest = _manifest(folder, sha256)
    if manifest is not None:
        tree = folder / _TREE
        tree.mkdir()
        for path in manifest.folders:
            (tree / path).mkdir()
        with (folder / CONTENTS).open("rb") as contents:
            for file in manifest.files:
                _write(tree / file.path, file, contents)
        for link in manifest.links:  # last: nothing is written through one
            (tree / link.path).symlink_to(link.target)
        (folder / CONTENTS).unlink()
    wrong = _fault(folder, sha256)
    if wrong:
        raise SpecError(
            f"what arrived as script {sha256:.16} hashes to something else: {plain(wrong)} in its"
            " directory was written over meanwhile; have that written elsewhere, or run this again"
            " once nobody does"
        )


def _write(path: Path, file: TreeFile, contents: BinaryIO) -> None:
    left = file.size_bytes
    with path.open("xb") as new:
        while left and (chunk := contents.read(min(left, _CHUNK_BYTES))):
            new.write(chunk)
            left -= len(chunk)
    # Not by its mode is it kept from trials, who may copy it and change the copy.
    path.chmod(0o755 if file.runs else 0o644)


def _is_intact(folder: Path, sha256: str) -> bool:
    """Whether all that was sent is there, as it was, and nothing else."""
    try:
        return not _fault(folder, sha256)
    except OSError:
        return False


def _fault(folder: Path, sha256: str) -> str:
    """The first path at which a script is not what it is to be; empty where it is."""
    manifest = _manifest(folder, sha256)
    if manifest is None:
        return MANIFEST
    held = dict(_held(folder / _TREE))
    expected = {
        **dict.fromkeys(manifest.folders, ""),
        **{file.path: file.sha256 for file in manifest.files},
        **{link.path: f"-> {link.target}" for link in manifest.links},
    }
    paths = (*expected, *held)
    return next((path for path in paths if held.get(path) != expected.get(path)), "")


def _held(tree: Path) -> Iterator[tuple[str, str]]:
    """All that a directory holds: files by their hashes, links by where they lead."""
    left = [tree]
    while left:
        for path in left.pop().iterdir():
            name = path.relative_to(tree).as_posix()
            if path.is_symlink():
                yield name, f"-> {path.readlink()}"
            elif path.is_dir():
                left.append(path)
                yield name, ""
            else:
                with path.open("rb") as file:
                    yield name, hashlib.file_digest(file, "sha256").hexdigest()
