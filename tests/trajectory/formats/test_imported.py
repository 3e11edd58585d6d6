"""An import recognizes a file's format, is all or nothing, and survives an export and a second
import."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from autoresearch.errors import FormatError
from autoresearch.layout import IMPORTED_FILE, JOURNAL_FILE, is_imported
from tests.support.foreign import single_knob_lines, write_jsonl
from tests.support.rows import Simulator, write_journal
from trajectory.evidence import Evidence
from trajectory.formats.imported import read_imported
from trajectory.formats.importing import import_campaign
from trajectory.journal import read_rows
from trajectory.rows import Row, dump_row


@pytest.fixture
def journal(tmp_path: Path) -> tuple[Path, list[Row]]:
    (tmp_path / "from").mkdir()
    path = tmp_path / "from" / JOURNAL_FILE
    return path, write_journal(path, Simulator().rows(60))


def test_our_own_journal_byte_for_byte(tmp_path: Path, journal: tuple[Path, list[Row]]) -> None:
    path, rows = journal
    for number, source in enumerate((path, path.parent)):
        to = tmp_path / f"to{number}"
        provenance = import_campaign(source, to)
        assert provenance.format == "journal"
        assert not provenance.skipped
        assert (to / JOURNAL_FILE).read_bytes() == path.read_bytes()
        assert list(read_rows(to / JOURNAL_FILE)) == rows
        assert is_imported(to)
        assert not read_imported(to).is_foreign


def test_an_import_can_be_imported(tmp_path: Path) -> None:
    path = write_jsonl(tmp_path / "t.jsonl", single_knob_lines(5))
    import_campaign(path, tmp_path / "one")
    import_campaign(tmp_path / "one", tmp_path / "two")
    import_campaign(tmp_path / "one" / IMPORTED_FILE, tmp_path / "three")
    assert read_imported(tmp_path / "one").runs == read_imported(tmp_path / "two").runs
    assert (
        read_imported(tmp_path / "one").provenance == read_imported(tmp_path / "three").provenance
    )


def test_rows_that_cannot_stand_alone_are_left_out(
    tmp_path: Path, journal: tuple[Path, list[Row]]
) -> None:
    path, rows = journal
    kept = next(row for row in rows if row.kind == "iteration" and row.config_hash)
    lines: list[object] = [dump_row(row) for row in rows]
    lines.insert(3, '{"kind": "baseline", ')
    lines.insert(5, json.dumps({"kind": "unheard of"}))
    lines.append(dump_row(kept))
    stray = json.loads(dump_row(kept)) | {"iter": 1000}
    stray["trials"][0] |= {"trial_id": "t999999", "config_hash": "0" * 64}
    measured = next(row for row in rows if row.kind == "iteration" and row.trials)
    again = json.loads(dump_row(measured)) | {"iter": 1001}
    lines += [json.dumps(stray), json.dumps(again), dump_row(rows[1])]
    provenance = import_campaign(write_jsonl(path, lines), tmp_path / "to")
    assert [skipped.line for skipped in provenance.skipped] == [
        4,
        6,
        *range(len(rows) + 3, len(rows) + 7),
    ]
    imported = list(read_rows(tmp_path / "to" / JOURNAL_FILE))
    assert imported == rows
    assert Evidence(imported).tally.iterations == 60


def test_an_editors_marks_are_no_part_of_a_journal(
    tmp_path: Path, journal: tuple[Path, list[Row]]
) -> None:
    path, _ = journal
    written = path.read_bytes()
    path.write_bytes(b"\xef\xbb\xbf" + written.replace(b"\n", b"\r\n"))
    assert not import_campaign(path, tmp_path / "to").skipped
    assert (tmp_path / "to" / JOURNAL_FILE).read_bytes() == written


def test_curves_come_along_and_nothing_else_does(
    tmp_path: Path, journal: tuple[Path, list[Row]]
) -> None:
    path, _ = journal
    for name in ("t000001", "t000002", "t999999"):
        folder = path.parent / "trials" / name
        folder.mkdir(parents=True)
        (folder / "curve.jsonl").write_text("{}\n")
        (folder / "trainer.log").write_text("secret\n")
    (path.parent / "trials" / "t000002" / "curve.jsonl").unlink()
    (path.parent / "trials" / "t000002" / "curve.jsonl").symlink_to("/etc/passwd")
    import_campaign(path.parent, tmp_path / "to")
    copied = [p.relative_to(tmp_path / "to") for p in (tmp_path / "to" / "trials").rglob("*.*")]
    assert copied == [Path("trials/t000001/curve.jsonl")]


REFUSED = {
    "empty": b"",
    "a picture": b"\x89PNG\r\n\x1a\n" + bytes(100),
    "prose": b"It was a dark and stormy night.\n",
    "other JSON": b'{"a": 1}\n',
    "a newer journal": b'{"kind": "campaign", "schema": 99}\n',
    "a torn first row": b'{"kind": "campaign", "schema": 1, "id": "x"}\n',
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_trajectory_leaves_nothing_behind(tmp_path: Path, name: str) -> None:
    path = tmp_path / "file"
    path.write_bytes(REFUSED[name])
    with pytest.raises(FormatError) as raised:
        import_campaign(path, tmp_path / "to")
    assert "\n" not in str(raised.value)
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


def test_a_directory_that_holds_something_is_left_alone(tmp_path: Path) -> None:
    path = write_jsonl(tmp_path / "t.jsonl", single_knob_lines(2))
    (tmp_path / "to").mkdir()
    (tmp_path / "to" / "mine").write_text("x")
    with pytest.raises(FormatError):
        import_campaign(path, tmp_path / "to")
    assert [p.name for p in (tmp_path / "to").iterdir()] == ["mine"]
    (tmp_path / "to" / "mine").unlink()
    import_campaign(path, tmp_path / "to")


@pytest.mark.parametrize("name", [".", "here", "link", "nowhere", "file"])
def test_what_a_new_directory_cannot_replace_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    path = write_jsonl(tmp_path / "t.jsonl", single_knob_lines(2))
    (tmp_path / "here").mkdir()
    (tmp_path / "empty").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "empty")
    (tmp_path / "nowhere").symlink_to(tmp_path / "nothing")
    (tmp_path / "file").write_text("x")
    monkeypatch.chdir(tmp_path / "here")
    to = Path() if name == "." else tmp_path / name
    with pytest.raises(FormatError, match="--campaign") as raised:
        import_campaign(path, to)
    assert "space" not in str(raised.value)
    assert (tmp_path / "file").read_text() == "x"
    assert not any(Path().iterdir())


def test_a_damaged_import_names_its_line(tmp_path: Path) -> None:
    import_campaign(write_jsonl(tmp_path / "t.jsonl", single_knob_lines(2)), tmp_path / "to")
    with (tmp_path / "to" / IMPORTED_FILE).open("a") as file:
        file.write("{torn\n")
    with pytest.raises(FormatError, match="line 5"):
        read_imported(tmp_path / "to")
