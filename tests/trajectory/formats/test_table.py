"""Tables as CSV and Parquet keep their values, and no cell runs as a spreadsheet formula."""

import csv
import io
import json
from collections.abc import Sequence
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoresearch.errors import FormatError
from tests.support.rows import Simulator, iteration_row
from trajectory.formats.table import (
    GUARDED,
    Cell,
    Column,
    Table,
    cell_text,
    trials_table,
    write_csv,
    write_parquet,
)
from trajectory.rows import IterationRow, Row, trials_of


def own_table() -> tuple[list[Row], Table]:
    rows = [*Simulator(seed=3).rows(60), iteration_row(61, None, reason="=1+1")]
    table = trials_table(rows)
    return rows, Table(table.columns, list(table.lines))


def named(table: Table) -> list[dict[str, Cell]]:
    names = [column.name for column in table.columns]
    return [dict(zip(names, line, strict=True)) for line in table.lines]


def test_a_line_is_a_trial_and_a_refused_iteration_has_one_too() -> None:
    rows, table = own_table()
    trials = [trial for row in rows for trial in trials_of(row)]
    refused = [row for row in rows if isinstance(row, IterationRow) and not row.trials]
    assert trials
    assert refused
    lines = named(table)
    assert [line["trial_id"] for line in lines if line["trial_id"]] == [t.trial_id for t in trials]
    assert sum(line["trial_id"] is None for line in lines) == len(refused)
    scores = [line["val_bpb"] for line in lines if line["status"] == "ok"]
    assert scores == [t.objective for t in trials if t.objective is not None]
    assert all(line["val_bpb"] is None for line in lines if line["status"] != "ok")


def test_cells_are_of_their_columns_kind() -> None:
    kinds = {"text": str, "int": int, "float": float, "bool": bool}
    table = own_table()[1]
    assert len({column.name for column in table.columns}) == len(table.columns)
    assert all(column.says for column in table.columns)
    for line in table.lines:
        for column, cell in zip(table.columns, line, strict=True):
            assert cell is None or type(cell) is kinds[column.kind], column


def text_of(cell: str) -> str:
    """Return the text that a text cell was written for."""
    return cell[1:] if cell.startswith("'") else cell


def read_csv(table: Table) -> list[list[Cell]]:
    """Write a table as CSV and read it back, by the kinds of the columns."""
    file = io.StringIO(newline="")
    write_csv(table, file)
    file.seek(0)
    header, *lines = csv.reader(file)
    assert "'=1+1" in lines[-1]
    assert header == [column.name for column in table.columns]
    readers = {"text": text_of, "int": int, "float": float, "bool": json.loads}
    return [
        [
            None if cell == "" else readers[column.kind](cell)
            for column, cell in zip(table.columns, line, strict=True)
        ]
        for line in lines
    ]


def test_csv_and_parquet_give_back_the_same_cells(tmp_path: Path) -> None:
    table = own_table()[1]
    cells = [list(line) for line in table.lines]
    assert read_csv(table) == cells
    assert write_parquet(table, tmp_path / "t.parquet") == len(cells)
    read = pq.read_table(tmp_path / "t.parquet")
    assert [list(line.values()) for line in read.to_pylist()] == cells
    for column in table.columns:
        assert read.schema.field(column.name).metadata[b"description"].decode() == column.says


@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1))
def test_any_text_comes_back(text: str) -> None:
    cell = cell_text(text)
    assert text_of(cell) == text
    assert cell.startswith("'") or not cell.startswith(GUARDED)


@pytest.mark.parametrize("name", ["=HYPERLINK(A1)", " =1+1", "@SUM(A1)", "＝1+1"])
def test_a_columns_name_and_a_text_after_spaces_are_no_formulas(name: str) -> None:
    file = io.StringIO()
    write_csv(Table((Column(name, "text", ""),), [[name]]), file)
    assert list(csv.reader(io.StringIO(file.getvalue()))) == [[f"'{name}"], [f"'{name}"]]


def test_numbers_below_zero_are_left_as_numbers() -> None:
    assert [cell_text(cell) for cell in (-0.5, -3, True, None, 1e-300)] == [
        "-0.5",
        "-3",
        "true",
        "",
        "1e-300",
    ]


def test_a_number_parquet_cannot_hold_is_said(tmp_path: Path) -> None:
    lines: list[Sequence[Cell]] = [[1 << 70]]
    table = Table((Column("seed", "int", "of a test"),), lines)
    with pytest.raises(FormatError):
        write_parquet(table, tmp_path / "t.parquet")
