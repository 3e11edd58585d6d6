"""Convert rows to the history's tables, within one transaction of its database.

:class:`trajectory.evidence.Evidence` itself computes the sums per config; it is restored with only
the configs that the new rows affect. So an index grown row by row equals one built in large
batches. A row costs the same after a hundred rows as after a hundred thousand.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from pydantic import TypeAdapter, ValidationError

from autoresearch.errors import JournalError
from trainer.spec import TrialFailed
from trajectory.evidence import ConfigEvidence, Evidence, Tally
from trajectory.history.tables import DamagedIndexError, campaigns, configs, rows, trials
from trajectory.journal import Record, read_rows
from trajectory.rows import (
    BaselineRow,
    CampaignRow,
    IterationRow,
    Row,
    RowOfOneRun,
    TrialRecord,
    trials_of,
)

_CONFIG: TypeAdapter[ConfigEvidence] = TypeAdapter(ConfigEvidence)
_NOTHING_SHA256 = hashlib.sha256().hexdigest()


@dataclass(frozen=True, slots=True)
class Position:
    """State of an index: the part of the journal that it covers, and its sums."""

    campaign_id: str
    """The campaign's id; empty before the journal has a first row."""
    end: int = 0
    """Number of bytes indexed."""
    sha256: str = _NOTHING_SHA256
    """Hash of those bytes."""
    lines: int = 0
    configs: int = 0
    tally: Tally = field(default_factory=Tally)


@dataclass(frozen=True, slots=True)
class Placed:
    """A config's evidence and its position in the order first seen."""

    position: int
    evidence: ConfigEvidence


def campaign_id_of(journal: Path) -> str:
    """Return the id in a journal's first row; empty if there is none."""
    first = next(read_rows(journal), None)
    return first.id if isinstance(first, CampaignRow) else ""


def read_position(connection: sa.Connection, campaign_id: str) -> Position:
    """Return the position of this campaign's index.

    :raises DamagedIndexError: if its tally is not valid.
    """
    row = connection.execute(
        sa.select(campaigns).where(campaigns.c.campaign_id == campaign_id)
    ).one_or_none()
    if row is None:
        return Position(campaign_id)
    try:
        tally = Tally.model_validate_json(row.tally)
    except ValidationError as error:
        raise DamagedIndexError(
            f"the history's tally of campaign {campaign_id} is not one ({row.tally[:40]!r}); "
            "run autoresearch reindex"
        ) from error
    return Position(campaign_id, row.journal_end, row.journal_sha256, row.lines, row.configs, tally)


def is_whole(connection: sa.Connection, position: Position) -> bool:
    """Return whether the index holds the expected number of rows and configs."""
    counts = [(rows, position.lines), (configs, position.configs)]
    return all(
        connection.scalar(
            sa.select(sa.func.count())
            .select_from(table)
            .where(table.c.campaign_id == position.campaign_id)
        )
        == expected
        for table, expected in counts
    )


def read_configs(
    connection: sa.Connection, campaign_id: str, hashes: Iterable[str]
) -> dict[str, Placed]:
    """Return those of these configs that are known, in the order first seen.

    :raises DamagedIndexError: if the index holds invalid evidence.
    """
    found = connection.execute(
        sa.select(configs.c.position, configs.c.evidence)
        .where(configs.c.campaign_id == campaign_id, configs.c.config_hash.in_(list(hashes)))
        .order_by(configs.c.position)
    )
    try:
        placed = [Placed(position, _CONFIG.validate_json(text)) for position, text in found]
    except ValidationError as error:
        raise DamagedIndexError(
            f"the history of campaign {campaign_id} is damaged; run autoresearch reindex"
        ) from error
    return {entry.evidence.config_hash: entry for entry in placed}


def write(connection: sa.Connection, position: Position, records: Sequence[Record]) -> Position:
    """Add rows that follow the indexed ones, and return the position without its new sha256.

    :raises JournalError: if a row cannot follow.
    """
    campaign_id = position.campaign_id
    if not position.lines:
        first = records[0].row
        if not isinstance(first, CampaignRow):
            raise JournalError(
                f"the journal's first row is of kind {first.kind!r}, not a campaign row; "
                "restore the file from a copy"
            )
        campaign_id = first.id
        forget(connection, campaign_id)
    touched = {name: None for record in records for name in _configs_of(record.row)}
    known = read_configs(connection, campaign_id, touched) if touched else {}
    evidence = Evidence.restore(position.tally, [entry.evidence for entry in known.values()])
    for record in records:
        evidence.add(record.row)

    _insert(connection, rows, [_row_values(campaign_id, record) for record in records])
    trial_values = [
        _trial_values(campaign_id, record.line, number, trial)
        for record in records
        for number, trial in enumerate(trials_of(record.row))
    ]
    _insert(connection, trials, trial_values)
    new = [entry for name, entry in evidence.configs.items() if name not in known]
    placed = [Placed(position.configs + i, entry) for i, entry in enumerate(new)]
    _insert(connection, configs, [_config_values(campaign_id, entry) for entry in placed])
    _update_configs(connection, [_config_values(campaign_id, entry) for entry in known.values()])
    return Position(
        campaign_id,
        records[-1].end,
        "",
        records[-1].line,
        position.configs + len(new),
        evidence.tally,
    )


