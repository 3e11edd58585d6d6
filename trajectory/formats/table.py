"""Build one flat table of a campaign, and write tables as CSV and Parquet.

A line is a trial; an iteration that trained nothing has one line with empty trial columns. Every
column has a description with its unit; in Parquet it is metadata of the column's field.

A spreadsheet runs a cell that begins with ``=``, ``+``, ``-``, ``@``, a tab or a carriage return as
a formula. Reasons hold arbitrary text from a model (OWASP, CSV Injection). So an apostrophe is put
before every text of a CSV file that begins with one of those characters or with an apostrophe.
Removing one apostrophe restores the text. Numbers are written unchanged.
"""

import csv
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any, Literal, TextIO, TypeAlias, get_args

from autoresearch.errors import FormatError
from autoresearch.program import install_command
from trainer.schema import AnyConfig, CommandConfig, Config, TrialFailed
from trajectory.rows import (
    BaselineRow,
    CampaignRow,
    IterationRow,
    Row,
    RowOfOneRun,
    TrialRecord,
    trials_of,
)

Kind: TypeAlias = Literal["text", "int", "float", "bool"]
Cell: TypeAlias = str | int | float | bool | None


@dataclass(frozen=True, slots=True)
class Column:
    """Name of a column, the type of its nonempty cells, and its description with its unit."""

    name: str
    kind: Kind
    says: str


@dataclass(frozen=True, slots=True)
class Table:
    """Columns, and lines with one cell per column. The lines can be read only once."""

    columns: tuple[Column, ...]
    lines: Iterable[Sequence[Cell]]


_ITERATION = (
    Column("campaign_id", "text", "of the campaign"),
    Column("kind", "text", "baseline, iteration, or of what runs outside the search"),
    Column("iter", "int", "iteration, 1 the first; empty beside iterations"),
    Column("at", "text", "when the row was written, ISO 8601, UTC"),
    Column("proposer", "text", "who made the proposal that was used"),
    Column("model", "text", "of a language model that was asked"),
    Column("changes", "text", "knobs the proposal sets, JSON"),
    Column("reason", "text", "the proposer's, in its own words"),
    Column("rail", "text", "that refused the proposal"),
    Column("why", "text", "it was refused"),
    Column("action", "text", "keep, discard or none"),
    Column("reference_hash", "text", "config that the candidate was judged against"),
    Column(
        "reference_objective",
        "float",
        "its mean objective: bits per byte, or a command's score, negated if higher is better",
    ),
    Column("estimate_objective", "float", "the candidate's mean objective"),
    Column("delta", "float", "estimate minus reference, in objectives; negative is better"),
    Column("stderr", "float", "standard error of the difference"),
    Column("iteration_wall_s", "float", "the whole iteration, seconds"),
    Column("iteration_energy_wh", "float", "the whole iteration, watt-hours"),
)
_TRIAL = (
    Column("trial_id", "text", "of the trial"),
    Column("role", "text", "baseline, candidate, reference, or of what run outside the search"),
    Column("config_hash", "text", "SHA-256 of the config that was trained"),
    Column("seed", "int", "of initial weights and batches"),
    Column("status", "text", "ok, or how it failed"),
    Column("message", "text", "of a failure"),
    Column("trial_wall_s", "float", "from request to result, seconds"),
)
_RESULT = (
    Column("val_bpb", "float", "held-out bits per byte"),
    Column("val_bits_per_token", "float", "held-out bits per token"),
    Column("val_bytes", "int", "UTF-8 bytes scored"),
    Column("val_tokens", "int", "tokens scored"),
    Column("train_loss_first", "float", "nats per token"),
    Column("train_loss_last", "float", "nats per token"),
    Column("steps", "int", "optimizer steps"),
    Column("tokens", "int", "trained on"),
    Column("params", "int", "parameters"),
    Column("step_ms", "float", "median over the steps after the first, milliseconds"),
    Column("tokens_per_s", "float", "trained tokens over train_s"),
    Column("train_s", "float", "seconds"),
    Column("eval_s", "float", "seconds"),
    Column("setup_s", "float", "seconds"),
    Column("peak_mem_gib", "float", "of the device, of a command on the host; GiB"),
    Column("peak_gpu_mem_gib", "float", "of a command's processes, GiB"),
    Column("energy_wh", "float", "watt-hours"),
    Column("gpu_util_pct", "float", "mean utilization of the GPU, percent"),
    Column("backend", "text", "that trained"),
    Column("device", "text", "its own name"),
)


_KINDS: dict[object, Kind] = {bool: "bool", int: "int", float: "float"}
_SCORE = Column("score", "float", "what the campaign's command printed, in the menu's unit")


def trials_table(rows: Iterable[Row]) -> Table:
    """Return a campaign's trials, in the journal's order."""
    rows = iter(rows)
    begun: list[Row] = []
    for row in rows:  # up to the first config, which has every field
        begun.append(row)
        if isinstance(row, BaselineRow):
            break
    first = begun[-1] if begun else None
    config = first.config if isinstance(first, BaselineRow) else None
    menu = next((row.menu_toml for row in begun if isinstance(row, CampaignRow)), "")
    results: tuple[Column, ...] = _RESULT
    kinds: dict[str, Kind]
    if isinstance(config, CommandConfig):
        results = (_SCORE, *_RESULT)
        kinds = {name: _KINDS.get(type(value), "text") for name, value in config.values.items()}
    else:
        kinds = {
            name: next((_KINDS[part] for part in _parts(of.annotation) if part in _KINDS), "text")
            for name, of in Config.model_fields.items()
        }
    fields = [name for name in kinds if not name.startswith("code.") or f"[{name}]" in menu]
    knobs = tuple(
        Column(f"config.{name}", kinds[name], "of the config that was trained") for name in fields
    )
    lines = _trial_lines(chain(begun, rows), results, fields)
    return Table((*_ITERATION, *_TRIAL, *results, *knobs), lines)


