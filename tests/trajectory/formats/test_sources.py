"""Test how another tool's file is recognized, read and imported."""

import os
from pathlib import Path
from typing import Any

import pytest

from agent.search.stopping import Goal
from autoresearch import safe_text
from autoresearch.errors import FormatError, JournalError
from autoresearch.layout import IMPORTED_FILE, JOURNAL_FILE, is_imported
from tests.support.configs import config
from tests.support.foreign import single_knob_lines, write_jsonl
from tests.support.nights import work
from tests.support.rows import (
    Simulator,
    baseline_row,
    campaign_row,
    iteration_row,
    ok,
    trial,
    write_journal,
)
from trainer.schema import Place
from trajectory.formats import loop_logs, source
from trajectory.formats.foreign import ForeignRun, parse_foreign
from trajectory.formats.importing import import_campaign, read_imported
from trajectory.formats.source import Source, SourcePart
from trajectory.formats.tracked import seconds_of, tracked_trials
from trajectory.journal import read_rows
from trajectory.rows import Row, dump_row


def lines(path: Path, data: bytes) -> list[tuple[int, bytes]]:
    path.write_bytes(data)
    return [(line.number, line.raw) for line in Source.read(path).lines()]


def test_unreadable_files_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "MOST_BYTES", 1 << 16)
    os.mkfifo(tmp_path / "pipe")
    with (tmp_path / "big").open("wb") as file:
        file.truncate(source.MOST_BYTES + 1)
    (tmp_path / "empty").write_bytes(b"\n \n\r\n")
    for encoding in ("utf-16", "utf-16-be"):
        (tmp_path / encoding).write_bytes("\ufeffcommit".encode(encoding))
    for path in (*tmp_path.iterdir(), Path("/dev/zero"), Path("/dev")):
        with pytest.raises(FormatError) as raised:
            Source.read(path)
        assert "\n" not in str(raised.value)


def test_lines_are_numbered_as_an_editor_does(tmp_path: Path) -> None:
    path = tmp_path / "file"
    assert lines(path, b"a\n\n  \nb\nc") == [(1, b"a"), (4, b"b"), (5, b"c")]
    assert lines(path, b"a\r\n\r\nb\r\n") == [(1, b"a"), (3, b"b")]
    assert lines(path, b"\xef\xbb\xbfa\n\xef\xbb\xbfb\n") == [(1, b"a"), (2, b"\xef\xbb\xbfb")]
    assert lines(path, b"a\x0bb\x0c\xe2\x80\xa8c\n") == [(1, b"a\x0bb\x0c\xe2\x80\xa8c")]


def test_what_is_not_utf_8_is_shown(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"caf\xe9\n")
    (line,) = Source.read(tmp_path / "file").lines()
    with pytest.raises(ValueError, match="it is not UTF-8"):
        line.text()


_HEADERS = {
    loop_logs.read_tsv: b"commit\tval_bpb\tmemory_gb\tstatus\tdescription\n",
    loop_logs.read_single_knob: b"",
    loop_logs.read_pi: b'{"type": "config", "metricName": "loss"}\n',
}


@pytest.mark.parametrize("reader", _HEADERS, ids=lambda reader: reader.__name__)
def test_a_file_of_nothing_but_nonsense_is_refused_early(tmp_path: Path, reader: Any) -> None:
    header = _HEADERS[reader]
    (tmp_path / "file").write_bytes(header + b"1\n" * (3 << 19))
    last = source.MOST_SKIPPED + 1 + header.count(b"\n")
    with pytest.raises(FormatError, match=rf"line {last} "):
        reader(Source.read(tmp_path / "file"), SourcePart())


def test_lines_and_their_length_are_bounded(tmp_path: Path) -> None:
    file = Source(tmp_path / "file", b"a\n" * 4)
    assert len(list(file.lines(4))) == 4
    with pytest.raises(FormatError):
        list(file.lines(3))
    whole = b"x" * source.MOST_LINE_BYTES
    assert len(list(Source(tmp_path / "file", whole).lines())) == 1
    with pytest.raises(FormatError, match="line 2"):
        list(Source(tmp_path / "file", b"a\n" + whole + b"x").lines())


