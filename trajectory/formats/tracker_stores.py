"""Read a tracker's folder or database, and make an imported campaign of the runs that it recorded.

A tracker names neither the score nor the baseline. The score is the metric asked for, else the
first known loss, else the only metric if its name says that lower is better. The baseline is the
run named ``baseline``, else the first measured one. A seed is not a part of a config, so that runs
that differ in it alone show the noise.
"""

import hashlib
import json
import math
import os
import re
import sqlite3
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import Any, Literal, Self

from autoresearch.errors import FormatError
from autoresearch.files import read_given
from trajectory.formats.foreign import (
    ForeignRun,
    FormatName,
    more_is_better,
    refuse_more_is_better,
)
from trajectory.formats.source import MOST_BYTES, ForeignFile, Line, Source, SourcePart

MOST_FILES = 200_000


@dataclass(frozen=True, eq=False)
class Folder(Source):
    """The regular files of a folder; ``data`` is the list of their hashes."""

    files: dict[Path, bytes] = field(default_factory=dict)
    """Content by path relative to the folder, sorted by path."""

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read the files that may belong to a tracker's store. Links are not followed.

        :raises FormatError: if one cannot be read, or they are too many or too large.
        """
        files: dict[Path, bytes] = {}
        left = MOST_BYTES
        try:
            for file in sorted(_of_trackers(path)):
                data = read_given(file, left)
                left -= len(data)
                files[file.relative_to(path)] = data
                if len(files) > MOST_FILES:
                    raise FormatError(f"{path} has more than {MOST_FILES:,} files; import a part")
        except OSError as error:
            raise FormatError(
                f"{error.filename or path} cannot be imported: {error.strerror or error}; give a "
                "folder of at most 1 GiB that can be read"
            ) from error
        lines = (f"{hashlib.sha256(data).hexdigest()}  {name}\n" for name, data in files.items())
        return cls(path, "".join(lines).encode("utf-8", "replace"), files)

    def text(self, file: Path) -> str:
        """Return a file's content as text."""
        return self.files[file].decode("utf-8", "replace")


def _of_trackers(path: Path) -> list[Path]:
    found = []
    for folder, _, names in os.walk(path):
        for name in names:
            file = Path(folder, name)
            inner = file.relative_to(path).parts
            is_event = "tfevents" in name
            is_mlflow = name == "meta.yaml" or (
                len(inner) > 3 and inner[2] in {"params", "metrics"}
            )
            if (is_event or is_mlflow) and stat.S_ISREG(file.lstat().st_mode):
                found.append(file)
    return found


MAGIC = b"SQLite format 3\0"
LIMIT_S = 60.0
WRONG = (ValueError, TypeError, LookupError, AttributeError, OverflowError, RecursionError)
"""Errors that values of unexpected types lead to."""


@contextmanager
def opened(source: Source) -> Iterator[sqlite3.Connection]:
    """Open a copy of a SQLite file in memory.

    :raises FormatError: if it is damaged, lacks a table, holds values of other types, or keeps a
        query busy for a minute.
    """
    data = bytearray(source.data)
    data[18:20] = b"\1\1"  # in memory there is no write-ahead log
    end = monotonic() + LIMIT_S
    with closing(sqlite3.connect(":memory:")) as connection:
        try:
            connection.deserialize(bytes(data))
            connection.execute("PRAGMA trusted_schema=OFF")
            connection.execute("PRAGMA query_only=ON")
            connection.set_progress_handler(lambda: monotonic() > end, 10_000)
            yield connection
        except (sqlite3.Error, *WRONG) as error:
            raise FormatError(
                f"{source.path} cannot be read as a tracker's database ({str(error)[:200]!r}); "
                "choose another file, or restore it from a copy"
            ) from error


SCORES = (
    *("val_bpb", "val_loss", "eval_loss", "valid_loss", "validation_loss", "test_loss"),
    *("val/loss", "eval/loss", "valid/loss", "validation/loss", "loss/val", "Loss/val", "loss"),
)
"""Metrics that are the score if none is asked for; the first one that a run has."""
SEEDS = {"seed", "random_seed", "random_state", "rng_seed", "manual_seed"}
_FACT = re.compile(
    r"^(best|final|last)_(epoch|step|iter(ation)?|loss|acc|accuracy|score|metric|checkpoint|val_.*)$|"
    r"(^|[_./ -])(git|commit|sha|branch|hostname|username|timestamp|duration|"
    r"elapsed|runtime|wandb_version|slurm_job_id|pid|run_(id|name)|job_id)($|[_./ -])",
    re.IGNORECASE,
)
"""Facts about a run that trackers list among its settings, such as ``best_epoch`` or
``git_commit``."""
_NAMED = 12
_WORDS: dict[str, Any] = {"true": True, "false": False, "none": None, "null": None}
MOST_RUNS = 100_000


