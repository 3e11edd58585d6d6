"""Read the logs of published loops whose agent proposes changes of a script or of knobs.

- karpathy/autoresearch writes ``results.tsv``: commit, val_bpb, memory_gb, status, description. Its
  program.md describes it. A crash is written with val_bpb 0, which is no measurement.
- pi-autoresearch writes ``autoresearch.jsonl``, with config lines and a line for each run. A config
  line names the metric and its better direction; a segment of runs follows it. A crash is written
  with the metric 0.
- The loop of github.com/manavsehgal/ai-field-notes, articles/autoresearch-agent-loop, in which a
  local model changes one knob at a time, writes JSONL. The first line holds the baseline:
  ``baseline_val_bpb``, ``baseline_cfg``. Each later line is an iteration that ended at one
  ``stage``; a last line summarizes the run. Iterations that trained nothing are no runs. Every
  proposal is relative to the baseline. The loop's ``val_bpb`` is cross-entropy over tokens in
  bits, so it is imported as bits per token.

The agents of the first two commit before each run. Neither log holds the config, so commit and
description together identify one. Agents write other words for the status, and leave columns out.
Every line with a score is a measurement, except a crash. The baseline is the first measured line
whose description begins with ``baseline`` or whose status is ``baseline``. If there is none, the
campaign has no baseline.
"""

import math
import re
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from itertools import pairwise
from typing import Any

from autoresearch.errors import FormatError
from autoresearch.values import Frozen
from trajectory.formats.foreign import ForeignRun, refuse_more_is_better
from trajectory.formats.source import ForeignFile, Line, Source, SourcePart

COLUMNS = ("commit", "val_bpb", "memory_gb", "status", "description")
SCORES = ("val_bpb", "val_loss")
"""Columns that hold the score if none is asked for; the first one in the header is used."""
LEAST_GROWING = 2
"""Steps up, and none down, from which on the kept runs show that higher is better."""
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?", re.ASCII | re.IGNORECASE)
_BASELINE = re.compile(r"baseline\b", re.IGNORECASE)
_KEPT = {"keep", "kept", "best", "baseline"}
_DISCARDED = {"discard", "discarded", "revert", "reverted", "checks_failed"}
_FAILED = re.compile(
    r"\b(crash(ed)?|fail(ed|ure)?|errors?|errored|oom|out of memory|timed?[ -]?out|invalid|nan|"
    r"diverged?|killed|abort(ed)?|exception|cancel?led)\b"
)
"""Statuses of runs whose score, if any, is no measurement, alone or among other words."""


def recognises_tsv(lines: list[Line]) -> bool:
    """Return whether a file that begins with these lines has this format."""
    return bool(lines) and _is_header(_cells(lines[0]))


def read_tsv(source: Source, wanted: SourcePart) -> ForeignFile:
    """Read every line after the header, which may name more or fewer columns, in any order.

    :raises FormatError: if no column is known to be a score of which the lower is the better, or
        each run that was kept for its score has a higher one than the last.
    """
    file = ForeignFile(format="results-tsv", measure=SCORES[0])
    header: list[str] | None = None
    column = SCORES[0]
    for line in source.lines():
        if header is None:
            header = _cells(line)
            if _is_header(header):
                column = _score_in(header, source, wanted.metric)
                file.measure = column[:60]
            else:
                file.skip(
                    line, f"a header names {', '.join(COLUMNS)}, each once; this line does not"
                )
                header = list(COLUMNS)
            continue
        file.take(line, partial(_tsv_run, line, header, column, file))
    kept = [run.score for run in file.runs if run.score is not None and run.action == "keep"]
    grows = [later > before for before, later in pairwise(kept) if later != before]
    if len(grows) >= LEAST_GROWING and all(grows):
        raise FormatError(
            f"the {file.measure} of {source.path} grows with every run that was kept, so that "
            "higher seems better; import takes scores of which the lower is the better"
        )
    return file


def _score_in(header: list[str], source: Source, metric: str | None) -> str:
    """Return the column of the score.

    :raises FormatError: if none is known, or the one asked for is better when higher.
    """
    named = SCORES if metric is None else (metric,)
    found = next((name for name in named if name in header), None)
    if found is None:
        raise FormatError(
            f"{source.path} has the columns {', '.join(header)[:300]}; import it with --metric "
            "NAME, one of which the lower is the better"
        )
    refuse_more_is_better(source.path, found)
    return found


def _tsv_run(line: Line, names: list[str], column: str, file: ForeignFile) -> ForeignRun:
    cells = line.text().split("\t")
    if len(cells) != len(names):
        raise ValueError(f"it has {len(cells)} cells and the header {len(names)}")
    row = {name: cell.strip() for name, cell in zip(names, cells, strict=True)}
    cell = row[column]
    # float() also accepts 1_0 and other scripts' digits.
    is_number = _NUMBER.fullmatch(cell) is not None and math.isfinite(float(cell))
    return scored_run(
        file,
        line,
        row,
        score=float(cell) if is_number else None,
        said=f"its {file.measure} is {cell!r:.60}, not a number",
    )


