"""Triton's cache for a Linux that refuses renames between directories (Landlock ABI 1, 5.13-5.18).

Importing this module imports Triton, which finds the class by TRITON_CACHE_MANAGER.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from triton.runtime.cache import FileCacheManager


class OneDirectoryCache(FileCacheManager):  # type: ignore[misc]
    """Write each file beside its final place; Triton's own cache writes it one directory below."""

    def put(self, data: object, filename: str, binary: bool = True) -> str:
        """Store ``data`` atomically and return its path."""
        content = data if isinstance(data, bytes) else str(data).encode()
        with tempfile.NamedTemporaryFile(dir=self.cache_dir, delete=False) as file:
            file.write(content)
        return str(Path(file.name).replace(self._make_path(filename)))
