"""The supervisor ends every trial on time, leaves nothing alive, and names the cause of each
end."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from autoresearch.errors import CorpusError, MachineryError, SpecError
from tests.support import hostile
from tests.support.processes import of_trials
from tests.support.trials import trial_ok, trial_spec
from trainer.executors.base import Finished, TrialAborted
from trainer.executors.local import LocalExecutor
from trainer.isolation.messages import Ended
from trainer.isolation.outcome import Ending, judge
from trainer.isolation.trial_files import TrialFiles
from trainer.spec import CurvePoint, TrialFailed, TrialSpec


@pytest.fixture(scope="module")
def executor() -> Iterator[LocalExecutor]:
    with LocalExecutor(entry=hostile.ENTRY, allow_unsandboxed=True) as executor:
        yield executor


@pytest.fixture
def trial_dir(tmp_path: Path) -> Path:
    return tmp_path / "trial"


def fail(
    executor: LocalExecutor, trial_dir: Path, attack: Callable[..., Any], /, **arguments: Any
) -> TrialFailed:
    """Return the failure that the attack ends in; arguments named like limits set them."""
    limits = {name: arguments.pop(name) for name in list(arguments) if name in LIMITS}
    hostile.arm(trial_dir, attack, **arguments)
    result = executor.run(trial_spec(**limits), trial_dir).result
    assert isinstance(result, TrialFailed)
    return result


LIMITS = {"wall_s", "memory_gib", "log_bytes", "processes"}


def pids(trial_dir: Path, count: int) -> list[int]:
    """Return the processes that :func:`hostile.spread` recorded."""
    noted = [int(line) for line in (trial_dir / "pids").read_text().split()]
    assert len(noted) == count
    return noted


def all_noted(trial_dir: Path) -> bool:
    noted = trial_dir / "pids"
    return noted.exists() and len(noted.read_text().split()) == 4


def alive(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


# --- normal operation ----------------------------------------------------------------------------


def test_a_result_is_returned(executor: LocalExecutor, trial_dir: Path) -> None:
    spec = trial_spec()
    expected = trial_ok(spec)
    hostile.arm(trial_dir, hostile.leave_result, text=expected.model_dump_json())
    finished = executor.run(spec, trial_dir)
    assert finished == Finished(expected, finished.wall_s)
    assert finished.wall_s > 0
    assert TrialSpec.model_validate_json((trial_dir / "spec.json").read_bytes()) == spec
    assert not (trial_dir / "tmp").exists()


def test_a_failure_is_a_result(executor: LocalExecutor, trial_dir: Path) -> None:
    expected = TrialFailed(status="nonfinite", message="loss nan at step 3", steps=2)
    hostile.arm(trial_dir, hostile.leave_result, text=expected.model_dump_json())
    assert executor.run(trial_spec(), trial_dir).result == expected


def test_the_spec_is_there_before_the_trial(executor: LocalExecutor, trial_dir: Path) -> None:
    hostile.arm(trial_dir, hostile.read, path=str(trial_dir / "spec.json"))
    executor.run(trial_spec(), trial_dir)
    assert json.loads(hostile.loot(trial_dir))["trial_id"] == "0001-s1"


def test_a_directory_with_a_result_is_refused(executor: LocalExecutor, trial_dir: Path) -> None:
    hostile.arm(trial_dir, hostile.leave_result, text="{}")
    (trial_dir / "result.json").write_text("precious")
    with pytest.raises(MachineryError):
        executor.run(trial_spec(), trial_dir)
    assert (trial_dir / "result.json").read_text() == "precious"


def test_an_interrupted_trial_can_be_run_again(
    executor: LocalExecutor, trial_dir: Path, tmp_path: Path
) -> None:
    """The new run clears the old one's files and does not follow links among them."""
    outside = tmp_path / "outside"
    outside.write_text("kept")
    spec = trial_spec()
    hostile.arm(trial_dir, hostile.leave_result, text=trial_ok(spec).model_dump_json())
    for name in ("spec.json", "trainer.log"):
        (trial_dir / name).symlink_to(outside)
    (trial_dir / "curve.jsonl").write_text("old\n")
    (trial_dir / "tmp").mkdir()
    (trial_dir / "tmp" / "old").write_text("old")
    assert executor.run(spec, trial_dir).result == trial_ok(spec)
    assert outside.read_text() == "kept"
    assert not (trial_dir / "curve.jsonl").exists()


