"""Trials of one script: the script of a command decides what its scores mean, and a person may save
it again while trials run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from agent.search.trials import EndHook, StartHook
from autoresearch.layout import RESULT_FILE
from trainer.executors.base import Finished


def one_script(check: Callable[[], None]) -> StartHook:
    """Return a hook by which a trial's result counts only if the script is the same after it.

    :param check: raises where the script differs from the campaign's. It reads every file of code:
        a millisecond for a script with a few files beside it.
    """

    def starts(trial_dir: Path) -> EndHook:
        check()

        def ends(finished: Finished) -> Finished:
            try:
                check()
            except BaseException:
                # Nobody can tell which script it is of, so no later session may resume with it.
                (trial_dir / RESULT_FILE).unlink(missing_ok=True)
                raise
            return finished

        return ends

    return starts
