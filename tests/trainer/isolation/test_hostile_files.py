"""Every number, text and size that a trial writes is bounded where it is read."""

import json
import math
import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from autoresearch.errors import AutoresearchError, MachineryError
from autoresearch.layout import RESULT_FILE
from autoresearch.safe_text import plain
from tests.support.trials import trial_ok, trial_spec
from trainer.envelope.sweep import counted_step_s
from trainer.isolation.messages import Ended, Said
from trainer.isolation.outcome import Ending, finished_trial, judge
from trainer.isolation.scratch import clear
from trainer.isolation.trial_files import CurveTail, TrialFiles, wall_s
from trainer.schema import CurvePoint, TrialFailed, TrialOk, parse_result
from trainer.schema.result import CurveLines, KeptCurve

POINT = CurvePoint(step=1, tokens=1024, loss=5.5, lr=1e-3, grad_norm=1.0, elapsed_s=0.05)
UGLY = "\x1b[2J\x1b]0;owned\x07\x9b31m\u202egnp\r\n\x00"

JSON_NUMBERS = st.one_of(
    st.integers(),
    st.integers(min_value=1).map(lambda n: 10 ** min(n, 4000)),
    st.floats(allow_nan=True, allow_infinity=True),
    st.sampled_from([1e308, 1.7e308, 5e-324, 2.0**63, 2**63, 2**53, -0.0, 10**400, 1e39, 1e-13]),
)
JSON_VALUES = JSON_NUMBERS | st.none() | st.booleans() | st.text() | st.lists(JSON_NUMBERS)


def exited(said: Said | None) -> Ending:
    return Ending(Ended(exit_code=0), said=said)


def point_line(**changes: Any) -> bytes:
    return json.dumps({**POINT.model_dump(), **changes}).encode()


@pytest.mark.parametrize(
    "changes",
    [
        {"tokens": 10**400},
        {"elapsed_s": 1.7e308},
        {"loss": 1e39},
        {"loss": -1.0},
        {"grad_norm": 1e200},
        {"lr": -1.0},
        {"tokens": 1.5},
        {"step": True},
        {"step": "1"},
    ],
)
def test_a_line_with_an_impossible_number_is_no_point(changes: dict[str, Any]) -> None:
    lines = CurveLines()
    assert lines.feed(point_line(**changes) + b"\n" + point_line() + b"\n") == [POINT]


OK = trial_ok(trial_spec()).model_dump()


@pytest.mark.parametrize(
    "text",
    [
        *(
            json.dumps({**OK, **changes})
            for changes in (
                {"step_ms": 5e-324},
                {"peak_mem_gib": 1e30},
                {"val_bpb": 1e300},
                {"val_bpb": float("nan")},
                {"val_bpb": 0.0},
                {"val_bytes": 10**400},
                {"params": 2**64},
                {"device": "x" * 1000},
                {"precision": "fp32"},
                {"backend": "megatron"},
                {"steps": 59, "tokens": 59 * 1024},
                {"tokens": 1},
                {"status": "excellent"},
                {"bonus": 1},
            )
        ),
        *("", "prose", "[]", "{", '{"status": "ok"}', "\x00", "NaN"),
    ],
)
def test_an_impossible_result_is_garbage(tmp_path: Path, text: str) -> None:
    spec = trial_spec()
    files = TrialFiles(spec, tmp_path / "trial")
    result = judge(spec, files, exited(Said(text=text, is_error=False)))
    files.close()
    assert isinstance(result, TrialFailed)
    assert (result.status, result.message[:7]) == ("crash", "garbage")
    assert finished_trial(tmp_path / "trial") == (spec, result)


@given(st.sampled_from(sorted(TrialOk.model_fields)), JSON_VALUES)
def test_no_number_of_a_result_can_break_what_is_made_of_it(name: str, value: Any) -> None:
    """Sums over a campaign, squares, quotients and dates do not overflow."""
    spec = trial_spec()
    text = json.dumps({**trial_ok(spec).model_dump(), name: value})
    try:
        result = parse_result(text)
    except ValidationError:
        return
    assert isinstance(result, TrialOk)
    numbers = [v for v in result.model_dump().values() if isinstance(v, int | float)]
    for number in numbers:
        assert math.isfinite(1e6 * float(number) ** 2)
    for positive in (result.step_ms, result.tokens_per_s, result.val_bpb, result.params):
        assert math.isfinite(1e9 / positive**2)
    assert datetime.now() + timedelta(seconds=200 * result.train_s)
    for told in (result.device, result.backend, result.precision):
        assert told.isprintable()
        assert len(told) <= 200


@given(st.lists(st.tuples(st.sampled_from(sorted(CurvePoint.model_fields)), JSON_VALUES)))
def test_whatever_a_curve_holds_its_points_are_sound(changes: list[tuple[str, Any]]) -> None:
    lines, points = CurveLines(max_step=60), []
    for number, (name, value) in enumerate(changes, start=1):
        points += lines.feed(point_line(**{"step": number, name: value}) + b"\n")
    assert all(before.step < after.step <= 60 for before, after in pairwise(points))
    for point in points:
        assert math.isfinite(point.tokens / max(point.elapsed_s, 1e-9) * point.loss)


@given(st.binary(max_size=3000), st.integers(1, 200))
def test_any_bytes_are_a_curve_of_some_points(data: bytes, cut: int) -> None:
    """The points are the same wherever the data are cut, and little is buffered."""
    sound = point_line() + b"\n"
    whole = CurveLines().feed(data + b"\n" + sound)
    pieces, points = CurveLines(), []
    for start in range(0, len(data), cut):
        points += pieces.feed(data[start : start + cut])
        assert len(pieces._unread) <= 1025
    assert points + pieces.feed(b"\n" + sound) == whole == [POINT]


