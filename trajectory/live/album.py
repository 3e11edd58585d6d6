"""The report's figures, drawn again when somebody looks and rows have landed since.

Drawing takes seconds, so it happens in a process of its own, one at a time, and never while nobody
looks.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from autoresearch.layout import FIGURES_DIR
from autoresearch.values import Frozen
from trajectory.report.figures.registry import FIGURES

REDRAW_S = 20.0
"""The least time between two drawings of one campaign."""
RETRY_S = 60.0
"""The same, after one that failed."""
DRAWING_S = 120.0
"""A drawing that takes longer is given up."""
ENDING_S = 5.0
"""A drawing that was killed is waited for so long, to clear up after it."""
_one_at_a_time = threading.Lock()


class Figures(Frozen):
    """What there is to see of a campaign's figures."""

    names: tuple[str, ...]
    """The names of the pictures, in the order of the report's page."""
    rows: int
    """The journal had when they were drawn."""
    iterations: int
    """Iterations among these rows."""
    drawing: bool
    """Whether newer ones are on their way."""
    error: str | None
    """Why they could not be drawn."""


class Album:
    """One campaign's figures."""

    def __init__(self, directory: Path, command: Sequence[str]) -> None:
        """
        :param command: draws a report; it gets ``--campaign DIR --out DIR`` appended.
        """
        self._directory = directory
        self._command = tuple(command)
        self._folder: Path | None = None
        self._figures = Figures(names=(), rows=0, iterations=0, drawing=False, error=None)
        self._began_s = float("-inf")
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._process: subprocess.Popen[str] | None = None
        self._closed = False

    def look(self, rows: int, iterations: int) -> Figures:
        """What there is, and newer ones begun where the campaign has gone on or a drawing failed.

        :param rows: the journal has now.
        :param iterations: of these.
        """
        with self._lock:
            now_s = time.monotonic()
            known = self._figures
            stale = known.rows != rows or known.error is not None
            due = now_s - self._began_s > (REDRAW_S if known.error is None else RETRY_S)
            if stale and due and not known.drawing and not self._closed:
                self._began_s = now_s
                self._figures = known.model_copy(update={"drawing": True})
                self._thread = threading.Thread(
                    target=self._draw, args=(rows, iterations), daemon=True
                )
                self._thread.start()
            return self._figures

    def file(self, name: str) -> Path | None:
        """One picture's SVG; None where there is none of that name."""
        with self._lock:
            if self._folder is None or name not in self._figures.names:
                return None
            return self._folder / FIGURES_DIR / f"{name}.svg"

    def _draw(self, rows: int, iterations: int) -> None:
        with _one_at_a_time:
            if self._closed:
                return
            folder = Path(tempfile.mkdtemp(prefix="autoresearch-figures-"))
            place = ("--campaign", str(self._directory), "--out", str(folder))
            error = self._run((*self._command, *place))
        names = _names(folder)
        with self._lock:
            if error is None and not self._closed:
                folder, self._folder = self._folder or folder, folder
            else:
                names = self._figures.names
            self._figures = Figures(
                names=names, rows=rows, iterations=iterations, drawing=False, error=error
            )
        if folder != self._folder:
            shutil.rmtree(folder, ignore_errors=True)

    def close(self) -> None:
        """End what is being drawn, and remove what was."""
        with self._lock:
            self._closed = True
            process, thread = self._process, self._thread
        if process is not None and thread is not None:
            process.kill()
            thread.join(ENDING_S)
        with self._lock:
            if self._folder is not None:
                shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None

    def _run(self, command: Sequence[str]) -> str | None:
        """None, or why it failed in one line."""
        with self._lock:
            if self._closed:
                return "nobody looks any more"
            self._process = subprocess.Popen(
                command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
            )
            process = self._process
        try:
            _, said = process.communicate(timeout=DRAWING_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            return f"drawing the figures took longer than {DRAWING_S:.0f} s and was given up"
        finally:
            with self._lock:
                self._process = None
        if process.returncode == 0:
            return None
        lines = said.strip().splitlines()
        return lines[-1] if lines else f"drawing the figures failed with {process.returncode}"


def _names(folder: Path) -> tuple[str, ...]:
    """The names of the drawn figures, as they follow on the page."""
    names = (kind.name for kind in FIGURES)
    return tuple(name for name in names if (folder / FIGURES_DIR / f"{name}.svg").is_file())
