"""Test a trial's files: its sealed spec, its curve, and temporary files left behind."""

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from autoresearch.errors import MachineryError
from tests.support import hostile, kernel_attacks
from tests.support.commands import script
from tests.support.trials import trial_ok, trial_spec
from trainer.executors.base import TrialAborted
from trainer.executors.local import LocalExecutor
from trainer.isolation.kernel.sandbox import Layers
from trainer.isolation.outcome import TrialError, finished_trial
from trainer.isolation.scratch import clear, clear_left
from trainer.isolation.trial_files import CurveTail, TrialFiles, TrialLog, sealed_path
from trainer.schema import CurvePoint, TrialFailed, TrialSpec, parse_result

ENTRY = kernel_attacks.ENTRY

ASKED = trial_spec(seed=0)
OTHER = trial_ok(ASKED, val_bpb=1.0)


def rewrite(trial_dir: Path, exit_code: int) -> Path:
    result = OTHER.model_dump_json()
    return hostile.arm(
        trial_dir, kernel_attacks.rewrite_spec, seed=3, result=result, exit_code=exit_code
    )


def test_a_result_of_another_seed_is_not_recorded(executor: LocalExecutor, trial_dir: Path) -> None:
    for exit_code in (70, 74, 3):
        folder = trial_dir.with_name(f"t00000{exit_code}")
        result = executor.run(ASKED, rewrite(folder, exit_code)).result
        assert isinstance(result, TrialFailed)
        assert (result.status, result.message) == ("crash", f"exit code {exit_code}")
        assert finished_trial(folder) is None


def test_who_rewrote_its_order_is_not_believed(executor: LocalExecutor, trial_dir: Path) -> None:
    result = executor.run(ASKED, rewrite(trial_dir, 0)).result
    assert isinstance(result, TrialFailed)
    assert result.message == "garbage result: the trial rewrote its own spec.json"
    assert finished_trial(trial_dir) is None


def test_who_measured_nothing_has_no_result_later(executor: LocalExecutor, trial_dir: Path) -> None:
    hostile.arm(trial_dir, kernel_attacks.leave_result_and_report, result=OTHER.model_dump_json())
    with pytest.raises(MachineryError):
        executor.run(ASKED, trial_dir)
    assert finished_trial(trial_dir) is None


def leave(trial_dir: Path, result: str) -> None:
    """Write what a supervisor leaves of a trial that ended before a row named it."""
    files = TrialFiles(ASKED, trial_dir)
    files.write_result(parse_result(result))
    files.close()


def test_what_finished_while_the_supervisor_was_dead_is_found(trial_dir: Path) -> None:
    leave(trial_dir, OTHER.model_dump_json())
    assert finished_trial(trial_dir) == (ASKED, OTHER)
    assert TrialSpec.model_validate_json(sealed_path(trial_dir).read_bytes()) == ASKED


CHANGES: dict[str, Callable[[Path], object]] = {
    "spec rewritten": lambda trial: (trial / "spec.json").write_text(
        trial_spec(seed=3).model_dump_json()
    ),
    "spec gone": lambda trial: (trial / "spec.json").unlink(),
    "spec a link": lambda trial: (
        (trial / "spec.json").unlink(),
        (trial / "spec.json").symlink_to(sealed_path(trial)),
    ),
    "no sealed spec": lambda trial: sealed_path(trial).unlink(),
    "another result": lambda trial: (trial / "result.json").write_text(
        trial_ok(ASKED, val_bpb=0.5).model_dump_json()
    ),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_only_what_was_left_is_taken_up(change: Callable[[Path], object], trial_dir: Path) -> None:
    leave(trial_dir, OTHER.model_dump_json())
    change(trial_dir)
    assert finished_trial(trial_dir) is None


def test_nothing_is_taken_up_that_contradicts_the_order(trial_dir: Path) -> None:
    leave(trial_dir, trial_ok(ASKED, steps=59, tokens=59 * 1024).model_dump_json())
    assert finished_trial(trial_dir) is None


@pytest.mark.skipif(not Layers.detect().confine, reason="nothing closes the directory here")
def test_the_sealed_order_is_closed_to_the_trial(executor: LocalExecutor, trial_dir: Path) -> None:
    hostile.arm(trial_dir, hostile.write, path=str(sealed_path(trial_dir)))
    executor.run(ASKED, trial_dir)
    assert hostile.loot(trial_dir)["errno"] == errno.EACCES
    assert TrialSpec.model_validate_json(sealed_path(trial_dir).read_bytes()) == ASKED


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


def test_what_killed_trials_left_goes_and_nothing_else(tmp_path: Path) -> None:
    trials = tmp_path / "trials"
    for name in ("t000001", "t000002"):
        script(trials / name / "tmp" / "work" / "out", "weights", "ckpt.pt")
        script(trials / name, "kept", "trainer.log")
    script(trials / "t000001" / "tmp.abcd.in-the-way" / "deep", "x", "x")
    script(trials / "not-a-trial" / "tmp", "kept", "x")
    outside = script(tmp_path / "outside" / "tmp", "kept", "x")
    (trials / "t000003").symlink_to(outside.parent)
    (trials / "t000004").mkdir()
    (trials / "t000004" / "tmp").symlink_to(outside)
    clear_left(trials)
    left = sorted(str(path.relative_to(trials)) for path in trials.rglob("*") if path.is_file())
    assert left == ["not-a-trial/tmp/x", "t000001/trainer.log", "t000002/trainer.log"]
    assert (outside / "x").read_text() == "kept"
    assert not (trials / "t000004" / "tmp").is_symlink()
    clear_left(tmp_path / "nowhere")


def test_folders_that_may_not_be_looked_into_go_too(tmp_path: Path) -> None:
    """Root may always list them; an ordinary user's rmtree fails on them."""
    folder = script(tmp_path / "tmp" / "a" / "b", "x", "x")
    precious = script(tmp_path / "precious", "x", "x")
    precious.chmod(0o500)
    (folder / "link").symlink_to(precious)
    for each in (folder, folder.parent):
        each.chmod(0)
    clear(tmp_path / "tmp")
    assert list(tmp_path.iterdir()) == [precious]
    assert precious.stat().st_mode & 0o777 == 0o500
