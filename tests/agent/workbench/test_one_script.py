"""Check that no row is written for a script other than the campaign's."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from agent.search.stopping import StopRequest
from agent.search.trial import TrialWatcher
from agent.search.trials import TrialRunner
from agent.workbench.own_trainer import one_script
from autoresearch.errors import CampaignError
from tests.agent.search.test_trials import Instant, short
from tests.support.configs import config
from tests.support.races import run_one
from trainer.command.tree import code_sha256
from trainer.executors.base import Finished
from trainer.spec import CurvePoint, TrialSpec


class Saving(Instant):
    """Save the script during the run, from the second trial on."""

    def __init__(self, script: Path) -> None:
        super().__init__()
        self._script = script
        self.trained = 0

    def train(
        self, spec: TrialSpec, trial_dir: Path, tell: Callable[[CurvePoint], None]
    ) -> Finished:
        self.trained += 1
        if self.trained == 2:
            self._script.write_text("print(2)")
        return super().train(spec, trial_dir, tell)


def test_a_script_saved_again_ends_the_sitting_and_its_trial_counts_for_nothing(
    tmp_path: Path,
) -> None:
    directory = tmp_path / "script"
    directory.mkdir()
    script = directory / "train.py"
    script.write_text("print(1)")
    begun = code_sha256(directory, tmp_path)

    def check() -> None:
        if code_sha256(directory, tmp_path) != begun:
            raise CampaignError("another script")

    executor = Saving(script)
    trials = tmp_path / "trials"

    def runner(*accounted: str) -> TrialRunner:
        hooks = [one_script(check)]
        return TrialRunner(
            trials, short, executor, set(accounted), StopRequest(), TrialWatcher(), hooks
        )

    first = runner()
    assert run_one(first, config(), 0, "baseline").trial_id == "t000001"
    with pytest.raises(CampaignError):
        run_one(first, config(), 1, "baseline")
    with pytest.raises(CampaignError):
        run_one(runner("t000001"), config(), 2, "baseline")
    assert executor.trained == 2
    script.write_text("print(1)")
    again = runner("t000001")
    assert again.orphaned.finished == {}, "of which script it is nobody knows"
    assert again.orphaned.unfinished == ["t000002"]
    assert run_one(again, config(), 1, "baseline").trial_id == "t000003"
