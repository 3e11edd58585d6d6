"""Read pi-autoresearch's ``autoresearch.jsonl``, with config lines and a line for each run.

A config line names the metric and its better direction; a segment of runs follows it. Runs identify
their config by commit and description, as in :mod:`trajectory.formats.results_tsv`. A crash is
written with the metric 0.
"""

from __future__ import annotations

from typing import Any, Final

from autoresearch.errors import FormatError
from trajectory.formats.foreign import ForeignRun
from trajectory.formats.results_tsv import scored_run
from trajectory.formats.source import ForeignFile, Line, Source

FORMAT: Final = "pi-jsonl"


def recognises(lines: list[Line]) -> bool:
    """Return whether a file that begins with these lines has this format."""
    try:
        first = lines[0].json_object() if lines else {}
    except ValueError:
        return False
    return first.get("type") == "config" and "metricName" in first


def read(source: Source) -> ForeignFile:
    """Read every run whose metric is that of the file's first config line.

    :raises FormatError: if higher values of the metric are better.
    """
    file = ForeignFile(format=FORMAT, measure="metric")
    asked: tuple[object, object] | None = None
    current: tuple[object, object] | None = None

    def run(line: Line) -> ForeignRun | None:
        nonlocal asked, current
        found = line.json_object()
        if found.get("type") == "config":
            current = (found.get("metricName") or "metric", found.get("bestDirection") or "lower")
            asked = asked or current
            file.measure = str(asked[0])[:60]
            return None
        if current != asked:
            raise ValueError(f"it measures {current}, and the file's first runs {asked}"[:200])
        return _run(line, found, file)

    for line in source.lines():
        file.take(line, lambda line=line: run(line))  # type: ignore[misc]
        if asked is not None and asked[1] != "lower":
            raise FormatError(
                f"the metric {asked[0]!r:.60} of {source.path} is better when higher; import "
                "takes scores of which the lower is the better"
            )
    return file


def _run(line: Line, found: dict[str, Any], file: ForeignFile) -> ForeignRun:
    metric, metrics, at = found.get("metric"), found.get("metrics"), found.get("timestamp")
    is_number = isinstance(metric, int | float) and not isinstance(metric, bool)
    return scored_run(
        file,
        {name: str(found.get(name) or "") for name in ("commit", "status", "description")},
        {
            "line": line.number,
            "iter": len(file.runs) + 1,
            "at": None if at is None else str(at),
            "metrics": metrics if isinstance(metrics, dict) else {},
        },
        score=float(metric) if is_number else None,  # type: ignore[arg-type]
        said=f"its metric is {metric!r:.60}, not a number",
    )
