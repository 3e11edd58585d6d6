"""Read karpathy/autoresearch's ``results.tsv``: commit, val_bpb, memory_gb, status, description.

Its program.md describes it: an agent edits the trainer, commits, trains for five minutes and adds a
line. The file does not hold the config, so commit and description together identify one. A crash is
written with val_bpb 0 and memory 0, which are not measurements and are dropped.

Agents write other words for the status, and leave columns out. Every line with a score is a
measurement, except a crash. The baseline is the first measured line whose description begins with
``baseline`` or whose status is ``baseline``. If there is none, the campaign has no baseline.

``memory_gb`` is peak_vram_mb / 1024, from a number in MiB; it keeps its name here.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Final

from trajectory.formats.foreign import ForeignRun
from trajectory.formats.source import ForeignFile, Line, Source

FORMAT: Final = "results-tsv"
COLUMNS = ("commit", "val_bpb", "memory_gb", "status", "description")
SCORES = ("val_bpb", "val_loss")
"""Columns that may hold the score; the first one in the header is used."""
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?", re.ASCII | re.IGNORECASE)
_BASELINE = re.compile(r"baseline\b", re.IGNORECASE)
_KEPT = {"keep", "kept", "best", "baseline"}
_DISCARDED = {"discard", "discarded", "revert", "reverted", "checks_failed"}
_CRASHED = {"crash", "crashed"}
_FAILED = {"failed", "fail", "error", "oom", "timeout"}


def recognises(lines: list[Line]) -> bool:
    """Return whether a file that begins with these lines has this format."""
    return bool(lines) and _is_header(_cells(lines[0]))


def read(source: Source) -> ForeignFile:
    """Read every line after the header, which may name more or fewer columns, in any order."""
    file = ForeignFile(format=FORMAT, measure=SCORES[0])
    header: list[str] | None = None
    for line in source.lines():
        if header is None:
            header = _cells(line)
            if _is_header(header):
                file.measure = next(name for name in SCORES if name in header)
            else:
                file.skip(
                    line, f"a header names {', '.join(COLUMNS)}, each once; this line does not"
                )
                header = list(COLUMNS)
            continue
        file.take(line, lambda line=line, names=header: _run(line, names, file))  # type: ignore[misc]
    return file


def _run(line: Line, names: list[str], file: ForeignFile) -> ForeignRun:
    cells = line.text().split("\t")
    if len(cells) != len(names):
        raise ValueError(f"it has {len(cells)} cells and the header {len(names)}")
    row = {name: cell.strip() for name, cell in zip(names, cells, strict=True)}
    memory = row.get("memory_gb", "")
    return scored_run(
        file,
        row,
        {
            "line": line.number,
            "iter": len(file.runs) + 1,
            "metrics": {"memory_gb": float(memory)} if _is_number(memory) else {},
        },
        score=float(cell) if _is_number(cell := row[file.measure]) else None,
        said=f"its {file.measure} is {cell!r:.60}, not a number",
    )


def scored_run(
    file: ForeignFile,
    row: Mapping[str, str],
    fields: dict[str, object],
    *,
    score: float | None,
    said: str,
) -> ForeignRun:
    """Return the run of a line that names a commit, a status and a description.

    :param said: why the line has no score, if it has none.
    :raises ValueError: if the line has neither a score nor a status that explains its absence.
    """
    status, description = row.get("status", "").lower(), row.get("description", "")
    failed = status in _CRASHED or (status in _FAILED and not score)
    if score is None and not failed:
        raise ValueError(said)
    is_baseline = status == "baseline" or _BASELINE.match(description) is not None
    action = "keep" if status in _KEPT else "discard" if failed or status in _DISCARDED else "none"
    return ForeignRun.model_validate(
        fields
        | {
            "name": row.get("commit") or description or None,
            "is_baseline": is_baseline
            and not failed
            and not any(run.is_baseline for run in file.runs),
            "reason": description,
            "status": "failed" if failed else "measured",
            "score": None if failed else score,
            "action": action,
        }
        | ({"metrics": {}} if failed else {})
    )


def _is_number(cell: str) -> bool:
    # float() also accepts 1_0 and other scripts' digits.
    return _NUMBER.fullmatch(cell) is not None and math.isfinite(float(cell))


def _is_header(cells: list[str]) -> bool:
    names = set(cells)
    return (
        not names.isdisjoint(SCORES)
        and not names.isdisjoint({"commit", "description"})
        and len(names) == len(cells)
    )


def _cells(line: Line) -> list[str]:
    try:
        return [cell.strip() for cell in line.text().split("\t")]
    except ValueError:
        return []
