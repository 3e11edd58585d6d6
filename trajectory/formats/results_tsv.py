"""``results.tsv`` of karpathy/autoresearch: commit, val_bpb, memory_gb, status, description.

Its program.md describes it: an agent edits the trainer, commits, trains for five minutes and adds a
line. The config is a commit, whose content the file does not have, so commits stand for configs. A
crash is written with val_bpb 0 and memory 0, which are no measurements and are dropped. The first
line described as ``baseline`` is the baseline; where none is, nothing is taken for one.

``memory_gb`` is peak_vram_mb / 1024 of a number in MiB: it keeps its name here.
"""

from __future__ import annotations

import math
import re
from typing import Final

from trajectory.formats.foreign import ForeignRun
from trajectory.formats.source import ForeignFile, Line, Source

FORMAT: Final = "results-tsv"
COLUMNS = ("commit", "val_bpb", "memory_gb", "status", "description")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?", re.ASCII | re.IGNORECASE)
_ACTIONS = {"keep": "keep", "discard": "discard", "crash": "discard"}


def recognises(lines: list[Line]) -> bool:
    """Whether a file that begins with these lines is one."""
    return bool(lines) and _is_header(_cells(lines[0]))


def read(source: Source) -> ForeignFile:
    """Every line after the header, which may name more columns, in any order."""
    file = ForeignFile(format=FORMAT, measure="val_bpb")
    header: list[str] | None = None
    for line in source.lines():
        if header is None:
            header = _cells(line)
            if not _is_header(header):
                file.skip(line, f"a header names {', '.join(COLUMNS)}, each once; this is none")
                header = list(COLUMNS)
            continue
        file.take(line, lambda line=line, names=header: _run(line, names, file))  # type: ignore[misc]
    return file


def _run(line: Line, names: list[str], file: ForeignFile) -> ForeignRun:
    cells = line.text().split("\t")
    if len(cells) != len(names):
        raise ValueError(f"it has {len(cells)} cells and the header {len(names)}")
    row = {name: cell.strip() for name, cell in zip(names, cells, strict=True)}
    status = row["status"].lower()
    if status not in _ACTIONS:
        raise ValueError(f"its status is {row['status']!r:.60}, not keep, discard or crash")
    crashed = status == "crash"
    is_baseline = row["description"].lower() == "baseline"
    return ForeignRun.model_validate(
        {
            "line": line.number,
            "iter": len(file.runs) + 1,
            "name": row["commit"] or None,
            "is_baseline": is_baseline and not any(run.is_baseline for run in file.runs),
            "reason": row["description"],
            "status": "failed" if crashed else "measured",
            "score": None if crashed else _number(row["val_bpb"], "val_bpb"),
            "action": _ACTIONS[status],
            "metrics": {} if crashed else {"memory_gb": _number(row["memory_gb"], "memory_gb")},
        }
    )


def _number(cell: str, name: str) -> float:
    # Python would take 1_0 and other scripts' digits for one.
    if _NUMBER.fullmatch(cell) is None or not math.isfinite(float(cell)):
        raise ValueError(f"its {name} is {cell!r:.60}, no number")
    return float(cell)


def _is_header(cells: list[str]) -> bool:
    return set(COLUMNS) <= set(cells) and len(set(cells)) == len(cells)


def _cells(line: Line) -> list[str]:
    try:
        return [cell.strip() for cell in line.text().split("\t")]
    except ValueError:
        return []
