"""The report of another tool's campaign: its standings, its runs, and what the import left out."""

from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from trainer.spec import Measure
from trajectory.formats.foreign import ForeignRun
from trajectory.formats.importing import ImportedCampaign
from trajectory.formats.standings import Standings
from trajectory.report.figures.progress import progress_picture
from trajectory.report.figures.progress_points import Point
from trajectory.report.report import Report, html, write_page
from trajectory.report.svg import Drawing
from trajectory.statistics.intervals import of_runs


def write_imported(campaign: ImportedCampaign, title: str, out: Path) -> Report:
    """Write the report of an imported campaign into a folder, which is created if it is missing.

    :param title: the campaign's name.
    :raises OSError: if the folder cannot be written.
    """
    found, provenance = Standings.of(campaign.runs), campaign.provenance
    measure = Measure(unit=provenance.measure[:40])
    points = [_point(run, found) for run in campaign.runs]
    baseline = found.baseline_estimate()
    ranked = found.top(len(found.configs))
    kept = sorted((one.iter, one.objective) for one in ranked if one.entry.action == "keep")
    draw = partial(progress_picture, points, measure, baseline, found.noise, kept)

    def page(drawings: Sequence[Drawing]) -> str:
        return html(
            "imported.html.j2",
            measure,
            drawings,
            datetime.now(UTC),
            title=title,
            measure=measure,
            provenance=provenance,
            runs=campaign.runs,
            found=found,
            ranked=ranked,
        )

    return write_page(out, [draw] if ranked else [], page)


def _point(run: ForeignRun, found: Standings) -> Point:
    if run.score is None:
        return Point(run.iter, "failed", None)
    score = of_runs(run.score, 1, found.noise)
    return Point(run.iter, "keep" if run.action == "keep" else "discard", score)
