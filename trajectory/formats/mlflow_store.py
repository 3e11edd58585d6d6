"""Read the runs of an MLflow store: its SQLite database, or its folder of files (``mlruns``).

Neither needs MLflow. Deleted and unfinished runs are left out. A metric's last value counts.
"""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from trajectory.formats.source import ForeignFile, Source, SourcePart
from trajectory.formats.tracker_stores import (
    Folder,
    Recorded,
    chosen,
    finite,
    foreign_file,
    opened,
)

FORMAT: Final = "mlflow"
TABLES = {"experiments", "runs", "params", "latest_metrics"}
_STATUS = {"1": "RUNNING", "2": "SCHEDULED", "3": "FINISHED", "4": "FAILED", "5": "KILLED"}
"""Names of the numbers that the files hold."""
_META = "meta.yaml"


def read_database(source: Source, wanted: SourcePart) -> ForeignFile:
    """Read an experiment's runs from a SQLite store."""
    with opened(source) as database:
        names = database.execute(
            "SELECT DISTINCT e.name FROM experiments AS e JOIN runs AS r USING (experiment_id) "
            "WHERE r.lifecycle_stage = 'active' ORDER BY e.experiment_id"
        )
        name = chosen(source, "experiments", [str(name) for (name,) in names], wanted)
        found = database.execute(
            "SELECT run_uuid, r.name, status, start_time FROM runs AS r JOIN experiments AS e "
            "USING (experiment_id) WHERE r.lifecycle_stage = 'active' AND e.name = ? "
            "ORDER BY start_time, run_uuid",
            (name,),
        )
        runs = {key: _run(name or key, str(status), at) for key, name, status, at in found}
        for key, name, value in database.execute("SELECT run_uuid, key, value FROM params"):
            if key in runs:
                runs[key].params[str(name)] = value
        query = "SELECT run_uuid, key, value FROM latest_metrics WHERE NOT is_nan"
        for key, name, value in database.execute(query):
            if key in runs:
                _measure(runs[key], str(name), value)
    return foreign_file(FORMAT, source, list(runs.values()), wanted)


def recognises(folder: Folder) -> bool:
    """Return whether a folder is a store of files: a folder per experiment, with one per run."""
    return any(len(path.parts) == 3 and path.name == _META for path in folder.files)


def read_files(folder: Folder, wanted: SourcePart) -> ForeignFile:
    """Read an experiment's runs from a folder of files."""
    runs: dict[Path, tuple[str, Recorded]] = {}
    experiments: dict[str, str] = {}
    for path in folder.files:
        if path.name == _META and len(path.parts) == 2:
            meta = _meta(folder, path)
            experiments[path.parts[0]] = meta.get("name", path.parts[0])
        elif path.name == _META and len(path.parts) == 3:
            meta = _meta(folder, path)
            if meta.get("lifecycle_stage", "active") == "active":
                name = meta.get("run_name") or path.parts[1]
                status = _STATUS.get(meta.get("status", ""), meta.get("status", ""))
                at = finite(meta.get("start_time"))
                runs[path.parent] = (path.parts[0], _run(name, status, at))
    for path in folder.files:
        of = runs.get(Path(*path.parts[:2]))
        kind = path.parts[2] if len(path.parts) > 3 else ""
        if of is None or kind not in {"params", "metrics"}:
            continue
        name, text = Path(*path.parts[3:]).as_posix(), folder.text(path)
        if kind == "params":
            of[1].params[name] = text.rstrip("\n")
        elif text.strip():
            # Each line is a time, a value and a step.
            _measure(of[1], name, [*text.strip().splitlines()[-1].split(), ""][1])
    present = dict.fromkeys(experiments.get(of, of) for of, _ in runs.values())
    name = chosen(folder, "experiments", list(present), wanted)
    ours = [run for of, run in runs.values() if experiments.get(of, of) == name]
    return foreign_file(FORMAT, folder, sorted(ours, key=lambda run: run.at), wanted)


def _meta(folder: Folder, path: Path) -> dict[str, str]:
    """Return the top-level scalars of a meta.yaml; MLflow writes nothing else that matters here."""
    pairs = (line.partition(":") for line in folder.text(path).splitlines() if line[:1].strip())
    return {key: value.strip().strip("'\"") for key, _, value in pairs}


def _run(name: str, status: str, at: Any) -> Recorded:
    run = Recorded(str(name))
    seconds = finite(at)
    if seconds is not None and 0 <= seconds < 1e14:
        run.at = datetime.fromtimestamp(seconds / 1000, UTC).isoformat(timespec="milliseconds")
    if status in {"FAILED", "KILLED"}:
        run.ended = "failed"
    elif status != "FINISHED":
        run.ended = "running"
    return run


def _measure(run: Recorded, name: str, value: Any) -> None:
    number = finite(value)
    if number is not None:
        run.metrics[name] = number
