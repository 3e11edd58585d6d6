"""Turn disk errors while writing a corpus into one sentence."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path

from autoresearch.files import writing


def writing_corpus(directory: Path) -> AbstractContextManager[None]:
    """Return :func:`writing` for a corpus being built."""
    return writing(f"a corpus under {directory}", instead="choose another folder")
