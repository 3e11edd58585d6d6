"""Save figures of long runs as files: one style, in every format, each written atomically."""

from __future__ import annotations

from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

from autoresearch.files import replace_file, writing_to

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SUFFIXES = ("png", "svg")
DPI = 200
_STYLE = {
    "font.size": 8,
    "axes.titlesize": 8,
    "axes.labelsize": 8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "legend.frameon": False,
    "text.parse_math": False,
    "svg.fonttype": "none",
    "svg.hashsalt": "autoresearch",
}


def save_figure(draw: Callable[[], Figure], stem: Path) -> list[Path]:
    """Draw a figure, write it beside ``stem`` in every format, and return the files.

    :param draw: called with the style set.
    :raises MachineryError: if the disk refuses.
    """
    import matplotlib as mpl  # noqa: PLC0415 (slow to load)

    with mpl.rc_context(_STYLE):  # type: ignore[arg-type]
        figure = draw()
        files = [stem.with_name(f"{stem.name}.{suffix}") for suffix in SUFFIXES]
        with writing_to(stem.parent):
            for file in files:
                picture = BytesIO()
                figure.savefig(
                    picture,
                    format=file.suffix[1:],
                    dpi=DPI,
                    metadata={"Date": None} if file.suffix == ".svg" else None,
                )
                replace_file(file, picture.getvalue())
    return files