def _parts(annotation: Any) -> Iterator[Any]:
    """Yield a type and the types it is composed of."""
    yield annotation
    for part in get_args(annotation):
        if not isinstance(part, str):
            yield from _parts(part)


def _trial_lines(
    rows: Iterable[Row], results: Sequence[Column], fields: Sequence[str]
) -> Iterator[Sequence[Cell]]:
    campaign_id = ""
    configs: dict[str, AnyConfig] = {}
    for row in rows:
        if isinstance(row, CampaignRow):
            campaign_id = row.id
        if isinstance(row, BaselineRow | IterationRow | RowOfOneRun):
            if row.config is not None and row.config_hash is not None:
                configs[row.config_hash] = row.config
            about = (campaign_id, *_iteration_cells(row))
            for trial in trials_of(row) or (None,):
                config = configs.get(trial.config_hash) if trial else row.config
                cells = (None if config is None else config.value(name) for name in fields)
                yield (*about, *_trial_cells(trial, results), *cells)


def _iteration_cells(row: BaselineRow | IterationRow | RowOfOneRun) -> tuple[Cell, ...]:
    if not isinstance(row, IterationRow):
        return (row.kind, None, row.at, *[None] * (len(_ITERATION) - 4))
    decision = row.decision
    return (
        row.kind,
        row.iter,
        row.at,
        row.proposer.kind,
        row.proposer.model,
        None if row.proposal is None else json.dumps(row.proposal.changes),
        None if row.proposal is None else row.proposal.reason,
        row.verdict.rail,
        row.verdict.why or None,
        decision.action,
        decision.reference_hash,
        decision.reference_objective,
        decision.estimate_objective,
        decision.delta,
        decision.stderr,
        row.wall_s,
        row.energy_wh,
    )


def _trial_cells(trial: TrialRecord | None, results: Sequence[Column]) -> tuple[Cell, ...]:
    if trial is None:
        return (None,) * (len(_TRIAL) + len(results))
    result = trial.result
    message = result.message if isinstance(result, TrialFailed) else None
    named = {name: getattr(result, name) for name in type(result).model_fields}
    return (
        trial.trial_id,
        trial.role,
        trial.config_hash,
        trial.seed,
        result.status,
        message,
        trial.wall_s,
        *(named.get(column.name) for column in results),
    )


GUARDED = ("=", "+", "-", "@", "\t", "\r", "\n", "'", "＝", "＋", "－", "＠")
"""Beginnings of a text that a spreadsheet would take for a formula, in full width, too; or that
would be taken for the guard itself."""


def write_csv(table: Table, file: TextIO) -> int:
    """Write a header and every line, and return the number of lines.

    :param file: open with ``newline=""``.
    """
    writer = csv.writer(file)  # its line ends are those of RFC 4180, so it quotes both \r and \n
    writer.writerow(cell_text(column.name) for column in table.columns)
    written = 0
    for line in table.lines:
        writer.writerow(cell_text(cell) for cell in line)
        written += 1
    return written


def cell_text(cell: Cell) -> str:
    """Return a cell's CSV text: empty for None, ``true`` or ``false``, and floats that
    round-trip."""
    if cell is None:
        return ""
    if isinstance(cell, bool):
        return "true" if cell else "false"
    if isinstance(cell, str):
        return f"'{cell}" if cell.lstrip(" ").startswith(GUARDED) else cell
    return repr(cell)


BATCH = 5000


def write_parquet(table: Table, path: Path) -> int:
    """Write every line, and return their number.

    :raises FormatError: if pyarrow is not installed, or a number does not fit in 64 bits.
    """
    try:
        import pyarrow as pa  # noqa: PLC0415 (an extra)
        import pyarrow.parquet as pq  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise FormatError(
            f"writing Parquet needs pyarrow; run: {install_command('parquet')}"
        ) from error
    types = {"text": pa.string(), "int": pa.int64(), "float": pa.float64(), "bool": pa.bool_()}
    schema = pa.schema(
        [
            pa.field(column.name, types[column.kind], metadata={"description": column.says})
            for column in table.columns
        ]
    )
    lines = iter(table.lines)
    written = 0
    with pq.ParquetWriter(path, schema) as writer:
        while batch := list(islice(lines, BATCH)):
            columns = zip(*batch, strict=True)
            try:
                arrays = [
                    pa.array(list(column), type=field.type)
                    for column, field in zip(columns, schema, strict=True)
                ]
            except (OverflowError, pa.ArrowInvalid) as error:
                raise FormatError(
                    f"a number is too large for Parquet's 64 bits ({error}); export to csv or jsonl"
                ) from error
            writer.write_batch(pa.record_batch(arrays, schema=schema))
            written += len(batch)
    return written
