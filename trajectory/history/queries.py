"""Define the queries that every index of a journal answers, each within one transaction."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TypeVar

import sqlalchemy as sa
from pydantic import TypeAdapter, ValidationError

from autoresearch.closing import gc_paused
from autoresearch.values import Frozen
from trajectory import ranking
from trajectory.evidence import ConfigEvidence, Evidence, Tally
from trajectory.history.indexing import Position, read_configs
from trajectory.history.tables import DamagedIndexError, configs, rows, trials
from trajectory.ranking import Ranked, Unranked
from trajectory.rows import (
    BaselineRow,
    CampaignRow,
    EventRow,
    IterationRow,
    TrialRecord,
    parse_row,
)
from trajectory.statistics.population import Population

_CHUNK = 500

_CONFIGS: TypeAdapter[list[ConfigEvidence]] = TypeAdapter(list[ConfigEvidence])
Kind = TypeVar("Kind", bound=Frozen)


def newest(
    connection: sa.Connection, position: Position, kind: type[Kind], limit: int | None
) -> list[Kind]:
    """Return the rows of one kind, newest first."""
    found = connection.execute(
        sa.select(rows.c.json)
        .where(
            rows.c.campaign_id == position.campaign_id,
            rows.c.kind == kind.model_fields["kind"].default,
        )
        .order_by(rows.c.line.desc())
        .limit(limit)
    )
    return [row for text in found.scalars() if isinstance(row := parse_row(text), kind)]


def trial_ids(connection: sa.Connection, position: Position) -> set[str]:
    """Return the ids of all trials that some row records as ended."""
    found = connection.execute(
        sa.select(trials.c.trial_id).where(trials.c.campaign_id == position.campaign_id)
    )
    return set(found.scalars()) | set(position.tally.interrupted)


def measurements(
    connection: sa.Connection, position: Position, config_hash: str
) -> list[TrialRecord]:
    """Return a config's short runs that ended with a measurement, newest row first.

    Only rows about that config count, not rows in which it served as the reference.
    """
    found = connection.execute(
        sa.select(rows.c.json)
        .where(
            rows.c.campaign_id == position.campaign_id,
            rows.c.config_hash == config_hash,
            rows.c.kind.in_(("baseline", "iteration")),
        )
        .order_by(rows.c.line.desc())
    )
    records: list[TrialRecord] = []
    for row in map(parse_row, found.scalars()):
        if isinstance(row, BaselineRow):
            records.append(row.trial)
        elif isinstance(row, IterationRow):
            records += (trial for trial in row.trials if trial.config_hash == config_hash)
    return [record for record in records if record.objective is not None]


def evidence(connection: sa.Connection, position: Position) -> Evidence:
    """Return all evidence.

    :raises DamagedIndexError: if the index holds invalid evidence.
    """
    texts = connection.execute(
        sa.select(configs.c.evidence)
        .where(configs.c.campaign_id == position.campaign_id)
        .order_by(configs.c.position)
    ).scalars()
    entries: list[ConfigEvidence] = []
    with gc_paused():
        for part in texts.partitions(_CHUNK):
            try:
                entries += _CONFIGS.validate_json(f"[{','.join(part)}]")
            except ValidationError as error:
                raise DamagedIndexError(
                    f"the history of campaign {position.campaign_id} is damaged; "
                    "run autoresearch reindex"
                ) from error
        return Evidence.restore(position.tally, entries)


def top(connection: sa.Connection, position: Position, k: int) -> list[Ranked]:
    """Return the ``k`` best configs like :func:`trajectory.ranking.top`, reading only a few
    configs."""
    noise = ranking.Noise.of(position.tally)
    population = None
    if noise:
        texts = connection.execute(
            sa.select(configs.c.evidence)
            .where(
                configs.c.campaign_id == position.campaign_id,
                configs.c.contends,
                configs.c.position.in_(
                    range(0, position.configs, ranking.stride(position.configs))
                ),
                configs.c.config_hash != (position.tally.baseline_hash or ""),
            )
            .order_by(configs.c.position)
        )
        sample = _CONFIGS.validate_json(f"[{','.join(texts.scalars())}]")
        population = Population.fit(sample, noise.sigma)
    baseline_hash = position.tally.baseline_hash
    wanted = _best_of_each_kind(connection, position, k)
    if baseline_hash is not None:
        wanted.add(baseline_hash)
    found = read_configs(connection, position.campaign_id, wanted)
    entries = {name: placed.evidence for name, placed in found.items()}
    baseline = entries.get(baseline_hash or "")
    return ranking.rank(entries.values(), k, noise=noise, population=population, baseline=baseline)


def unranked(connection: sa.Connection, position: Position) -> Unranked:
    """Count the measured configs that :func:`top` does not rank."""
    failed = configs.c.failures > 0
    found = connection.execute(
        sa.select(failed, sa.func.count())
        .where(
            configs.c.campaign_id == position.campaign_id,
            configs.c.n > 0,
            sa.not_(configs.c.contends),
            configs.c.config_hash != (position.tally.baseline_hash or ""),
        )
        .group_by(failed)
    )
    counts = {bool(on_a_seed): count for on_a_seed, count in found}
    return Unranked(counts.get(True, 0), counts.get(False, 0))


def _best_of_each_kind(connection: sa.Connection, position: Position, k: int) -> set[str]:
    """Return the hashes of all configs that could be among the ``k`` best.

    Among configs measured on the same seeds, posterior means have the order of the means.
    """
    mine = (configs.c.campaign_id == position.campaign_id, configs.c.contends)
    best: set[str] = set()
    for seeds in (
        connection.execute(sa.select(configs.c.seeds).where(*mine).distinct()).scalars().all()
    ):
        best.update(
            connection.execute(
                sa.select(configs.c.config_hash)
                .where(*mine, configs.c.seeds == seeds)
                .order_by(configs.c.mean_objective, configs.c.position)
                .limit(k)
            ).scalars()
        )
    return best


Answer = TypeVar("Answer")


class Questions(ABC):
    """Queries about one campaign; each one uses a consistent state of the index."""

    @abstractmethod
    def _ask(self, query: Callable[[sa.Connection, Position], Answer]) -> Answer:
        """Run a query with a connection and the position of the index. It may be called more than
        once."""

    @property
    def position(self) -> Position:
        """Current position of the index in the journal."""
        return self._ask(lambda _, position: position)

    @property
    def tally(self) -> Tally:
        """Sums of the evidence, up to that position."""
        return self.position.tally

    def campaign(self) -> CampaignRow | None:
        """Return the campaign's own row; None for an empty history."""
        return next(iter(self.newest(CampaignRow, 1)), None)

    def iterations(self, limit: int | None = None) -> list[IterationRow]:
        """Return finished iterations, newest first."""
        return self.newest(IterationRow, limit)

    def events(self, limit: int | None = None) -> list[EventRow]:
        """Return the campaign's events, newest first."""
        return self.newest(EventRow, limit)

    def newest(self, kind: type[Kind], limit: int | None = None) -> list[Kind]:
        """Return the rows of one kind, newest first."""
        return self._ask(lambda c, position: newest(c, position, kind, limit))

    def trial_ids(self) -> set[str]:
        """Return the ids of all trials in any row, as measured, failed or interrupted."""
        return self._ask(trial_ids)

    def measurements(self, config_hash: str) -> list[TrialRecord]:
        """Return a config's short runs that ended with a measurement."""
        return self._ask(lambda c, position: measurements(c, position, config_hash))

    def evidence(self) -> Evidence:
        """Return all evidence: the sums over the journal's rows, without reading them."""
        return self._ask(evidence)

    def top(self, k: int) -> list[Ranked]:
        """Return the ``k`` best configs by posterior mean; see :mod:`trajectory.ranking`."""
        return self._ask(lambda c, position: top(c, position, k))

    def unranked(self) -> Unranked:
        """Count the measured configs that :meth:`top` does not rank."""
        return self._ask(unranked)
