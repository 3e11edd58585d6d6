"""The table on disk: a Parquet file that is published, and a journal of what came since.

The journal is appended to, one JSON object a line, synced before the next trial is counted;
:func:`publish` folds it into the Parquet file.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import ValidationError

from autoresearch.files import replacing
from autoresearch.values import Frozen, NonNegativeInt, PositiveInt

PUBLISHED = Path(__file__).with_name("trials.parquet")


class TableTrial(Frozen):
    """One trial of the table."""

    role: str
    """Why the config was chosen: ``space``, ``near``."""
    knobs: str
    """The menu's knobs and their values, as JSON in the menu's order."""
    config_hash: str
    seed: NonNegativeInt
    steps: PositiveInt
    """The budget; a trial that failed may have done fewer."""
    status: str
    val_bpb: float | None
    params: int | None
    train_s: float | None
    """On a machine busy with other work: a cost to rank by, no speed."""
    loss: tuple[float, ...]
    """Training loss of each step, nats per token, to float32."""
    cpu: str
    """Another kind of processor gives other last digits."""
    torch: str

    @property
    def key(self) -> tuple[str, int, int]:
        return self.config_hash, self.seed, self.steps


class TableStore:
    """All trials there are, by key, and where the next one is written."""

    def __init__(self, journal: Path, published: Path = PUBLISHED) -> None:
        self._journal = journal
        self._published = published
        self._lock = threading.Lock()
        self.trials: dict[tuple[str, int, int], TableTrial] = {}
        for trial in (*read_published(published), *_read_journal(journal)):
            self.trials.setdefault(trial.key, trial)

    def add(self, trial: TableTrial) -> None:
        """Keep it, on the disk, before it counts. Several threads may."""
        self._journal.parent.mkdir(parents=True, exist_ok=True)
        with self._lock, self._journal.open("ab") as file:
            if file.tell() and not _ends_whole(self._journal):
                file.write(b"\n")  # after a line that a power cut tore
            file.write(trial.model_dump_json().encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())
        self.trials[trial.key] = trial

    def publish(self) -> int:
        """Write all trials as Parquet, in one step; the number of them."""
        rows = sorted(self.trials.values(), key=lambda trial: trial.key)
        table = pa.Table.from_pylist([row.model_dump() for row in rows], schema=_SCHEMA)
        with replacing(self._published) as file:
            pq.write_table(table, file, compression="zstd", compression_level=19)
        return len(rows)


_SCHEMA = pa.schema(
    [
        ("role", pa.string()),
        ("knobs", pa.string()),
        ("config_hash", pa.string()),
        ("seed", pa.int64()),
        ("steps", pa.int32()),
        ("status", pa.string()),
        ("val_bpb", pa.float64()),
        ("params", pa.int64()),
        ("train_s", pa.float32()),
        ("loss", pa.list_(pa.float32())),
        ("cpu", pa.string()),
        ("torch", pa.string()),
    ]
)


def read_published(path: Path = PUBLISHED) -> list[TableTrial]:
    """The published trials; none where nothing is published."""
    if not path.exists():
        return []
    return [
        TableTrial.model_validate({**row, "loss": tuple(row["loss"])})
        for row in pq.read_table(path).to_pylist()
    ]


def _read_journal(path: Path) -> Iterator[TableTrial]:
    if not path.exists():
        return
    for line in path.read_bytes().splitlines():
        try:
            yield TableTrial.model_validate_json(line)
        except (ValidationError, json.JSONDecodeError):
            continue  # torn by a power cut: that trial runs again


def _ends_whole(path: Path) -> bool:
    with path.open("rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read(1) == b"\n"