@dataclass(slots=True)
class Recorded:
    """One run as its tracker recorded it."""

    name: str
    at: str = ""
    """When it began, as text that sorts by time."""
    params: dict[str, Any] = field(default_factory=dict)
    """Values of the config, as text or as numbers."""
    metrics: dict[str, float] = field(default_factory=dict)
    """The last value of each metric."""
    ended: Literal["measured", "failed", "running"] = "measured"


def chosen(source: Source, what: str, found: Sequence[str], wanted: SourcePart) -> str:
    """Return the one study or experiment to read.

    :raises FormatError: if there is none, or several and none is asked for.
    """
    if wanted.study in found:
        return str(wanted.study)
    if wanted.study is None and len(found) == 1:
        return found[0]
    names = _listed(found) or "none"
    raise FormatError(f"{source.path} holds the {what}: {names}; import one with --study NAME")


def foreign_file(
    format_: FormatName, source: Source, runs: Sequence[Recorded], wanted: SourcePart
) -> ForeignFile:
    """Return a campaign of these runs, which are in the order of their beginning.

    :raises FormatError: if it is not known which metric is the score.
    """
    if len(runs) > MOST_RUNS:
        raise FormatError(f"{source.path} has more than {MOST_RUNS:,} runs; import a part of it")
    metric = _metric(source, runs, wanted.metric)
    file = ForeignFile(format=format_, measure=metric[:60])
    named = (run for run in runs if run.name.lower().startswith("baseline"))
    measured = (run for run in runs if run.ended == "measured" and metric in run.metrics)
    baseline = next(named, None) or next(measured, None)
    base = _values(baseline.params) if baseline else {}
    for number, run in enumerate(runs, start=1):
        file.take(
            Line(number, b""),
            lambda run=run, number=number: _run(run, number, metric, base, run is baseline),  # type: ignore[misc]
        )
    return file


def _run(
    run: Recorded, number: int, metric: str, base: Mapping[str, Any], is_baseline: bool
) -> ForeignRun:
    if run.ended == "running":
        raise ValueError(f"the run {run.name!r:.60} has not ended")
    if run.ended == "measured" and metric not in run.metrics:
        raise ValueError(f"the run {run.name!r:.60} has no finite {metric}")
    values = _values(run.params)
    return ForeignRun.model_validate(
        {
            "line": number,
            "iter": number,
            "name": run.name or None,
            "values": values or None,
            "changes": None
            if is_baseline or not values
            else {name: value for name, value in values.items() if base.get(name) != value},
            "is_baseline": is_baseline,
            "score": run.metrics[metric] if run.ended == "measured" else None,
        }
    )


def _values(params: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: parsed(value)
        for name, value in params.items()
        if name.lower() not in SEEDS and not _FACT.search(name)
    }


def parsed(value: Any) -> Any:
    """Return the number, truth value or None that a text spells, and any other value as it is."""
    if not isinstance(value, str):
        return value if isinstance(value, bool | int | float | None) else json.dumps(value)
    word = value.strip()
    if word.lower() in _WORDS:
        return _WORDS[word.lower()]
    for kind in (int, float):
        try:
            number = kind(word)
        except ValueError:
            continue
        return number if math.isfinite(number) else value
    return value


def finite(value: Any) -> float | None:
    """Return a finite number, or None."""
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def _metric(source: Source, runs: Sequence[Recorded], wanted: str | None) -> str:
    names = list(dict.fromkeys(name for run in runs for name in run.metrics))
    known = next((name for name in SCORES if name in names), None)
    if wanted is None and len(names) == 1 and more_is_better(names[0]) is False:
        known = names[0]
    metric = known if wanted is None else wanted
    if metric is not None and metric in names:
        refuse_more_is_better(source.path, metric)
        return metric
    has = f"has the metrics {_listed(names)}" if names else "has no metric"
    raise FormatError(
        f"{source.path} {has}; import it with --metric NAME, one of which the lower is the better"
    )


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(f"{name:.60}" for name in names[:_NAMED]) + more
