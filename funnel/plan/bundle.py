"""Write a directory of files atomically.

The files are written to a temporary directory beside the destination, ``.NAME-…``, which is then
renamed. An existing directory is replaced only if no file in it was changed or added since it was
written. It is moved away first: a kill between the two renames leaves it in ``.NAME-…/old``.
"""

import hashlib
import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from pydantic import ValidationError

from autoresearch.errors import HandoffError, MachineryError
from autoresearch.values import Frozen

MANIFEST = "manifest.json"


class Manifest(Frozen):
    """The files of a bundle and their digests."""

    kind: Literal["autoresearch-handoff"] = "autoresearch-handoff"
    files: dict[str, str]
    """SHA-256 of each file by name, without the manifest itself."""


def write_bundle(directory: Path, files: Mapping[str, bytes]) -> None:
    """Write these files, and no others, to ``directory``; files named ``*.sh`` become executable.

    :raises HandoffError: if ``directory`` exists and is not a bundle, or was changed.
    :raises MachineryError: if the directory cannot be written.
    """
    refuse_foreign(directory)
    manifest = Manifest(files={name: _sha256(files[name]) for name in sorted(files)})
    try:
        directory.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(
            prefix=f".{directory.name}-", dir=directory.parent
        ) as workshop:
            made = Path(workshop) / "new"
            made.mkdir()
            for name, content in files.items():
                (made / name).write_bytes(content)
                if name.endswith(".sh"):
                    (made / name).chmod(0o755)
            (made / MANIFEST).write_text(manifest.model_dump_json(indent=2) + "\n", "utf-8")
            if directory.exists():
                directory.rename(Path(workshop) / "old")
            made.rename(directory)
    except OSError as error:
        raise MachineryError(
            f"cannot write {directory} ({error.strerror or error}); free some space, make its "
            "parent writable, or choose another directory with --out"
        ) from error


def refuse_foreign(directory: Path) -> None:
    """Refuse a directory that :func:`write_bundle` must not replace.

    :raises HandoffError: if ``directory`` exists and is not as :func:`write_bundle` left it.
    """
    try:
        if not directory.exists() and not directory.is_symlink():
            return
        problem = _problem(directory)
    except OSError as error:
        problem = f"it cannot be read: {error.strerror or error}"
    if problem:
        raise HandoffError(
            f"{directory} is in the way ({problem}); move it, or choose another with --out"
        )


def _problem(directory: Path) -> str | None:
    if directory.is_symlink() or not directory.is_dir():
        return "it is not a directory"
    present = {path.name for path in directory.iterdir()}
    if not present:
        return None
    try:
        manifest = Manifest.model_validate_json((directory / MANIFEST).read_bytes())
    except (OSError, ValidationError):
        return f"its {MANIFEST} does not say that it is a launch plan"
    if added := sorted(present - manifest.files.keys() - {MANIFEST}):
        return f"{added[0]} in it was not written by this command"
    for name, sha256 in manifest.files.items():
        path = directory / name
        if not path.is_file() or _sha256(path.read_bytes()) != sha256:
            return f"{name} in it was changed since it was written"
    return None


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def json_bytes(value: object) -> bytes:
    """Return a value as indented JSON with a final newline."""
    return (json.dumps(value, indent=2, ensure_ascii=False) + "\n").encode()
