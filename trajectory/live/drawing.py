"""Reports drawn when a client asks for one.

Drawing takes seconds and much memory, so it happens in a process of its own, one at a time.
"""

import asyncio
import tempfile
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import Sequence
from pathlib import Path

from autoresearch.errors import MachineryError
from autoresearch.layout import REPORT_PAGE

DRAWING_S = 120.0
"""Timeout of a drawing in seconds."""


class Drawer:
    """Draws the reports of campaigns, and keeps each page until its campaign has more rows."""

    def __init__(self, command: Sequence[str]) -> None:
        """
        :param command: draws a report; ``--campaign DIR --out DIR`` is appended.
        """
        self._command = tuple(command)
        self._one_at_a_time = asyncio.Lock()
        self._drawn: dict[Path, tuple[int, bytes]] = {}
        """Number of rows and page, by campaign."""

    async def page(self, directory: Path, rows: int) -> bytes:
        """Return the HTML page of a campaign's report.

        A cancelled call ends the drawing.

        :param rows: rows of its journal now.
        :raises MachineryError: if the drawing fails or takes longer than :data:`DRAWING_S`.
        """
        async with self._one_at_a_time:
            if self._drawn.get(directory, (-1, b""))[0] != rows:
                self._drawn[directory] = rows, await self._draw(directory)
            return self._drawn[directory][1]

    async def _draw(self, directory: Path) -> bytes:
        with tempfile.TemporaryDirectory(prefix="autoresearch-report-") as folder:
            place = ("--campaign", str(directory), "--out", folder)
            # Not anyio.run_process: where asyncio cancels its task, it waits for the process.
            process = await asyncio.create_subprocess_exec(
                *self._command, *place, stdin=DEVNULL, stdout=DEVNULL, stderr=PIPE
            )
            try:
                async with asyncio.timeout(DRAWING_S):
                    _, said = await process.communicate()
            except TimeoutError:
                raise MachineryError(
                    f"drawing the report took longer than {DRAWING_S:.0f} s and was stopped; draw "
                    f"it with: autoresearch report --campaign {directory}"
                ) from None
            finally:
                if process.returncode is None:
                    process.kill()
                    await process.wait()
            if process.returncode != 0:
                lines = said.decode("utf-8", "replace").strip().splitlines()
                raise MachineryError(lines[-1] if lines else "drawing the report failed")
            return (Path(folder) / REPORT_PAGE).read_bytes()
