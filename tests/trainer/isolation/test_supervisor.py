"""The supervisor ends every trial on time, leaves nothing alive, and names the cause of each
end."""

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from autoresearch.errors import MachineryError
from tests.support import hostile
from tests.support.processes import alive, noted, of_trials
from tests.support.trials import trial_ok, trial_spec
from trainer.executors.local import LocalExecutor
from trainer.isolation.messages import Ended
from trainer.isolation.outcome import Ending, judge
from trainer.isolation.trial_files import TrialFiles
from trainer.schema import TrialFailed

ENTRY = hostile.ENTRY


def fail(
    executor: LocalExecutor, trial_dir: Path, attack: Callable[..., Any], /, **arguments: Any
) -> TrialFailed:
    """Return the failure that the attack ends in; arguments named like limits set them."""
    names = {"wall_s", "memory_gib", "log_bytes", "processes"}
    limits = {name: arguments.pop(name) for name in list(arguments) if name in names}
    hostile.arm(trial_dir, attack, **arguments)
    result = executor.run(trial_spec(**limits), trial_dir).result
    assert isinstance(result, TrialFailed)
    return result


EXIT, DIE = hostile.exit_with, hostile.die_by
NO_RESULT = "ended without a result"
ENDS: list[tuple[Callable[..., Any], dict[str, Any], str, str]] = [
    # attack, its arguments and limits, status, what its message holds
    (hostile.freeze, {"wall_s": 0.5}, "timeout", "not done within the limit of 0.5 s"),
    (hostile.hold_memory, {"mib": 300, "memory_gib": 0.2}, "oom", "over the limit of 0.2 GiB"),
    # shared memory counts once
    (hostile.hold_memory, {"mib": 150, "forks": 3, "memory_gib": 0.3}, "crash", NO_RESULT),
    (
        hostile.fork_many,
        {"many": 300, "processes": 20},
        "killed",
        "processes, over the limit of 20",
    ),
    (EXIT, {"code": 3, "last_words": "no\x1b[31m!\n\n"}, "crash", "exit code 3: no [31m!"),
    (EXIT, {"code": 0}, "crash", NO_RESULT),
    (hostile.divide_by_zero, {}, "crash", "exit code 1: ZeroDivisionError: division by zero"),
    (DIE, {"number": int(signal.SIGSEGV)}, "killed", "killed by SIGSEGV"),
    (DIE, {"number": int(signal.SIGKILL)}, "killed", "SIGKILL, perhaps by the out-of-memory"),
    (DIE, {"number": int(signal.SIGTERM)}, "killed", "killed by SIGTERM"),
    # results are read with bounds, and through no link
    (hostile.leave_huge_result, {}, "crash", NO_RESULT),
    (hostile.leave_symlinked_result, {"path": "GENUINE"}, "crash", NO_RESULT),
    (hostile.leave_directory_as_result, {}, "crash", NO_RESULT),
]


@pytest.mark.parametrize(("attack", "arguments", "status", "says"), ENDS)
def test_each_end_has_its_status_and_cause(
    executor: LocalExecutor,
    tmp_path: Path,
    attack: Callable[..., Any],
    arguments: dict[str, Any],
    status: str,
    says: str,
) -> None:
    genuine = tmp_path / "genuine"
    genuine.write_text(trial_ok(trial_spec()).model_dump_json())
    told = {name: str(genuine) if one == "GENUINE" else one for name, one in arguments.items()}
    result = fail(executor, tmp_path / "trial", attack, **told)
    assert result.status == status
    assert says in result.message
    assert of_trials(executor) == []
    if status == "oom":
        assert result.peak_mem_gib is not None
        assert 0.2 < result.peak_mem_gib < 0.5


def test_a_trial_may_run_again(executor: LocalExecutor, trial_dir: Path, tmp_path: Path) -> None:
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


def test_an_error_in_a_callback_leaves_nothing(executor: LocalExecutor, trial_dir: Path) -> None:
    def interrupt() -> bool:
        if len(noted(trial_dir)) == 4:
            raise KeyboardInterrupt
        return False

    hostile.arm(trial_dir, hostile.spread, stay=True)
    with pytest.raises(KeyboardInterrupt):
        executor.run(trial_spec(), trial_dir, should_stop=interrupt)
    assert not any(map(alive, noted(trial_dir)))
    again = fail(executor, trial_dir.with_name("next"), hostile.exit_with, code=3)
    assert again.status == "crash"


def test_nothing_outlives_a_trial_that_ends(executor: LocalExecutor, trial_dir: Path) -> None:
    """The supervisor itself gets no children either."""
    before = psutil.Process(os.getpid()).children()
    assert fail(executor, trial_dir, hostile.spread, stay=False).status == "crash"
    assert not any(map(alive, noted(trial_dir)))
    assert psutil.Process(os.getpid()).children() == before


def test_a_process_that_keeps_fleeing_is_caught(executor: LocalExecutor, trial_dir: Path) -> None:
    assert fail(executor, trial_dir, hostile.hop).status == "crash"
    assert of_trials(executor) == []
    # Searching for it among the machine's processes would not do: it evades a search as it evades a
    # signal. It cannot hide that it keeps running.
    seen = noted(trial_dir)
    assert len(seen) > 1
    time.sleep(0.2)
    assert noted(trial_dir) == seen


def test_no_log_link_is_followed(executor: LocalExecutor, trial_dir: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_text("x" * 1000)
    fail(executor, trial_dir, hostile.replace_log_by_symlink, path=str(outside), log_bytes=500)
    assert outside.read_text() == "x" * 1000


def test_a_kill_by_the_kernel_for_memory_is_oom(trial_dir: Path) -> None:
    spec = trial_spec()
    files = TrialFiles(spec, trial_dir)
    ending = Ending(Ended(signal=signal.SIGKILL), peak_bytes=1 << 30, oom_killer_struck=True)
    result = judge(spec, files, ending)
    files.close()
    assert isinstance(result, TrialFailed)
    assert (result.status, result.peak_mem_gib) == ("oom", 1.0)


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


def test_a_full_disk_is_no_evidence(executor: LocalExecutor, trial_dir: Path) -> None:
    hostile.arm(trial_dir, hostile.run_out_of_disk)
    with pytest.raises(MachineryError):
        executor.run(trial_spec(), trial_dir)
