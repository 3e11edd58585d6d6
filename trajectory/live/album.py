"""Figures of the report, redrawn when a client asks for them and new rows have arrived.

Drawing takes seconds, so it happens in a separate process, one at a time, and only on request.
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
"""Least seconds between two drawings of a campaign."""
RETRY_S = 60.0
"""Least seconds between a failed drawing and the next."""
DRAWING_S = 120.0
"""Timeout of a drawing in seconds."""
ENDING_S = 5.0
"""Seconds to wait for a killed drawing, so that its files can be removed."""
_one_at_a_time = threading.Lock()


class Figures(Frozen):
    """State of a campaign's figures."""

    names: tuple[str, ...]
    """Names of the available figures, in the order of the report's page."""
    rows: int
    """Rows of the journal when they were drawn."""
    iterations: int
    """Iterations among these rows."""
    drawing: bool
    """Whether newer ones are being drawn."""
    error: str | None
    """Reason of a failed drawing; None if it succeeded."""


class Album:
    """One campaign's figures."""

    def __init__(self, directory: Path, command: Sequence[str]) -> None:
        """Make an album without figures.

        :param command: draws a report; ``--campaign DIR --out DIR`` is appended.
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

    def state(self, rows: int, iterations: int) -> Figures:
        """Return the state of the figures, and start a new drawing if rows have arrived or the last
        drawing failed.

        :param rows: rows in the journal now.
        :param iterations: iterations among these rows.
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
        """Return the path of a figure's SVG; None if there is none of that name."""
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
        drawn = {path.stem for path in (folder / FIGURES_DIR).glob("*.svg") if path.is_file()}
        names = tuple(kind.name for kind in FIGURES if kind.name in drawn)
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
        """Kill a running drawing, and remove the figures."""
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
        """Run a drawing; return None, or its error in one line."""
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
            return f"drawing the figures took longer than {DRAWING_S:.0f} s and was stopped"
        finally:
            with self._lock:
                self._process = None
        if process.returncode == 0:
            return None
        lines = said.strip().splitlines()
        return lines[-1] if lines else f"drawing the figures failed with {process.returncode}"
