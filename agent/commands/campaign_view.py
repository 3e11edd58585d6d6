"""A campaign as Python sees it: typed rows, data frames and figures.

:func:`autoresearch.open_campaign` returns a :class:`CampaignView`. `top` and `report` use it too.
"""

from __future__ import annotations

import html
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from agent.commands.night.board import interval_text
from agent.menu.files import menu_of
from agent.workbench.places import existing_campaign
from autoresearch.errors import SettingsError
from autoresearch.layout import HISTORY_FILE, JOURNAL_FILE, TRIALS_DIR
from autoresearch.values import Frozen
from autoresearch.words import changes_text
from trainer.spec import BPB, difference
from trajectory.journal import read_rows
from trajectory.ranking import Ranked
from trajectory.reading import Reading, read_campaign
from trajectory.rows import CampaignRow, IterationRow

if TYPE_CHECKING:
    from pandas import DataFrame

    from trajectory.report.findings import Findings

Row = TypeVar("Row", bound="Frozen | dict[str, Any]")


class Rows(list[Row], Generic[Row]):
    """Rows of one kind, in order."""

    def frame(self) -> DataFrame:
        """Return the rows as a pandas DataFrame, nested fields as columns such as ``config.lr``.

        :raises SettingsError: if pandas is not installed.
        """
        try:
            import pandas  # noqa: PLC0415 (optional, and slow to load)
        except ImportError as error:
            raise SettingsError(
                "a data frame needs pandas, which is not installed; run: pip install pandas"
            ) from error
        plain = [row.model_dump(mode="json") if isinstance(row, Frozen) else row for row in self]
        return pandas.json_normalize(plain)


@dataclass(frozen=True, slots=True)
class FigureView:
    """One of the report's figures, which a notebook displays."""

    name: str
    caption: str
    svg: str
    """A whole SVG file."""

    def _repr_svg_(self) -> str:
        return self.svg

    def save(self, path: str | Path) -> None:
        """Write the figure as an SVG file."""
        Path(path).write_text(self.svg, "utf-8")


class CampaignView:
    """A read-only view of a campaign. It does not disturb a running loop, and every call reads the
    files again.

    :raises CampaignError: if the directory holds no campaign.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = existing_campaign(directory)

    @property
    def journal(self) -> Path:
        """The campaign's trajectory.jsonl."""
        return self.directory / JOURNAL_FILE

    @property
    def row(self) -> CampaignRow | None:
        """The campaign's first row, which holds its settings; None in an empty journal."""
        return next((row for row in read_rows(self.journal) if isinstance(row, CampaignRow)), None)

    def reading(self) -> Reading:
        """Open the campaign's journal or its index for reading; the caller closes it."""
        return read_campaign(self.journal, self.history)

    def top(self, k: int = 10) -> Rows[Ranked]:
        """Return the ``k`` best configs by posterior mean."""
        with self.reading() as reading:
            return Rows(reading.top(k))

    def iterations(self) -> Rows[IterationRow]:
        """Return every iteration: its proposal, verdict, trials and decision."""
        return Rows(row for row in read_rows(self.journal) if isinstance(row, IterationRow))

    def runs(self) -> Rows[dict[str, Any]]:
        """Return one dictionary per trial: the columns of ``export --to csv``."""
        from trajectory.formats.table import trials_table  # noqa: PLC0415 (slow to load)

        table = trials_table(read_rows(self.journal))
        names = [column.name for column in table.columns]
        return Rows(dict(zip(names, line, strict=True)) for line in table.lines)

    def figure(self, name: str = "progress") -> FigureView:
        """Return one of the report's figures.

        :raises SettingsError: naming the figures there are, if this is none or is still empty.
        """
        from trajectory.report.drawing import svg  # noqa: PLC0415 (loads Matplotlib)
        from trajectory.report.drawing.canvas import style  # noqa: PLC0415
        from trajectory.report.figures.registry import figures_of  # noqa: PLC0415

        figures = {figure.name: figure for figure in figures_of(self.findings()) if figure.shows}
        if name not in figures:
            known = ", ".join(figures) or "none yet"
            raise SettingsError(f"there is no figure {name!r} of this campaign; choose: {known}")
        with style():
            drawing = svg.draw(figures[name].draw())
        return FigureView(name, figures[name].caption, drawing.standalone)

    def findings(self) -> Findings:
        """Return everything that the report shows.

        :raises JournalError: if the journal is damaged or empty.
        """
        from agent.settings.rates import read_rates  # noqa: PLC0415 (of use to the report alone)
        from funnel.cost.bill import RatedMeter  # noqa: PLC0415
        from trainer.isolation.trial_files import read_curve  # noqa: PLC0415
        from trajectory.report.reading import own_campaign  # noqa: PLC0415
        from trajectory.report.reading.samples import ReportedKnob  # noqa: PLC0415

        row = self.row
        menu = menu_of(row) if row else None
        knobs = []
        for knob in menu.knobs.values() if menu else ():
            asked = menu if knob.reads is not None else None
            read = partial(asked.knob_value, name=knob.name) if asked else None
            knobs.append(ReportedKnob(knob.name, knob.domain, knob.default, read))
        return own_campaign.read_campaign(
            self.journal,
            knobs,
            lambda trial_id: read_curve(self.directory / TRIALS_DIR / trial_id),
            RatedMeter(read_rates()),
        )

    def history(self) -> str | Path:
        """Return where the campaign's index is: a file, or the URL of a shared database."""
        from agent.settings.environment import read_environment  # noqa: PLC0415 (slow to load)

        return read_environment().history_url or self.directory / HISTORY_FILE

    def __repr__(self) -> str:
        return f"CampaignView({str(self.directory)!r})"

    def _repr_html_(self) -> str:
        row = self.row
        measure = row.measured_in if row else BPB
        baseline = menu_of(row).baseline if row else None
        lines = "".join(
            f"<tr><td>{place}</td><td>{entry.iter or 'baseline'}</td><td>{entry.n}</td>"
            f"<td>{measure.text(entry.objective)}</td><td>{interval_text(entry, measure)}</td>"
            f"<td>{html.escape(changes_text(difference(entry.config, baseline)))}</td></tr>"
            for place, entry in enumerate(self.top(5), start=1)
        )
        return (
            f"<p><b>{html.escape(self.directory.resolve().name)}</b>, best configs by "
            f"{html.escape(measure.name)}, {measure.better}</p><table><thead><tr><th>#</th>"
            "<th>iteration</th><th>n</th><th>posterior</th><th>95 % interval</th>"
            f"<th>changes</th></tr></thead><tbody>{lines}</tbody></table>"
        )
