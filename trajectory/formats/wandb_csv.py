"""Read the table of runs that Weights & Biases exports as CSV.

Its columns mix the run's facts, its config and its metrics, without saying which is which. A column
is a metric if it is the score asked for, or its name has a slash, begins with an underscore, or
holds a word such as ``loss``. Every other column that is not a fact about the run is part of the
config.
"""

import csv
import io
import re

from autoresearch.errors import FormatError
from trajectory.formats.source import ForeignFile, Line, Source, SourcePart
from trajectory.formats.tracker_stores import Recorded, finite, foreign_file

_FACTS = {
    *("name", "state", "notes", "user", "tags", "created", "runtime", "sweep", "id", "group"),
    *("job type", "hostname", "updated", "end time", "commit", "github", "description"),
}
_METRIC = re.compile(
    r"(^|[_./ -])(loss|acc|accuracy|bpb|ppl|perplexity|error|score|reward|grad_norm|mfu|f1|auc)"
    r"($|[_./ -])|^_|/|^(val|valid|eval|test)_|^(epoch|step|global_step|iteration)$",
    re.IGNORECASE,
)
_RUNNING = {"running", "pending", "preempting"}


def recognises(lines: list[Line]) -> bool:
    """Return whether a file that begins with these lines has this format."""
    try:
        header = next(csv.reader([lines[0].text()])) if lines else []
    except (ValueError, csv.Error, StopIteration):
        return False
    names = {name.strip().lower() for name in header}
    return "name" in names and bool(names & {"state", "runtime", "created"})


def read(source: Source, wanted: SourcePart) -> ForeignFile:
    """Read every run of the table, the oldest first.

    :raises FormatError: if it is not CSV.
    """
    text = source.data.decode("utf-8-sig", "replace")
    damaged = ForeignFile(format="wandb-csv", measure="score")
    runs: list[Recorded] = []
    try:
        rows = [row for row in csv.reader(io.StringIO(text, newline="")) if row]
    except csv.Error as error:
        raise FormatError(f"{source.path} is not CSV ({error}); export the table again") from error
    header = [cell.strip() for cell in rows[0]]
    for number, cells in enumerate(rows[1:], start=2):
        if len(cells) == len(header):
            runs.append(_run(dict(zip(header, cells, strict=True)), wanted.metric))
        else:
            why = f"it has {len(cells)} cells and the header {len(header)}"
            damaged.skip(Line(number, b""), why)
    runs.reverse()  # an export begins with the newest run
    runs.sort(key=lambda run: run.at)
    file = foreign_file("wandb-csv", source, runs, wanted)
    file.skipped[:0] = damaged.skipped
    return file


def _run(row: dict[str, str], metric: str | None) -> Recorded:
    facts = {name.lower(): cell for name, cell in row.items() if name.lower() in _FACTS}
    run = Recorded(facts.get("name", ""), at=facts.get("created", ""))
    for name, cell in row.items():
        if name.lower() in _FACTS or not name:
            continue
        if name != metric and not _METRIC.search(name):
            run.params[name] = cell or None
        elif (number := finite(cell)) is not None:
            run.metrics[name] = number
    state = facts.get("state", "finished").lower()
    if state in _RUNNING:
        run.ended = "running"
    elif state != "finished":
        run.ended = "failed"
    return run
