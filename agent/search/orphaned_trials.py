"""Orphaned trials: begun in an earlier session, and named by no row of the journal."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path

from autoresearch.layout import trial_number
from trainer.isolation.trial_files import finished_trial
from trainer.spec import Measured, TrialFailed, TrialSpec


@dataclass(slots=True)
class OrphanedTrials:
    """Trials with a directory that no row names.

    A finished one is resumed where its spec is asked for. The others are reported as interrupted,
    and so is a finished one that nothing will ask for any more.
    """

    finished: dict[TrialSpec, tuple[str, Measured | TrialFailed]] = field(default_factory=dict)
    """Id and result of each orphaned trial, by its spec without the id."""
    unfinished: list[str] = field(default_factory=list)

    def give_up(self, those: Callable[[TrialSpec], bool]) -> list[str]:
        """Forget the finished trials of some kind, and return their ids for a row to name."""
        given_up = [spec for spec in self.finished if those(spec)]
        return [self.finished.pop(spec)[0] for spec in given_up]


def read_orphaned_trials(directory: Path, unnamed: Collection[str]) -> OrphanedTrials:
    """Return the orphaned trials of a campaign.

    :param directory: the campaign's ``trials`` folder.
    :param unnamed: ids of the trials there that no row names.
    """
    orphaned = OrphanedTrials()
    for name in sorted(unnamed, key=trial_number):
        finished = finished_trial(directory / name)
        if finished is None:
            orphaned.unfinished.append(name)
            continue
        spec, result = finished
        without_id = spec.model_copy(update={"trial_id": ""})
        if orphaned.finished.setdefault(without_id, (name, result))[0] != name:
            orphaned.unfinished.append(name)  # the same spec twice: one is enough
    return orphaned
