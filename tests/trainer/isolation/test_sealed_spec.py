"""A trial that rewrites its own spec gains nothing by it, now or when the campaign is resumed."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from autoresearch.errors import MachineryError
from tests.support import hostile, kernel_attacks
from tests.support.trials import trial_ok, trial_spec
from trainer.executors.local import LocalExecutor
from trainer.isolation.kernel.sandbox import Layers
from trainer.isolation.outcome import finished_trial
from trainer.isolation.trial_files import TrialFiles, sealed_path
from trainer.spec import TrialFailed, TrialSpec, parse_result

ASKED = trial_spec(seed=0)
OTHER = trial_ok(ASKED, val_bpb=1.0)


@pytest.fixture(scope="module")
def executor() -> Iterator[LocalExecutor]:
    with LocalExecutor(entry=kernel_attacks.ENTRY, allow_unsandboxed=True) as executor:
        yield executor


@pytest.fixture
def trial_dir(tmp_path: Path) -> Path:
    return tmp_path / "trials" / "t000001"


def rewrite(trial_dir: Path, exit_code: int) -> Path:
    result = OTHER.model_dump_json()
    return hostile.arm(
        trial_dir, kernel_attacks.rewrite_spec, seed=3, result=result, exit_code=exit_code
    )


def test_the_result_of_another_seed_is_not_recorded(
    executor: LocalExecutor, trial_dir: Path
) -> None:
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


def test_who_says_that_nothing_was_measured_has_no_result_later(
    executor: LocalExecutor, trial_dir: Path
) -> None:
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
def test_nothing_is_taken_up_that_is_not_as_the_supervisor_left_it(
    change: Callable[[Path], object], trial_dir: Path
) -> None:
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
