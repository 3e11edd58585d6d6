"""What a disk that refuses a corpus is called."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path

from autoresearch.files import writing


def writing_corpus(directory: Path) -> AbstractContextManager[None]:
    """What :func:`writing` says of a corpus in the making."""
    return writing(f"a corpus under {directory}", instead="choose another folder")
