"""Export a campaign as MLflow runs (:mod:`trajectory.formats.mlflow_runs`)."""

from __future__ import annotations

from pathlib import Path

from agent.exports.base import Exported, Subject, whole_database
from autoresearch.errors import FormatError
from autoresearch.layout import TRIALS_DIR
from trainer.isolation.trial_files import read_curve
from trainer.spec import CurvePoint
from trajectory.formats.mlflow_runs import write_runs, write_trials
from trajectory.formats.tracked import tracked_trials
from trajectory.history.tables import hidden


def export_mlflow(subject: Subject, where: str) -> Exported:
    """Write one run per trial with its curve, in an experiment named after the campaign."""
    if where.startswith("file:") and "://" not in where:  # the form in MLflow's documentation
        where = Path(where.removeprefix("file:")).absolute().as_uri()
    foreign = subject.foreign
    if foreign is not None:
        with whole_database(where) as place:
            count = write_runs(place, subject.name, foreign.runs, foreign.provenance.measure)
        return Exported(count, "runs", hidden(where))
    trials = subject.directory / TRIALS_DIR
    known = {path.name for path in trials.iterdir()} if trials.is_dir() else set()
    without: list[str] = []

    def curve(trial_id: str) -> list[CurvePoint]:
        points = read_curve(trials / trial_id) if trial_id in known else []
        if not points:
            without.append(trial_id)
        return points

    campaign_id = subject.campaign().id
    experiment = f"{subject.name} {campaign_id}"
    with whole_database(where) as place:
        try:
            count = write_trials(place, experiment, tracked_trials(subject.rows()), curve)
        except FormatError as error:
            if place != where:  # a new file, which is removed
                raise
            stays = f"the runs written before it remain in the experiment {experiment!r}"
            raise FormatError(f"{error} ({stays})") from error
    notes = (f"{len(without)} trials have no curve on disk",) if without else ()
    return Exported(count, "runs", hidden(where), notes)
