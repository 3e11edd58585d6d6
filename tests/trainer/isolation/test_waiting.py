"""The process that waits to be the next trial: it is nobody's, costs the present one nothing, is
given to one alone, and no trial's word can make it more."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from autoresearch.errors import MachineryError
from tests.support import hostile
from tests.support.trials import trial_ok, trial_spec
from tests.support.waiting import wait_until
from tests.trainer.isolation.test_forkserver import open_executor
from tests.trainer.isolation.test_supervisor import alive, pids
from trainer.executors.local import LocalExecutor
from trainer.isolation.driver_line import DriverEar
from trainer.isolation.messages import Driver, Over, Said
from trainer.spec import TrialFailed


@pytest.fixture(scope="module")
def executor() -> Iterator[LocalExecutor]:
    with open_executor() as opened:
        yield opened


def waiting(executor: LocalExecutor) -> int:
    """Its process id, when it waits alone."""
    wait_until(lambda: len(executor._server.no_trials) == 1)
    [pid] = executor._server.no_trials
    return pid


def test_the_one_that_waits_is_the_next_trial_and_no_other(
    executor: LocalExecutor, tmp_path: Path
) -> None:
    executor.run(trial_spec(), hostile.arm(tmp_path / "first", hostile.nap, s=0))
    seen = [waiting(executor)]
    for name in "abc":
        trial_dir = hostile.arm(tmp_path / name, hostile.say_over)
        executor.run(trial_spec(), trial_dir)
        assert pids(trial_dir, 1) == seen[-1:]
        seen.append(waiting(executor))
    assert len(set(seen)) == 4


def test_it_counts_as_no_process_of_the_trial(executor: LocalExecutor, tmp_path: Path) -> None:
    for name in "ab":
        trial_dir = hostile.arm(tmp_path / name, hostile.nap, s=0.5)
        result = executor.run(trial_spec(processes=1), trial_dir).result
        assert isinstance(result, TrialFailed)
        assert result.message == "ended without a result"


def test_one_that_is_killed_while_it_waits_is_missed_by_nobody(
    executor: LocalExecutor, tmp_path: Path
) -> None:
    executor.run(trial_spec(), hostile.arm(tmp_path / "first", hostile.nap, s=0))
    begins = waiting(executor)
    job = executor.submit(trial_spec(), hostile.arm(tmp_path / "meanwhile", hostile.nap, s=5))
    wait_until(lambda: begins not in executor._server.no_trials)
    os.kill(waiting(executor), signal.SIGKILL)
    wait_until(lambda: not executor._server.no_trials)
    assert job.result(20).result.message == "ended without a result"  # type: ignore[union-attr]
    executor.run(trial_spec(), hostile.arm(tmp_path / "before", hostile.nap, s=0))
    os.kill(waiting(executor), signal.SIGKILL)
    spec = trial_spec()
    text = trial_ok(spec).model_dump_json()
    after = hostile.arm(tmp_path / "after", hostile.leave_result, text=text)
    assert executor.run(spec, after).result == trial_ok(spec)


@pytest.mark.parametrize("kills", [1, 2, 3])
def test_one_that_is_killed_before_it_has_its_order_was_no_trial(
    executor: LocalExecutor, tmp_path: Path, kills: int
) -> None:
    executor.run(trial_spec(), hostile.arm(tmp_path / "before", hostile.nap, s=0))
    spec = trial_spec()
    text = trial_ok(spec).model_dump_json()
    seen = [waiting(executor)]
    os.kill(seen[0], signal.SIGSTOP)  # it takes no order
    job = executor.submit(spec, hostile.arm(tmp_path / "after", hostile.leave_result, text=text))
    for kill in range(1, kills + 1):
        wait_until(lambda: not executor._server.no_trials <= set(seen))
        [following] = executor._server.no_trials - set(seen)
        if kill < kills:
            os.kill(following, signal.SIGSTOP)
        os.kill(seen[-1], signal.SIGKILL)
        seen.append(following)
    if kills < 3:
        assert job.result(20).result == trial_ok(spec)
    else:
        with pytest.raises(MachineryError, match="ended before it was given the trial, 3 times"):
            job.result(20)


def test_it_dies_with_its_server(tmp_path: Path) -> None:
    with open_executor() as executor:
        executor.run(trial_spec(), hostile.arm(tmp_path / "trial", hostile.nap, s=0))
        pid = waiting(executor)
        assert alive(pid)
        os.kill(executor._server.pid, signal.SIGKILL)
        wait_until(lambda: not alive(pid))


def test_it_ends_when_the_executor_is_closed(tmp_path: Path) -> None:
    with open_executor() as executor:
        executor.run(trial_spec(), hostile.arm(tmp_path / "trial", hostile.nap, s=0))
        pid = waiting(executor)
    assert not psutil.pid_exists(pid)


def test_who_says_it_is_over_is_taken_at_its_word(executor: LocalExecutor, tmp_path: Path) -> None:
    """Whatever it meant to do after that."""
    for name, forks in (("a", False), ("b", True)):
        trial_dir = hostile.arm(tmp_path / name, hostile.say_over, forks=forks)
        result = executor.run(trial_spec(), trial_dir).result
        assert isinstance(result, TrialFailed)
        assert (result.status, result.message) == ("crash", "ended without a result")
        assert not any(map(alive, pids(trial_dir, 2 if forks else 1)))


def test_what_a_config_decides_cannot_speak_of_the_driver(
    executor: LocalExecutor, tmp_path: Path
) -> None:
    """Else its crash would be the machine's, and no evidence."""
    trial_dir = hostile.arm(tmp_path / "trial", hostile.say_everything)
    result = executor.run(trial_spec(), trial_dir).result
    assert isinstance(result, TrialFailed)
    assert (result.status, result.message) == ("crash", "exit code 9")