def test_trials_of_several_lanes_overlap_and_others_follow_each_other() -> None:
    reference, candidate = config(), config(lr=0.004)
    row = iteration_row(
        1,
        candidate,
        (
            trial(1, reference, 1, ok(4.0), "reference").model_copy(
                update={"place": Place(lane="0"), "at": "2026-01-05T22:00:05.000+00:00"}
            ),
            trial(2, candidate, 1, ok(4.0)).model_copy(
                update={"place": Place(lane="1"), "at": "2026-01-05T22:00:04.000+00:00"}
            ),
        ),
    )
    rows: list[Row] = [campaign_row(), baseline_row(3, 4.2, 7), row]
    *_, first, second = tracked_trials(rows)
    assert first.ended_s == seconds_of("2026-01-05T22:00:05+00:00")
    assert second.ended_s == first.ended_s - 1
    assert second.began_s == second.ended_s - second.trial.wall_s
    trials = (trial(1, reference, 1, ok(4.0)), trial(2, reference, 2, ok(4.0)))
    row = iteration_row(1, reference, trials)
    first, second = tracked_trials([row])
    assert second.ended_s == seconds_of(row.at)
    assert first.ended_s == second.began_s


def test_a_trial_says_when_it_ended_where_there_are_several_lanes(tmp_path: Path) -> None:
    for lanes in (1, 3):
        work(tmp_path / str(lanes), Goal(iterations=3), lanes=lanes)
        rows = list(read_rows(tmp_path / str(lanes) / "campaign" / "trajectory.jsonl"))
        said = {one.trial.at is not None for one in tracked_trials(rows)}
        assert said == {lanes > 1}
        for one in tracked_trials(rows):
            assert one.ended_s > 1e9


@pytest.fixture
def journal(tmp_path: Path) -> tuple[Path, list[Row]]:
    (tmp_path / "from").mkdir()
    path = tmp_path / "from" / JOURNAL_FILE
    return path, write_journal(path, Simulator().rows(60))


def test_our_own_journal_byte_for_byte(tmp_path: Path, journal: tuple[Path, list[Row]]) -> None:
    path, rows = journal
    for number, given in enumerate((path, path.parent)):
        to = tmp_path / f"to{number}"
        assert import_campaign(given, to).provenance.format == "journal"
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


OLD = """{"kind":"imported","schema":1,"format":"single-knob","source":"t","source_sha256":"0",\
"imported_at":"2026-11-20T00:00:00.000+00:00","measure":"loss","accept_delta_frac":0.01}
{"kind":"run","line":1,"iter":0,"values":{"lr":1},"is_baseline":true,"status":"measured","score":2}
{"kind":"run","line":2,"iter":1,"values":null,"status":"refused","rail":"range","metrics":{"s":1}}
"""


def test_a_secret_in_an_import_is_removed_as_it_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    line = '{"kind":"run","line":2,"iter":1,"name":"a","reason":"with sk-of-nobody-1","score":1}'
    monkeypatch.setattr(safe_text, "_forms", None)
    monkeypatch.setenv("LLM_API_KEY", "sk-of-nobody-1")
    run = parse_foreign(line)
    assert isinstance(run, ForeignRun)
    assert (run.reason, run.score) == ("with [secret]", 1.0)


def test_what_an_earlier_version_imported_is_read(tmp_path: Path) -> None:
    (tmp_path / IMPORTED_FILE).write_text(OLD)
    assert [run.score for run in read_imported(tmp_path).runs] == [2, None]


def test_only_curves_come_along(tmp_path: Path, journal: tuple[Path, list[Row]]) -> None:
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
    "a damaged journal": (dump_row(campaign_row()) + "\n{}\n" + dump_row(campaign_row())).encode(),
    "a torn first row": b'{"kind": "campaign", "schema": 1, "id": "x"}\n',
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_trajectory_leaves_nothing_behind(tmp_path: Path, name: str) -> None:
    path = tmp_path / "file"
    path.write_bytes(REFUSED[name])
    with pytest.raises((FormatError, JournalError)) as raised:
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
def test_an_import_replaces_nothing_that_exists(
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