def write_position(connection: sa.Connection, position: Position) -> None:
    """Store the position of the index."""
    connection.execute(campaigns.delete().where(campaigns.c.campaign_id == position.campaign_id))
    connection.execute(
        campaigns.insert().values(
            campaign_id=position.campaign_id,
            journal_end=position.end,
            journal_sha256=position.sha256,
            lines=position.lines,
            configs=position.configs,
            tally=position.tally.model_dump_json(),
        )
    )


def forget(connection: sa.Connection, campaign_id: str) -> None:
    """Delete everything about a campaign."""
    for table in (trials, rows, configs, campaigns):
        connection.execute(table.delete().where(table.c.campaign_id == campaign_id))


def _configs_of(row: Row) -> list[str]:
    """Return the configs whose evidence the row may change."""
    if not isinstance(row, IterationRow | BaselineRow):
        return []
    named = [trial.config_hash for trial in trials_of(row)]
    if row.config_hash is not None:
        named.append(row.config_hash)
    return named


def _row_values(campaign_id: str, record: Record) -> dict[str, Any]:
    row = record.row
    iteration = row if isinstance(row, IterationRow) else None
    return {
        "campaign_id": campaign_id,
        "line": record.line,
        "kind": row.kind,
        "iter": iteration.iter if iteration else None,
        "action": iteration.decision.action if iteration else None,
        "config_hash": row.config_hash if isinstance(row, _OF_ONE_CONFIG) else None,
        "json": record.raw.decode().rstrip("\n"),
    }


_OF_ONE_CONFIG = IterationRow | BaselineRow | RowOfOneRun


def _trial_values(campaign_id: str, line: int, number: int, trial: TrialRecord) -> dict[str, Any]:
    return {
        "campaign_id": campaign_id,
        "line": line,
        "number": number,
        "trial_id": trial.trial_id,
        "role": trial.role,
        "config_hash": trial.config_hash,
        "seed": str(trial.seed),
        "status": trial.result.status,
        "objective": trial.objective,
        "train_s": None if isinstance(trial.result, TrialFailed) else trial.result.train_s,
        "wall_s": trial.wall_s,
    }


def _config_values(campaign_id: str, placed: Placed) -> dict[str, Any]:
    entry = placed.evidence
    return {
        "campaign_id": campaign_id,
        "config_hash": entry.config_hash,
        "position": placed.position,
        "iter": entry.iter,
        "action": entry.action,
        "n": entry.n,
        "seeds": ",".join(map(str, sorted(entry.scores))),
        "mean_objective": entry.mean if entry.n else None,
        "sum_of_squares": entry.sum_of_squares,
        "failures": len(entry.failures),
        "contends": entry.contends,
        "train_s": entry.train_s,
        "params": entry.params,
        "evidence": _CONFIG.dump_json(entry).decode(),
    }


def _insert(connection: sa.Connection, table: sa.Table, values: list[dict[str, Any]]) -> None:
    if values:
        connection.execute(table.insert(), values)


def _update_configs(connection: sa.Connection, values: list[dict[str, Any]]) -> None:
    if not values:
        return
    key = ("campaign_id", "position")
    statement = configs.update().where(
        *(configs.c[name] == sa.bindparam(f"_{name}") for name in key)
    )
    statement = statement.values(
        {name: sa.bindparam(name) for name in values[0] if name not in key}
    )
    connection.execute(
        statement, [{f"_{n}" if n in key else n: value for n, value in v.items()} for v in values]
    )


def digest_of(journal: Path, length: int) -> hashlib._Hash | None:
    """Return the running SHA-256 of the journal's first ``length`` bytes; None if it has fewer."""
    digest = hashlib.sha256()
    if length == 0:
        return digest
    try:
        with journal.open("rb", buffering=0) as file:
            while length > 0 and (block := file.read(min(length, 1 << 20))):
                digest.update(block)
                length -= len(block)
    except FileNotFoundError:
        return None
    return None if length else digest