def test_points_arrive_while_the_trial_runs(executor: LocalExecutor, trial_dir: Path) -> None:
    curve = [
        CurvePoint(step=n, tokens=n * 1024, loss=5.0, lr=1e-3, grad_norm=1.0, elapsed_s=n / 10)
        for n in range(1, 6)
    ]
    lines = [point.model_dump_json() for point in curve]
    garbage = ['{"step": 1}', "prose", lines[0].replace("5.0", "NaN"), "", "x" * 100_000]
    hostile.arm(trial_dir, hostile.write_curve, lines=[*lines[:3], *garbage, *lines[3:]], held=2)
    told: list[CurvePoint] = []

    def tell(point: CurvePoint) -> None:
        told.append(point)
        hostile.let_go(trial_dir)

    result = executor.run(trial_spec(), trial_dir, on_point=tell).result
    assert told == curve
    assert result.steps == 5


def test_should_stop_ends_the_trial(executor: LocalExecutor, trial_dir: Path) -> None:
    hostile.arm(trial_dir, hostile.spread, stay=True, deaf=True)
    with pytest.raises(TrialAborted):
        executor.run(trial_spec(), trial_dir, should_stop=lambda: all_noted(trial_dir))
    assert not any(map(alive, pids(trial_dir, 4)))


def test_an_error_in_a_callback_leaves_nothing(executor: LocalExecutor, trial_dir: Path) -> None:
    def interrupt() -> bool:
        if all_noted(trial_dir):
            raise KeyboardInterrupt
        return False

    hostile.arm(trial_dir, hostile.spread, stay=True)
    with pytest.raises(KeyboardInterrupt):
        executor.run(trial_spec(), trial_dir, should_stop=interrupt)
    assert not any(map(alive, pids(trial_dir, 4)))
    again = fail(executor, trial_dir.with_name("next"), hostile.exit_with, code=3)
    assert again.status == "crash"


# --- deadlines and cleanup -----------------------------------------------------------------------


@pytest.mark.parametrize("deaf", [False, True])
def test_the_wall_clock_limit_is_kept(executor: LocalExecutor, trial_dir: Path, deaf: bool) -> None:
    """Descendants in other sessions hold the log open, and one of them is an orphan."""
    for wall_s in (1, 4, 16, 64):  # a busy machine takes longer to start all four
        folder = trial_dir.with_name(f"{wall_s}")
        began = time.monotonic()
        result = fail(executor, folder, hostile.spread, stay=True, deaf=deaf, wall_s=wall_s)
        assert (result.status, time.monotonic() - began >= wall_s) == ("timeout", True)
        if all_noted(folder):
            break
    assert not any(map(alive, pids(folder, 4)))


def test_a_frozen_trial_is_ended(executor: LocalExecutor, trial_dir: Path) -> None:
    assert fail(executor, trial_dir, hostile.freeze, wall_s=0.5).status == "timeout"


def test_nothing_outlives_a_trial_that_ends(executor: LocalExecutor, trial_dir: Path) -> None:
    assert fail(executor, trial_dir, hostile.spread, stay=False).status == "crash"
    assert not any(map(alive, pids(trial_dir, 4)))


def test_a_process_that_keeps_fleeing_is_caught(executor: LocalExecutor, trial_dir: Path) -> None:
    assert fail(executor, trial_dir, hostile.hop).status == "crash"
    assert of_trials(executor) == []
    # Searching for it among the machine's processes would not do: it evades a search as it evades a
    # signal. It cannot hide that it keeps running.
    noted = (trial_dir / "pids").read_text().split()
    assert len(noted) > 1
    time.sleep(0.2)
    assert (trial_dir / "pids").read_text().split() == noted


def test_the_memory_limit_is_kept(executor: LocalExecutor, trial_dir: Path) -> None:
    result = fail(executor, trial_dir, hostile.hold_memory, mib=300, memory_gib=0.2)
    assert result.status == "oom"
    assert result.message.endswith("GiB of memory, over the limit of 0.2 GiB")
    assert result.peak_mem_gib is not None
    assert 0.2 < result.peak_mem_gib < 0.5


