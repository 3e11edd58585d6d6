"""Reading and writing the files of a trial."""

from __future__ import annotations

import os
from pathlib import Path

from autoresearch.errors import MachineryError
from trainer.executors.base import TrialAborted
from trainer.isolation.outcome import TrialError
from trainer.isolation.trial_files import CurveTail, TrialLog
from trainer.spec import CurvePoint


def test_a_flooded_log_holds_little_disk_and_loses_no_last_line(tmp_path: Path) -> None:
    path = tmp_path / "log"
    log = TrialLog(path, 1 << 20)
    writer = os.open(path, os.O_WRONLY | os.O_APPEND)
    os.write(writer, b"first\n")
    for _ in range(20):
        os.write(writer, b"x" * (1 << 20) + b"\n")
        log.trim()
        assert path.stat().st_blocks * 512 < 3 << 20
    os.write(writer, b"last \x1b[31m\xff\n \n")
    log.compact()
    assert log.last_line() == "last  [31m�"
    os.close(writer)
    log.close()
    text = path.read_text(errors="replace")
    assert path.stat().st_size < 1 << 20
    assert text.startswith("first\nxxx")
    assert "passed its limit of 1048576 bytes" in text
    assert "\0" not in text


def test_a_log_within_its_limit_is_left_alone(tmp_path: Path) -> None:
    log = TrialLog(tmp_path / "log", 100)
    assert log.last_line() == ""
    (tmp_path / "log").write_text("x" * 100)
    log.trim()
    log.compact()
    assert (tmp_path / "log").read_text() == "x" * 100
    assert log.last_line() == "x" * 100
    log.close()


def test_the_curve_is_read_as_it_grows(tmp_path: Path) -> None:
    tail = CurveTail(tmp_path / "curve.jsonl")
    assert tail.read() == []
    point = CurvePoint(step=1, tokens=8, loss=5.0, lr=0.1, grad_norm=1.0, elapsed_s=0.1)
    line = point.model_dump_json() + "\n"
    with (tmp_path / "curve.jsonl").open("w") as curve:
        curve.write(line[:10])
        curve.flush()
        assert tail.read() == []
        curve.write(line[10:] + line.replace('"step":1', '"step":2') + line)
        curve.flush()
        second = point.model_copy(update={"step": 2})
        assert tail.read() == [point, second]  # a step that was already reported is dropped
        assert tail.last == second
        assert tail.read() == []
    tail.close()


def test_an_error_of_another_kind_crosses_over_as_the_machinerys() -> None:
    sent = TrialError.of(TrialAborted("another kind")).model_dump_json()
    read = TrialError.model_validate_json(sent).as_exception()
    assert (type(read), str(read)) == (MachineryError, "another kind")
