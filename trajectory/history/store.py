"""Keep the history: an index of the journal in SQL, for other programs and for a lab's server.

The index holds nothing that the journal does not, and no decision depends on it. It stores how many
bytes of the journal each campaign's rows come from, and the SHA-256 of those bytes. If that hash is
the journal's, the rows that follow are added. Otherwise the campaign's index is built anew. One
process writes it, the one that holds the campaign's lock.
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import sqlalchemy as sa

from autoresearch.campaign_files import remove, rename
from autoresearch.closing import Closing
from autoresearch.errors import MachineryError
from trainer.spec import TrialFailed
from trajectory.evidence import Evidence
from trajectory.history import tables
from trajectory.history.tables import DamagedIndexError, campaigns, configs, rows, trials
from trajectory.history.view_definitions import create_views
from trajectory.journal import Journal, Record, batches, open_journal, read_records
from trajectory.lock import CampaignLock
from trajectory.reading import Results
from trajectory.rows import BaselineRow, IterationRow, RowOfOneRun, trials_of

_BATCH_ROWS = 500
_BATCH_BYTES = 8 << 20
_OF_ONE_CONFIG = IterationRow | BaselineRow | RowOfOneRun


def reindex(where: str | Path, journal: Path) -> Results:
    """Index a journal anew, under the campaign's lock, and return its results.

    A SQLite file gets the views too.

    :raises CampaignLockedError: while a loop runs in this campaign.
    :raises JournalError: if the journal is damaged.
    """
    with CampaignLock(journal.parent), Journal(journal), History(where, journal) as history:
        results = Results(journal)
        history.catch_up(results, anew=True)
        if tables.sqlite_path(where) is not None:
            with history.views(results):
                pass
        return results


class History(Closing):
    """One campaign's index, in a database that may hold others."""

    def __init__(self, where: str | Path, journal: Path) -> None:
        """Connect to a SQLite file at a path, to memory or to a database at a SQLAlchemy URL.

        :raises HistoryError: if this installation cannot reach such a database.
        """
        self.note: str | None = None
        """One sentence on what replaced a file that was no index; None if nothing did."""
        self._where = where
        self._journal = journal
        self._checked = False
        """Whether the file is one that this program made; a campaign may come from others."""
        self._engine = tables.connect(where)
        self._digest = hashlib.sha256()
        """Hash of the indexed bytes of the journal, as far as this process knows."""

    def catch_up(self, results: Results, *, anew: bool = False) -> None:
        """Index the journal's rows that are not indexed yet: all of them or none.

        :param results: results of the whole journal.
        :param anew: whether to index the rows that are indexed already once more.
        :raises MachineryError: if the disk is full.
        :raises HistoryError: if the database is unavailable; a later call adds the rows.
        """
        path = None if self._where == tables.MEMORY else tables.sqlite_path(self._where)
        try:
            if path is not None and path.parent == self._journal.parent and not self._checked:
                tables.check_file(path)
            self._checked = True
            self._catch_up(results, anew=anew)
        except DamagedIndexError:
            if path is None:
                raise
            self._move_away(path)
            self._catch_up(results, anew=anew)

    def _catch_up(self, results: Results, *, anew: bool) -> None:
        campaign, digest = results.campaign(), self._digest.copy()
        with tables.translated(self._where), self._engine.begin() as connection:
            tables.create(connection)
            if campaign is None:
                return
            known = connection.execute(
                sa.select(campaigns).where(campaigns.c.campaign_id == campaign.id)
            ).one_or_none()
            end, sha256, lines = known[1:] if known else (0, "", 0)
            if digest.hexdigest() != sha256:
                digest = _digest_of(self._journal, end)
            if anew or digest.hexdigest() != sha256:
                for table in (trials, rows, configs):
                    connection.execute(table.delete().where(table.c.campaign_id == campaign.id))
                digest, end, lines = hashlib.sha256(), 0, 0
            changed: set[str] = set()
            records = read_records(self._journal, offset=end, line=lines)
            whole = (record for record in records if record.raw.endswith(b"\n"))
            for batch in batches(whole, rows=_BATCH_ROWS, size=_BATCH_BYTES):
                changed |= _insert(connection, campaign.id, batch)
                digest.update(b"".join(record.raw for record in batch))
                end, lines = batch[-1].end, batch[-1].line
            _replace_configs(connection, campaign.id, results.evidence, changed)
            connection.execute(campaigns.delete().where(campaigns.c.campaign_id == campaign.id))
            connection.execute(
                campaigns.insert().values((campaign.id, end, digest.hexdigest(), lines))
            )
        self._digest = digest

    @contextmanager
    def views(self, results: Results) -> Iterator[sqlite3.Connection]:
        """Create the views of an index in SQLite, and lend its connection."""
        campaign = results.campaign()
        with tables.translated(self._where):
            held = self._engine.raw_connection()
            try:
                connection = cast(sqlite3.Connection, held.driver_connection)
                create_views(connection, campaign.id if campaign else "")
                yield connection
            finally:
                held.close()

    def close(self) -> None:
        """Close the index; calling it again is harmless."""
        self._engine.dispose()

    def _move_away(self, path: Path) -> None:
        """Rename a file that is no index of this layout, because its user may have named another
        program's file by mistake."""
        self._engine.dispose()
        try:
            rename(path.parent, path.name, f"{path.name}.damaged")
            for suffix in ("-wal", "-shm"):
                remove(path.parent, path.name + suffix)
        except OSError as error:
            raise MachineryError(
                f"cannot move the damaged history {path} out of the way ({error.strerror}); "
                "delete it by hand"
            ) from error
        self._engine = tables.connect(self._where)
        self.note = f"{path} was damaged or of another layout and was built anew from the journal"