def test_of_the_line_one_report_and_one_word_are_heard_after_the_driver() -> None:
    result = Said(pid=0, text="{}", is_error=False)
    for after, heard in (
        (b"o", [Over(pid=0)]),
        (b"so", []),
        (b"", []),
        (b"r{}\n", [result]),
        (b"r{}\nr[]\no", [result]),
        (b"r{}\no", [result, Over(pid=0)]),
        (b"eno\n", [Said(pid=0, text="no", is_error=True)]),
        (b"r{", []),
    ):
        ear = DriverEar()
        os.write(ear._their_fd, b"su." + after)
        words = ear.hear()
        assert words is not None
        assert words[:2] == [Driver(phase="starting"), Driver(phase="up")]
        assert words[2:] == heard
        ear.as_server()
        assert ear.hear() is None
        ear.close()


def test_a_report_in_pieces_is_heard_whole_and_one_without_end_no_more() -> None:
    ear = DriverEar()
    text = "x" * 100_000
    for piece in ("r" + text, text, "\n"):
        os.write(ear._their_fd, piece.encode())
        words = ear.hear()
    assert words == [Said(pid=0, text=2 * text, is_error=False)]
    ear.close()
    ear = DriverEar()
    heard: object = []
    sent = 0
    while heard == []:
        sent += os.write(ear._their_fd, b"r" * 100_000)
        heard = ear.hear()
    assert heard is None
    assert sent < 2 << 20
    ear.as_server()
    ear.close()


@pytest.mark.parametrize(("mib", "may_overlap"), [(0, True), (1100, False)])
def test_the_place_of_one_that_holds_much_is_free_when_that_is_free(
    executor: LocalExecutor, tmp_path: Path, mib: int, may_overlap: bool
) -> None:
    """Two trials at once on a lane are one too many for the memory that was reckoned with."""
    trial_dir = hostile.arm(tmp_path / "trial", hostile.say_over, mib=mib)
    job = executor.submit(trial_spec(memory_gib=4), trial_dir)
    is_gone = []
    job.when_free(lambda: is_gone.append(not alive(pids(trial_dir, 1)[0])))
    job.result(60)
    assert len(is_gone) == 1
    assert may_overlap or is_gone == [True]


SHORT_OF_MEMORY = """
import subprocess, sys
from pathlib import Path
from tests.support import hostile
from tests.support.trials import trial_spec
from tests.support.waiting import wait_until
from tests.trainer.isolation.test_forkserver import open_executor
told = []
with open_executor() as executor:
    for name in ("first", "second"):
        trial_dir = hostile.arm(Path(sys.argv[1], name), hostile.read, path="/proc/meminfo")
        executor.run(trial_spec(), trial_dir)
        told.append(str(hostile.loot(trial_dir)))
        wait_until(lambda: len(executor._server.no_trials) == 1)
        subprocess.run(["mount", "-o", "remount", "/proc"], check=True)
print(["MemTotal" in one for one in told], told[1][:200])
"""


def test_what_it_may_read_outlasts_a_machine_that_was_short_of_memory(tmp_path: Path) -> None:
    """The kernel forgets entries of /proc then, and the rules that were made about them. It does so
    in a namespace of its own, where nobody else's are forgotten."""
    command = ["unshare", "--mount", "--pid", "--fork", "--mount-proc", sys.executable, "-c"]
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        pytest.skip("it takes root to have the kernel forget")
    root = Path(__file__).parents[3]
    said = subprocess.run(
        [*command, SHORT_OF_MEMORY, str(tmp_path)],
        cwd=root,
        capture_output=True,
        text=True,
        check=False,
    )
    assert said.stdout.startswith("[True, True]"), said.stdout + said.stderr
