"""A campaign as Python sees it: typed rows, data frames, figures, and proposals to its loop.

:func:`autoresearch.open_campaign` returns a :class:`CampaignView`. `top`, `report`,
`propose` and the MCP server use it too.
"""

from __future__ import annotations

import html
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from agent.commands.night.board import interval_text
from agent.commands.night.status import Glance, glance
from agent.menu.edits import edited, menu_now, with_edits
from agent.menu.files import ProxyMenu, menu_of
from agent.menu.rails import Checked, Rails
from agent.session.places import existing_campaign, refuse_imported
from autoresearch.errors import CampaignError, JournalError, SettingsError
from autoresearch.layout import JOURNAL_FILE
from autoresearch.values import Frozen, Scalar
from autoresearch.words import changes_text, timestamp
from trainer.schema import BPB, AnyConfig, difference
from trajectory import ranking
from trajectory.journal import read_rows
from trajectory.live.follower import Follower
from trajectory.proposals import Proposal
from trajectory.queue import Queued, add, queued_in, user_name
from trajectory.ranking import Ranked
from trajectory.reading import Results
from trajectory.rows import CampaignRow, IterationRow, SpaceRow
from trajectory.space import add_edit, edits_in

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
    svg: str = field(repr=False)
    """A whole SVG file."""
    png: bytes = field(repr=False)

    def _repr_png_(self) -> bytes:  # pages that show notebooks strip an SVG's style sheet
        return self.png

    def save(self, path: str | Path) -> None:
        """Write the figure as an SVG file."""
        Path(path).write_text(self.svg, "utf-8")


class CampaignView:
    """A view of a campaign. It does not disturb a running loop, and every call reads the files
    again. Only :meth:`propose` writes.

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

    def results(self) -> Results:
        """Read the campaign's journal."""
        return Results(self.journal)

    def top(self, k: int = 10) -> Rows[Ranked]:
        """Return the ``k`` best configs by posterior mean."""
        return Rows(ranking.top(self.results().evidence, k))

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
        from trajectory.report import svg  # noqa: PLC0415 (loads Matplotlib)
        from trajectory.report.report import figures_of  # noqa: PLC0415

        figures = {figure.name: figure for figure in figures_of(self.findings())}
        chosen = figures.get(name)
        if chosen is None or chosen.draw is None:
            known = ", ".join(one.name for one in figures.values() if one.draw) or "none yet"
            raise SettingsError(f"there is no figure {name!r} of this campaign; choose: {known}")
        drawn = svg.draw(chosen.draw)
        return FigureView(name, chosen.caption, drawn.standalone, drawn.png)

    def findings(self) -> Findings:
        """Return everything that the report shows.

        :raises JournalError: if the journal is damaged or empty.
        """
        from funnel.cost.bill import plan_of, search_bill  # noqa: PLC0415
        from funnel.cost.measured import SearchUsage  # noqa: PLC0415
        from funnel.cost.rates import read_rates  # noqa: PLC0415 (of use to the report alone)
        from trainer.telemetry.summary import device_text  # noqa: PLC0415
        from trajectory.curves import read_curve  # noqa: PLC0415
        from trajectory.report.findings import ReportedKnob, read_findings  # noqa: PLC0415

        rates, row = read_rates(), self.row
        usage = SearchUsage(source="the journal")
        if row is None:
            raise JournalError(f"{self.journal} holds no row yet; start it with: autoresearch loop")
        menu = menu_now(row, self.results())
        return read_findings(
            self.journal,
            [ReportedKnob(one.name, one.domain, one.default) for one in menu.knobs.values()],
            menu.knob_values,
            lambda trial_id: read_curve(self.directory, trial_id),
            lambda row: usage.add(row, rates.spark_kw),
            lambda: search_bill(rates, usage, plan_of(row.id)),
            device_text(self.directory),
        )

    def status(self) -> Glance:
        """Return the campaign's progress, gain, pace and state."""
        return glance(Follower(self.directory))

    def check(self, changes: Mapping[str, Scalar], reason: str = "") -> Checked:
        """Return the rails' verdict on an edit of the present reference, without proposing it. The
        memory rail is off, because it depends on the loop's device.

        :raises CampaignError: if the journal is empty.
        """
        results = self.results()
        row, menu, reference = self._present(results)
        rails = Rails(menu, budget=row.budget, max_changes=row.max_changes)
        raw = json.dumps({"changes": dict(changes), "reason": reason})
        return rails.check(raw, reference, results.evidence.configs)

    def _present(self, results: Results) -> tuple[CampaignRow, ProxyMenu, AnyConfig]:
        """Return the campaign's row, its menu with all edits so far, and the config that proposals
        edit.

        :raises CampaignError: if the journal is empty.
        """
        row, evidence = results.campaign, results.evidence
        if row is None:
            raise CampaignError(f"{self.directory} holds an empty journal; start its loop first")
        menu = menu_now(row, results)
        best = evidence.configs.get(evidence.incumbent_hash or "")
        moves = row.reference == "incumbent"
        return row, menu, best.config if best is not None and moves else menu.baseline

    def space(self) -> tuple[ProxyMenu, AnyConfig, list[SpaceRow]]:
        """Return the menu with all edits, the config that proposals edit, and the edits that the
        loop has not taken up.

        :raises CampaignError: if the journal is empty.
        """
        results = self.results()
        _, menu, reference = self._present(results)
        known = results.rows_of(SpaceRow)
        waiting = [edit for edit in edits_in(self.directory) if edit not in known]
        return with_edits(menu, waiting), reference, waiting

    def edit_space(self, knobs: Mapping[str, Any], author: str | None = None) -> SpaceRow:
        """Edit what the campaign's proposals may set, also while its loop runs; the edit is on disk
        when this returns.

        :param knobs: the keys of the menu's tables to replace, or ``{"frozen": True}``, by knob; a
            constant with a whole domain becomes a knob.
        :param author: who edits, for the row; None: the user who runs this process.
        :raises CampaignError: if the campaign is read-only or empty.
        :raises MenuError: if the space cannot be edited so.
        """
        refuse_imported(self.directory)
        menu, reference, _ = self.space()
        edited(menu, knobs, reference)
        name = (author or user_name())[:100]
        edit = SpaceRow(at=timestamp(), author=name, knobs=dict(knobs))
        add_edit(self.directory, edit)
        return edit

    def propose(
        self, changes: Mapping[str, Scalar], reason: str = "", author: str | None = None
    ) -> Queued:
        """Queue a proposal for the campaign's loop; it is on disk when this returns.

        The loop takes it before it asks its own proposer, under the same rails and the same judge,
        as an edit of the reference at that time.

        :param author: who proposes, for the row; None: the user who runs this process.
        :raises CampaignError: if the rails refuse it now, the campaign is read-only, or too many
            proposals wait.
        """
        refuse_imported(self.directory)
        verdict = self.check(changes, reason).verdict
        if not verdict.allowed:
            raise CampaignError(f"not queued: the rail {verdict.rail} refuses it: {verdict.why}")
        return add(self.directory, Proposal(changes=dict(changes), reason=reason), author)

    def queue(self) -> Rows[Queued]:
        """Return the proposals whose iterations are not in the journal yet."""
        return Rows(queued_in(self.directory))

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
            "<th>iteration</th><th>n</th><th>estimate</th><th>95 % interval</th>"
            f"<th>changes</th></tr></thead><tbody>{lines}</tbody></table>"
        )
