"""The fork server: what its children inherit, and that no process outlives its parent."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from autoresearch.errors import MachineryError
from tests.support import hostile
from tests.support.places import ROOT
from tests.support.processes import alive, noted
from tests.support.trials import trial_spec
from tests.support.waiting import wait_until
from trainer.executors.local import LocalExecutor
from trainer.isolation import forkserver


def open_executor() -> LocalExecutor:
    return LocalExecutor(entry=hostile.ENTRY, allow_unsandboxed=True)


@pytest.mark.slow
def test_trials_are_forks_with_torch_imported_once(tmp_path: Path) -> None:
    with LocalExecutor(entry="tests.support.hostile_torch:run", allow_unsandboxed=True) as executor:
        for name in ("first", "second"):
            trial_dir = hostile.arm(tmp_path / name, hostile.tell_torch)
            executor.run(trial_spec(), trial_dir)
        server = executor.lane.server.pid
    told = [hostile.loot(tmp_path / name) for name in ("first", "second")]
    assert told[0]["pid"] != told[1]["pid"]
    for each in told:
        assert each == {
            "pid": each["pid"],
            "parent": server,
            "session": each["pid"],
            "torch_imported_before": True,
            "cuda_untouched": True,
            "threads": 1,
            # Except for the line that reports the end, and the descriptor that keeps the rules on
            # /proc.
            "open_files": [0, 1, 2],
            "matmul": 2.0 * 512,
        }


@contextmanager
def lone_supervisor(trial_dir: Path) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """Run a supervisor in a process of its own; yield it and its server's process id."""
    with subprocess.Popen(
        [sys.executable, "-m", "tests.support.lone_supervisor", str(trial_dir)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    ) as supervisor:
        assert supervisor.stdout is not None
        yield supervisor, int(supervisor.stdout.readline())


def test_the_supervisors_death_ends_everything(tmp_path: Path) -> None:
    """The signal is kill -9, so the supervisor cannot clean up."""
    trial_dir = hostile.arm(tmp_path / "trial", hostile.spread, stay=True, deaf=True)
    with lone_supervisor(trial_dir) as (supervisor, server):
        wait_until(lambda: len(noted(trial_dir)) == 4)
        supervisor.kill()
        wait_until(lambda: not any(map(alive, [server, *noted(trial_dir)])))


def test_a_supervisor_that_is_killed_while_the_server_starts(tmp_path: Path) -> None:
    trial_dir = hostile.arm(tmp_path / "trial", hostile.spread, stay=True)
    with lone_supervisor(trial_dir) as (supervisor, server):
        supervisor.kill()
        wait_until(lambda: not alive(server))


def test_the_thread_that_started_the_server_may_end(tmp_path: Path) -> None:
    """The kernel signals a parent's death also when the thread that forked ends."""
    executors: list[LocalExecutor] = []
    thread = threading.Thread(target=lambda: executors.append(open_executor()))
    thread.start()
    thread.join()
    with executors[0] as executor:
        server = executor.lane.server.pid
        for name in "ab":
            executor.run(trial_spec(), hostile.arm(tmp_path / name, hostile.nap, s=0.2))
            assert executor.lane.server.pid == server


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_trial_of_a_dead_server_runs_again(tmp_path: Path, number: signal.Signals) -> None:
    trial_dir = hostile.arm(tmp_path / "trial", hostile.spread, stay=True)
    left: list[int] = []
    looks: list[None] = []
    with open_executor() as executor:
        server = executor.lane.server.pid

        def kill_server() -> bool:
            # After all four exist: the supervisor knows what a SIGKILLed server leaves from its
            # last poll.
            if len(noted(trial_dir)) == 4 and not left:
                looks.append(None)
            if len(looks) == 3 and not left:
                left.extend(noted(trial_dir))
                hostile.arm(trial_dir, hostile.nap, s=0)
                os.kill(server, number)
            return False

        result = executor.run(trial_spec(), trial_dir, should_stop=kill_server).result
        assert result.status == "crash"
        assert executor.lane.server.pid != server
        wait_until(lambda: not any(map(alive, left)))


def test_a_server_that_died_between_trials_is_replaced(tmp_path: Path) -> None:
    with open_executor() as executor:
        executor.run(trial_spec(), hostile.arm(tmp_path / "a", hostile.nap, s=0))
        psutil.Process(executor.lane.server.pid).kill()
        wait_until(lambda: not alive(executor.lane.server.pid))
        executor.run(trial_spec(), hostile.arm(tmp_path / "b", hostile.nap, s=0))
        second = executor.lane.server.pid
    assert not alive(second)


@pytest.mark.slow
def test_a_frozen_server_delays_but_does_not_stall(tmp_path: Path) -> None:
    """Whatever stopped the server, the wall clock limit holds and the trial's processes end."""
    for wall_s in (1, 8, 64):  # a busy machine takes longer to start all four
        trial_dir = hostile.arm(tmp_path / f"{wall_s}", hostile.spread, stay=True)
        with open_executor() as executor:
            server = executor.lane.server.pid
            frozen = []

            def freeze_server(
                trial_dir: Path = trial_dir, server: int = server, frozen: list[int] = frozen
            ) -> bool:
                if len(noted(trial_dir)) == 4:
                    with contextlib.suppress(ProcessLookupError):  # called once more after its end
                        os.kill(server, signal.SIGSTOP)
                        frozen.append(server)
                return False

            finished = executor.run(trial_spec(wall_s=wall_s), trial_dir, should_stop=freeze_server)
            assert finished.result.status == "timeout"  # that of a second run, under a new server
            if frozen:
                left = (server, *noted(trial_dir))
                wait_until(lambda left=left: not any(map(alive, left)))  # type: ignore[misc]
                break


def test_a_trainer_that_cannot_be_imported_is_no_evidence(tmp_path: Path) -> None:
    with (
        LocalExecutor(entry="tests.support.nowhere:run", allow_unsandboxed=True) as executor,
        pytest.raises(MachineryError),
    ):
        executor.run(trial_spec(), tmp_path / "trial")


def test_a_failed_preload_loses_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "broken_compiler.py").write_text("raise RuntimeError('half installed')")
    (tmp_path / "sound_compiler.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    forkserver._preload(["no_such_module", "broken_compiler", "sound_compiler"])
    assert sys.modules.pop("sound_compiler")