def test_shared_memory_counts_once(executor: LocalExecutor, trial_dir: Path) -> None:
    result = fail(executor, trial_dir, hostile.hold_memory, mib=150, forks=3, memory_gib=0.3)
    assert result.status == "crash"  # it ended by itself


def test_a_fork_bomb_is_ended(executor: LocalExecutor, trial_dir: Path) -> None:
    result = fail(executor, trial_dir, hostile.fork_many, many=300, processes=20)
    assert result.status == "killed"
    assert result.message.endswith("processes, over the limit of 20")
    assert of_trials(executor) == []


def test_the_log_is_capped_and_keeps_both_ends(executor: LocalExecutor, trial_dir: Path) -> None:
    result = fail(executor, trial_dir, hostile.flood_log, size_bytes=64 << 20, log_bytes=100_000)
    assert (result.status, result.message) == ("crash", "exit code 3: the last line")
    log = (trial_dir / "trainer.log").read_text()
    assert len(log) <= 100_000
    assert log.startswith("the first line\n")
    assert "the log passed its limit of 100000 bytes" in log
    assert log.endswith("the last line\n")


def test_the_log_is_never_followed_through_a_link(
    executor: LocalExecutor, trial_dir: Path, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    outside.write_text("x" * 1000)
    fail(executor, trial_dir, hostile.replace_log_by_symlink, path=str(outside), log_bytes=500)
    assert outside.read_text() == "x" * 1000


# --- causes of an end ----------------------------------------------------------------------------


def test_exit_codes(executor: LocalExecutor, tmp_path: Path) -> None:
    result = fail(executor, tmp_path / "a", hostile.exit_with, code=3, last_words="no\x1b[31m!\n\n")
    assert (result.status, result.message) == ("crash", "exit code 3: no [31m!")
    result = fail(executor, tmp_path / "b", hostile.exit_with, code=0)
    assert (result.status, result.message) == ("crash", "ended without a result")
    result = fail(executor, tmp_path / "c", hostile.divide_by_zero)
    assert result.message == "exit code 1: ZeroDivisionError: division by zero"


@pytest.mark.parametrize(
    ("number", "message"),
    [
        (signal.SIGSEGV, "killed by SIGSEGV"),
        (signal.SIGKILL, "killed by SIGKILL, perhaps by the out-of-memory killer"),
        (signal.SIGTERM, "killed by SIGTERM"),
    ],
)
def test_signals(
    executor: LocalExecutor, trial_dir: Path, number: signal.Signals, message: str
) -> None:
    result = fail(executor, trial_dir, hostile.die_by, number=int(number))
    assert result.status == "killed"
    assert result.message.startswith(message)


def test_a_kill_by_the_kernel_for_memory_is_oom(trial_dir: Path) -> None:
    spec = trial_spec()
    files = TrialFiles(spec, trial_dir)
    ending = Ending(Ended(signal=signal.SIGKILL), None, 1 << 30, oom_killer_struck=True)
    result = judge(spec, files, ending)
    files.close()
    assert isinstance(result, TrialFailed)
    assert (result.status, result.peak_mem_gib) == ("oom", 1.0)


@pytest.mark.parametrize(
    "changes",
    [
        {"precision": "fp32"},
        {"backend": "megatron"},
        {"steps": 59, "tokens": 59 * 1024},
        {"tokens": 1},
        {"val_bpb": float("nan")},
        {"val_bpb": float("inf")},
        {"val_bpb": 0.0},
        {"status": "excellent"},
        {"bonus": 1},
    ],
)
def test_impossible_results_are_garbage(
    executor: LocalExecutor, trial_dir: Path, changes: dict[str, Any]
) -> None:
    spec = trial_spec()
    text = json.dumps({**trial_ok(spec).model_dump(), **changes})
    hostile.arm(trial_dir, hostile.leave_result, text=text)
    result = executor.run(spec, trial_dir).result
    assert isinstance(result, TrialFailed)
    assert result.status == "crash"
    assert result.message.startswith("garbage result: ")


@pytest.mark.parametrize("text", ["", "prose", "[]", "{", '{"status": "ok"}', "\x00", "NaN"])
def test_what_is_no_result_is_garbage(executor: LocalExecutor, trial_dir: Path, text: str) -> None:
    result = fail(executor, trial_dir, hostile.leave_result, text=text)
    assert result.status == "crash"
    assert result.message.startswith("garbage result: ")


def test_results_are_read_with_bounds_and_through_no_link(
    executor: LocalExecutor, tmp_path: Path
) -> None:
    genuine = tmp_path / "genuine"
    genuine.write_text(trial_ok(trial_spec()).model_dump_json())
    for attack, arguments in (
        (hostile.leave_huge_result, {}),
        (hostile.leave_symlinked_result, {"path": str(genuine)}),
        (hostile.leave_directory_as_result, {}),
    ):
        result = fail(executor, tmp_path / attack.__name__, attack, **arguments)
        assert (result.status, result.message) == ("crash", "ended without a result")


@pytest.mark.parametrize(
    ("attack", "arguments", "limits", "status"),
    [
        (hostile.nap, {"s": 60}, {"wall_s": 0.5}, "timeout"),
        (hostile.hold_memory, {"mib": 600}, {"memory_gib": 0.3}, "oom"),
        (hostile.fork_many, {"many": 20}, {"processes": 5}, "killed"),
        (hostile.die_by, {"number": int(signal.SIGKILL)}, {}, "killed"),
        (hostile.exit_with, {"code": 70}, {}, "crash"),
        (hostile.exit_with, {"code": 74}, {}, "crash"),
    ],
)
def test_no_result_outlives_what_ended_its_trial(
    executor: LocalExecutor,
    trial_dir: Path,
    attack: Callable[..., Any],
    arguments: dict[str, Any],
    limits: dict[str, Any],
    status: str,
) -> None:
    result = fail(
        executor,
        trial_dir,
        hostile.leave_result_and_continue,
        text=trial_ok(trial_spec(**limits)).model_dump_json(),
        then=attack.__name__,
        given=arguments,
        **limits,
    )
    assert result.status == status


# --- ends that are no evidence -------------------------------------------------------------------


@pytest.mark.parametrize("error", [SpecError, CorpusError, MachineryError])
def test_errors_of_the_trainer_are_raised_here(
    executor: LocalExecutor, trial_dir: Path, error: type[Exception]
) -> None:
    hostile.arm(trial_dir, hostile.report_error, kind=error.__name__)
    with pytest.raises(error, match=f"^a {error.__name__}, seen by the trainer; fix it$"):
        executor.run(trial_spec(), trial_dir)


def test_a_full_disk_is_no_evidence(executor: LocalExecutor, trial_dir: Path) -> None:
    hostile.arm(trial_dir, hostile.run_out_of_disk)
    with pytest.raises(MachineryError):
        executor.run(trial_spec(), trial_dir)


def test_a_directory_that_cannot_be_made_is_no_evidence(
    executor: LocalExecutor, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(MachineryError):
        executor.run(trial_spec(), tmp_path / "file" / "trial")


def test_a_closed_executor_says_so(tmp_path: Path) -> None:
    executor = LocalExecutor(entry=hostile.ENTRY, allow_unsandboxed=True)
    server = executor._server.pid
    executor.close()
    executor.close()
    assert not psutil.pid_exists(server)
    with pytest.raises(MachineryError):
        executor.run(trial_spec(), tmp_path / "trial")


def test_cold_start_is_the_same(tmp_path: Path) -> None:
    spec = trial_spec()
    trial_dir = hostile.arm(
        tmp_path / "trial", hostile.leave_result, text=trial_ok(spec).model_dump_json()
    )
    with LocalExecutor(entry=hostile.ENTRY, allow_unsandboxed=True, fork_server=False) as executor:
        assert executor.describe().endswith(", cold start")
        assert executor.run(spec, trial_dir).result == trial_ok(spec)
        secret = tmp_path / "secret"
        secret.write_text("")
        hostile.arm(tmp_path / "next", hostile.read, path=str(secret))
        executor.run(spec, tmp_path / "next")
        if not executor.describe().startswith("UNSANDBOXED"):
            assert "errno" in hostile.loot(tmp_path / "next")


def test_the_supervisor_itself_gets_no_children(executor: LocalExecutor, trial_dir: Path) -> None:
    before = psutil.Process(os.getpid()).children()
    fail(executor, trial_dir, hostile.spread, stay=False)
    assert psutil.Process(os.getpid()).children() == before