def _insert(connection: sa.Connection, campaign_id: str, records: Sequence[Record]) -> set[str]:
    """Insert rows and their trials, and return the hashes of the configs that they may change."""
    row_values: list[dict[str, Any]] = []
    trial_values: list[dict[str, Any]] = []
    changed: set[str] = set()
    for record in records:
        row, key = record.row, {"campaign_id": campaign_id, "line": record.line}
        iteration = row if isinstance(row, IterationRow) else None
        row_values.append(
            {
                **key,
                "kind": row.kind,
                "iter": iteration.iter if iteration else None,
                "action": iteration.decision.action if iteration else None,
                "config_hash": row.config_hash if isinstance(row, _OF_ONE_CONFIG) else None,
                "json": record.raw.decode().rstrip("\n"),
            }
        )
        trial_values += [
            {
                **key,
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
            for number, trial in enumerate(trials_of(row))
        ]
        if isinstance(row, IterationRow | BaselineRow):
            changed |= {trial.config_hash for trial in trials_of(row)} | {row.config_hash or ""}
    connection.execute(rows.insert(), row_values)
    if trial_values:
        connection.execute(trials.insert(), trial_values)
    return changed


def _replace_configs(
    connection: sa.Connection, campaign_id: str, evidence: Evidence, changed: set[str]
) -> None:
    """Write these configs as the evidence has them."""
    values = [
        {
            "campaign_id": campaign_id,
            "position": position,
            "config_hash": entry.config_hash,
            "iter": entry.iter,
            "action": entry.action,
            "n": entry.n,
            "mean_objective": entry.mean if entry.n else None,
            "failures": len(entry.failures),
            "train_s": entry.train_s,
            "params": entry.params,
            "config": entry.config.model_dump_json(),
        }
        for position, entry in enumerate(evidence.configs.values())
        if entry.config_hash in changed
    ]
    if values:
        stale = configs.delete().where(
            configs.c.campaign_id == campaign_id, configs.c.position == sa.bindparam("at")
        )
        connection.execute(stale, [{"at": one["position"]} for one in values])
        connection.execute(configs.insert(), values)


def _digest_of(journal: Path, length: int) -> hashlib._Hash:
    """Return the running SHA-256 of the journal's first ``length`` bytes, or fewer if it is
    shorter."""
    digest = hashlib.sha256()
    with open_journal(journal) as file:
        while length > 0 and (block := file.read(min(length, 1 << 20))):
            digest.update(block)
            length -= len(block)
    return digest