def scored_run(
    file: ForeignFile, line: Line, row: Mapping[str, str], *, score: float | None, said: str
) -> ForeignRun:
    """Return the run of a line that names a commit, a status and a description.

    :param said: why the line has no score, if it has none.
    :raises ValueError: if the line has neither a score nor a status that explains its absence.
    """
    status, description = row.get("status", "").lower(), row.get("description", "")
    failed = status not in _DISCARDED and _FAILED.search(status.replace("_", " ")) is not None
    if score is None and not failed:
        raise ValueError(said)
    is_baseline = status == "baseline" or _BASELINE.match(description) is not None
    action = "keep" if status in _KEPT else "discard" if failed or status in _DISCARDED else "none"
    return ForeignRun.model_validate(
        {
            "line": line.number,
            "iter": len(file.runs) + 1,
            "name": row.get("commit") or description or None,
            "is_baseline": is_baseline
            and not failed
            and not any(run.is_baseline for run in file.runs),
            "reason": description,
            "score": None if failed else score,
            "action": action,
        }
    )


def _is_header(cells: list[str]) -> bool:
    names = set(cells)
    is_log = len(names & {"commit", "status", "description"}) > 1
    return (
        (is_log or not names.isdisjoint(SCORES))
        and not names.isdisjoint({"commit", "description"})
        and len(names) == len(cells)
    )


def _cells(line: Line) -> list[str]:
    try:
        return [cell.strip() for cell in line.text().split("\t")]
    except ValueError:
        return []


def recognises_pi(lines: list[Line]) -> bool:
    """Return whether a file that begins with these lines has this format."""
    try:
        first = lines[0].json_object() if lines else {}
    except ValueError:
        return False
    return first.get("type") == "config" and "metricName" in first


def read_pi(source: Source, _wanted: SourcePart) -> ForeignFile:
    """Read every run whose metric is that of the file's first config line.

    :raises FormatError: if higher values of the metric are better.
    """
    file = ForeignFile(format="pi-jsonl", measure="metric")
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
        if found.get("type", "run") != "run":
            return None  # such as what a hook did
        if current != asked:
            raise ValueError(f"it measures {current}, and the file's first runs {asked}"[:200])
        metric = found.get("metric")
        is_number = isinstance(metric, int | float) and not isinstance(metric, bool)
        return scored_run(
            file,
            line,
            {name: str(found.get(name) or "") for name in ("commit", "status", "description")},
            score=float(metric) if is_number else None,  # type: ignore[arg-type]
            said=f"its metric is {metric!r:.60}, not a number",
        )

    for line in source.lines():
        file.take(line, partial(run, line))
        if asked is not None and asked[1] != "lower":
            raise FormatError(
                f"the metric {asked[0]!r:.60} of {source.path} is better when higher; import "
                "takes scores of which the lower is the better"
            )
    return file


_HEADER = {"baseline_val_bpb", "baseline_cfg"}
_WITHOUT_A_RUN = {"blocked", "nim_error", "paused", "loop_complete"}
_DECISIONS = {"keep": "keep", "revert": "discard"}


def recognises_single_knob(lines: list[Line]) -> bool:
    """Return whether a file that begins with these lines has this format."""
    for line in lines:
        with suppress(ValueError):
            names = line.json_object().keys()
            if names >= _HEADER or names >= {"iter", "stage"}:
                return True
    return False


def read_single_knob(source: Source, _wanted: SourcePart) -> ForeignFile:
    """Read every run of a file, and its baseline as iteration 0."""
    file = ForeignFile(format="single-knob", measure="val_bits_per_token")
    line_of: dict[int, int] = {}  # by iteration

    def run(line: Line) -> ForeignRun | None:
        found = line.json_object()
        if found.get("stage") in _WITHOUT_A_RUN:
            return None
        taken = ForeignRun.model_validate({"line": line.number} | _single_knob_fields(found))
        before = line_of.setdefault(taken.iter, line.number)
        if before != line.number:
            raise ValueError(f"iteration {taken.iter} is in line {before} already")
        return taken

    for line in source.lines():
        file.take(line, partial(run, line))
    return file


class _Asked(Frozen):
    """A proposal that passed the loop's rails."""

    knob: str
    new_value: bool | int | float | str
    reason: str = ""


def _single_knob_fields(found: dict[str, Any]) -> dict[str, Any]:
    if found.keys() >= _HEADER:
        score = found["baseline_val_bpb"]
        fields: dict[str, Any] = {"iter": 0, "values": found["baseline_cfg"], "is_baseline": True}
    elif found.get("stage") in {"evaluated", "eval_failed"}:
        proposal = found.get("proposal")
        if not isinstance(proposal, dict):
            raise ValueError(f"its proposal is {proposal!r:.60}, not a JSON object")
        asked = _Asked.model_validate(
            {name: proposal[name] for name in _Asked.model_fields if name in proposal}
        )
        fields = {
            "iter": found.get("iter"),
            "values": found.get("candidate_cfg"),
            "changes": {asked.knob: asked.new_value},
            "reason": asked.reason,
        }
        if found["stage"] == "eval_failed":
            return fields | {"action": "discard"}
        action = _DECISIONS.get(str(found.get("decision")))
        if action is None:
            raise ValueError(f"its decision is {found.get('decision')!r:.60}, not keep or revert")
        fields["action"], score = action, found.get("val_bpb")
    else:
        raise ValueError(f"its stage is {found.get('stage')!r:.60}, which is not known")
    if score is None:
        raise ValueError("it has no val_bpb")
    return fields | {"score": score}