def test_a_curve_of_an_honest_length_is_whole() -> None:
    kept = KeptCurve()
    points = [POINT.model_copy(update={"step": step}) for step in range(1, 5001)]
    kept.add(points)
    assert kept.points() == points


def test_a_sparse_gigabyte_is_not_read(tmp_path: Path) -> None:
    for name in (RESULT_FILE, "spec.json"):
        with (tmp_path / name).open("wb") as file:
            file.truncate(1 << 40)
    assert finished_trial(tmp_path) is None


@pytest.mark.skipif(not hasattr(psutil.Process, "io_counters"), reason="nothing counts reads")
def test_a_flood_of_lines_is_read_in_small_bites(tmp_path: Path) -> None:
    (tmp_path / "curve.jsonl").write_bytes(point_line(step=10**9) * 200_000 + b"{}\n" * 2_000_000)
    tail = CurveTail(tmp_path / "curve.jsonl", max_step=60)
    for _ in range(20):
        before = psutil.Process().io_counters().read_chars
        assert tail.read() == []
        assert psutil.Process().io_counters().read_chars - before < 1 << 20
    tail.close()


def test_no_escape_sequence_reaches_whoever_shows_an_error_or_a_failure(tmp_path: Path) -> None:
    spec = trial_spec()
    files = TrialFiles(spec, tmp_path / "trial")
    error = {"kind": "CorpusError", "message": UGLY + "no corpus" + "!" * 10_000}
    with pytest.raises(AutoresearchError) as caught:
        judge(spec, files, exited(Said(text=json.dumps(error), is_error=True)))
    files.close()
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) == 2000
    result = parse_result(json.dumps({"status": "crash", "message": UGLY + "why"}))
    assert isinstance(result, TrialFailed)
    assert result.message.isprintable()
    assert result.message.endswith("why")


@given(st.text())
def test_plain_text_is_printable_and_keeps_what_is(text: str) -> None:
    assert plain(text).isprintable()
    assert len(plain(text)) == len(text)
    assert plain(plain(text)) == plain(text)


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    """Yield a trial's directory, and remove it with a program that does not recurse."""
    yield tmp_path / "trial"
    subprocess.run(["rm", "-rf", tmp_path / "trial"], check=True)


def deep_tree(path: Path) -> None:
    """Make a tree that is too deep for a recursive removal."""
    path.mkdir()
    before = os.open(path, os.O_RDONLY)
    for _ in range(2 * sys.getrecursionlimit()):
        os.mkdir("d", dir_fd=before)
        inner = os.open("d", os.O_RDONLY, dir_fd=before)
        os.close(before)
        before = inner
    os.close(before)


def closed_directory(path: Path) -> None:
    """Make a directory that its owner, unless root, cannot list."""
    path.mkdir()
    (path / "inside").write_text("")
    path.chmod(0)


OBSTACLES = [
    lambda path: path.mkdir(),
    lambda path: (path / "full").mkdir(parents=True),
    deep_tree,
    closed_directory,
    lambda path: path.symlink_to("/dev/zero"),
    lambda path: path.symlink_to(path.name),
    os.mkfifo,
]


@pytest.mark.slow
@pytest.mark.parametrize("obstacle", OBSTACLES)
def test_what_lies_in_a_files_place_is_no_result(place: Path, obstacle: Any) -> None:
    """It neither ends the loop nor calls for more disk space, and the trial can be run again."""
    place.mkdir()
    for name in ("spec.json", "trainer.log", "curve.jsonl", "tmp"):
        obstacle(place / name)
    assert CurveTail(place / "curve.jsonl").read() == []
    spec = trial_spec()
    files = TrialFiles(spec, place)
    assert files.curve.read() == []
    obstacle(place / RESULT_FILE)
    result = judge(spec, files, exited(None))
    files.close()
    assert isinstance(result, TrialFailed)
    assert (result.status, result.message) == ("crash", "ended without a result")
    assert finished_trial(place) == (spec, result)


def test_a_tree_too_deep_to_be_removed_does_not_keep_what_lies_beside_it(place: Path) -> None:
    """A trial's checkpoints may be gigabytes; those listed after the deep folder stay."""
    (place / "tmp").mkdir(parents=True)
    deep_tree(place / "tmp" / "deep")
    for number in range(1000):
        (place / "tmp" / str(number)).write_text("weights")
    clear(place / "tmp")
    [moved] = place.iterdir()
    assert len(list(moved.iterdir())) < 1001


def test_a_directory_that_may_not_be_written_is_no_evidence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(MachineryError):
        TrialFiles(trial_spec(), tmp_path / "file" / "trial")


def test_a_trial_cannot_have_lasted_longer_than_it_may(tmp_path: Path) -> None:
    for name, when in (("spec.json", 0), (RESULT_FILE, 1 << 33)):
        (tmp_path / name).write_text("")
        os.utime(tmp_path / name, (when, when))
    assert wall_s(tmp_path, at_most_s=30) == 30
    os.utime(tmp_path / RESULT_FILE, (12, 12))
    assert wall_s(tmp_path, at_most_s=30) == 12


def test_a_curve_in_which_no_time_passes_is_no_measure_of_a_step() -> None:
    def curve(*elapsed_s: float) -> list[CurvePoint]:
        changes = ({"step": n, "elapsed_s": s} for n, s in enumerate(elapsed_s, start=1))
        return [POINT.model_copy(update=change) for change in changes]

    for times in ((), (0.05, 0.05, 0.0), (0.0, 5e-324), (0.0, 1e-300)):
        with pytest.raises(MachineryError):
            counted_step_s(curve(*times), 1)
