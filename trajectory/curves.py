"""Read the learning curves that a campaign's trials left."""

import os
from pathlib import Path

from autoresearch.campaign_files import make_folder, open_file, read_file, replace_file
from autoresearch.layout import CURVE_FILE, TRIALS_DIR
from trainer.schema import CurveLines, CurvePoint, KeptCurve

MOST_BYTES = 64 << 20
"""Most bytes of a curve that are read: half a million points."""
_CHUNK_BYTES = 1 << 16


def read_curve(directory: Path, trial_id: str) -> list[CurvePoint]:
    """Return a trial's learning curve, thinned if it is very long, without invalid lines; empty if
    it left no readable one.

    :param directory: the campaign's.
    """
    try:
        descriptor = open_file(directory, f"{TRIALS_DIR}/{trial_id}/{CURVE_FILE}")
    except OSError:
        return []
    lines, kept, left_bytes = CurveLines(), KeptCurve(), MOST_BYTES
    with os.fdopen(descriptor, "rb", buffering=0) as file:
        while left_bytes > 0 and (chunk := file.read(_CHUNK_BYTES)):
            kept.add(lines.feed(chunk))
            left_bytes -= len(chunk)
    return kept.points()


def copy_curve(directory: Path, other: Path, trial_id: str) -> None:
    """Copy a trial's curve from one campaign to another, if it left one.

    :raises OSError: if it cannot be written.
    """
    folder = f"{TRIALS_DIR}/{trial_id}"
    try:
        data = read_file(directory, f"{folder}/{CURVE_FILE}", MOST_BYTES)
    except OSError:
        return
    make_folder(other, folder)
    replace_file(other, f"{folder}/{CURVE_FILE}", data)
