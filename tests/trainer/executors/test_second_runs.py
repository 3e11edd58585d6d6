"""A trial whose end says nothing about its config runs a second time, and only once."""

import logging
import os
import signal
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from autoresearch.errors import MachineryError
from tests.support import faulty_trainer, hostile
from tests.support.corpora import write_corpus
from tests.support.trials import tiny_spec, trial_spec
from trainer.executors.local import LocalExecutor
from trainer.isolation.kernel.sandbox import Layers
from trainer.isolation.usage import TrialTime
from trainer.schema import TrialOk, TrialSpec

ENTRY = faulty_trainer.ENTRY


@pytest.fixture(scope="module")
def spec(tmp_path_factory: pytest.TempPathFactory) -> TrialSpec:
    return tiny_spec(write_corpus(tmp_path_factory.mktemp("faults") / "corpus"))


QUICK = ("memory cap", "first kernel")
FAULTS = [
    fault if fault in QUICK else pytest.param(fault, marks=pytest.mark.slow)
    for fault in faulty_trainer.FAULTS
]


@pytest.mark.parametrize("fault", FAULTS)
def test_no_config_is_blamed_for_what_fails_before_its_first_step(
    fault: str, executor: LocalExecutor, spec: TrialSpec, tmp_path: Path
) -> None:
    trial_dir = faulty_trainer.break_it(tmp_path / "trial", fault)
    with pytest.raises(MachineryError) as failure:
        executor.run(spec, trial_dir)
    assert "\n" not in str(failure.value)
    assert ("cuDNN's attention is off" in str(failure.value)) == (fault == "memory cap")
    assert faulty_trainer.attempts(trial_dir) == 2
    assert not (trial_dir / "result.json").exists()


def test_what_fails_once_is_logged_and_the_run_continues(
    executor: LocalExecutor, spec: TrialSpec, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    trial_dir = faulty_trainer.break_it(tmp_path / "trial", "build", times=1)
    with caplog.at_level(logging.WARNING):
        assert isinstance(executor.run(spec, trial_dir).result, TrialOk)
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert faulty_trainer.attempts(trial_dir) == 2


def test_later_crashes_are_blamed(executor: LocalExecutor, spec: TrialSpec, tmp_path: Path) -> None:
    trial_dir = faulty_trainer.break_it(tmp_path / "trial", "later kernel")
    result = executor.run(spec, trial_dir).result
    assert result.status == "crash"
    assert faulty_trainer.attempts(trial_dir) == 1


def stop_itself(trial_dir: Path) -> None:
    with (trial_dir / "stops").open("ab") as file:
        file.write(b".")
    if (trial_dir / "stops").stat().st_size == 1:
        os.kill(os.getpid(), signal.SIGSTOP)


@pytest.mark.slow
def test_a_trial_that_stood_still_runs_again(tmp_path: Path) -> None:
    trial_dir = hostile.arm(tmp_path / "trial", stop_itself)
    entry = "tests.trainer.executors.test_second_runs:run_hostile"
    with LocalExecutor(entry=entry, layers=Layers(0, seccomp=False), allow_unsandboxed=True) as one:
        one.run(trial_spec(wall_s=1), trial_dir)
    assert (trial_dir / "stops").stat().st_size == 2


run_hostile = hostile.run


@pytest.mark.parametrize(
    ("ticks", "left_s", "still_s"),
    [
        ([(0.1, 0.1, False)] * 10, 9.0, 0.0),
        ([(25.0, 24.9, False)], 9.9, 24.9),  # the whole tree was stopped
        ([(25.0, 0.5, False)], -15.0, 0.0),  # the supervisor worked all the time
        ([(0.5, 0.5, True)] * 10, 10.0, 5.0),  # only the trial was stopped
        ([(1.0, 1.0, True)] * 30, -10.0, 10.0),  # and for as long as it wants
    ],
)
def test_time_in_which_nothing_ran_is_free(
    ticks: list[tuple[float, float, bool]], left_s: float, still_s: float
) -> None:
    clock = TrialTime(10.0)
    for passed_s, idle_s, stopped in ticks:
        clock.count(passed_s, idle_s, lambda stopped=stopped: stopped)
    assert clock.left_s == pytest.approx(left_s)
    assert clock.still_s == pytest.approx(still_s)


def test_a_tick_after_the_lid_was_closed_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    now = {"clock": 100.0, "busy": 3.0}
    asked: set[int] = set()

    def clock_gettime(clock: int) -> float:
        asked.add(clock)
        return now["clock"]

    times = SimpleNamespace(clock_gettime=clock_gettime, thread_time=lambda: now["busy"])
    monkeypatch.setattr("trainer.isolation.usage.time", times)
    trial = TrialTime(10.0)
    night_s = 8 * 3600.0
    seen = []
    for passed_s, busy_s in ((0.1, 0.02), (night_s, 0.0), (0.1, 0.02), (3.0, 2.9), (0.1, 0.0)):
        now["clock"] += passed_s
        now["busy"] += busy_s
        trial.tick(lambda: False)
        seen.append((trial.left_s, trial.still_s))
    assert asked == {time.CLOCK_BOOTTIME}, "which goes on while the machine sleeps"
    left_s = [9.9, 9.9, 9.8, 6.8, 6.7]
    assert [left for left, _ in seen] == pytest.approx(left_s)
    assert [still for _, still in seen] == pytest.approx([0.0, *[night_s] * 4])
