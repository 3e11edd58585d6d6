"""Show the running loop: a live screen on a terminal, plain lines elsewhere."""

from collections import deque
from contextlib import AbstractContextManager, nullcontext

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from agent.judge import Assessment
from agent.search.trial import Watcher
from agent.workbench.progress import LaneBoard, Progress
from autoresearch.words import changes_text, duration_text
from trainer.spec import BPB, CurvePoint, Measure, Place, TrialFailed, TrialSpec
from trajectory.rows import BaselineRow, IterationRow, Role, TrialRecord

SHOWN_ITERATIONS = 10
ACTION_STYLE = {"keep": "bold green", "discard": "dim", "none": "yellow"}


def trial_line(spec: TrialSpec, role: Role, point: CurvePoint | None) -> str:
    """Return the running trial's step, loss, tokens/s and time left."""
    head = f"{role} on seed {spec.seed}"
    if point is None:
        return f"{head}: starting"
    steps = spec.steps
    of = "" if steps is None else f" of {steps}"
    text = f"{head}: step {point.step}{of} · loss {point.loss:.3f}"
    if point.tokens is not None:
        rate = point.tokens / point.elapsed_s if point.elapsed_s > 0 else 0.0
        text += f" · {rate:,.0f} tokens/s"
    if steps is not None and point.step:
        left_s = point.elapsed_s / point.step * (steps - point.step)
    elif spec.budget.unit == "seconds":
        left_s = spec.budget.amount - point.elapsed_s
    else:
        return text
    return f"{text} · {duration_text(max(0.0, left_s))} left"


class _Display(Watcher):
    """The common part of both displays: follow the lanes, and draw the current activity."""

    def __init__(self, console: Console, progress: Progress) -> None:
        self._console = console
        self._progress = progress
        self._board = LaneBoard()

    def note(self, text: str) -> None:
        self._console.print(Text(text, style="yellow"))
        self._draw(text)

    def proposing(self, iteration: int) -> None:
        self._draw(f"iteration {iteration}: proposing")

    def trial_started(self, spec: TrialSpec, role: Role) -> None:
        self._board.started(spec, role)
        self._draw(trial_line(spec, role, None))

    def trial_placed(self, trial_id: str, place: Place) -> None:
        self._board.placed(trial_id, place)
        self._draw(f"{trial_id} on lane {place}")

    def trial_ended(self, record: TrialRecord) -> None:
        self._board.left(record.trial_id, record.wall_s)
        self._draw("deciding")
        if slow := self._progress.pace.ended(record):
            self.note(slow)

    def assessed(self, assessment: Assessment) -> None:
        self._draw(assessment.explanation)

    def showing(self) -> AbstractContextManager[object]:
        """Show the display while the block runs."""
        return nullcontext()

    def _draw(self, doing: str) -> None:
        """Redraw everything, with what the loop does now."""


class PlainDisplay(_Display):
    """Prints one line per event: for logs, pipes and ``nohup``."""

    def note(self, text: str) -> None:
        self._print(text)

    def baseline_measured(self, row: BaselineRow) -> None:
        measure, score = self._progress.measure, row.trial.objective or 0.0
        self._print(
            f"baseline  seed {row.trial.seed}  {measure.text(score)} {measure.short}  "
            f"{row.trial.wall_s:.1f} s"
        )

    def iteration_ended(self, row: IterationRow) -> None:
        self._progress.ended(row)
        cells = IterationCells(row, self._progress.measure)
        self._print(
            f"{cells.number:>4}  {cells.proposer:<8} {cells.action:<8} {cells.bpb:>7}  "
            f"{cells.delta:<17} {cells.changes}  [{duration_text(row.wall_s)}]"
        )
        if row.decision.action == "keep":
            self._print(f"      best so far: {self._progress.best()}")
        if row.iter % 10 == 0 or row.iter == self._progress.goal.iterations:
            self._print(f"      {self._progress.line()}")
            if self._board.has_several:
                self._print(f"      {self._board.summary()}")

    def _print(self, text: str) -> None:
        self._console.print(Text(text), soft_wrap=True, highlight=False)


class LiveDisplay(_Display):
    """Redraws the last iterations, the best so far and the running trial in place.

    Rich redraws from its own thread, which reads one immutable renderable of everything. Each event
    replaces it, so that thread never reads the campaign while rows are added.
    """

    def __init__(self, console: Console, progress: Progress) -> None:
        super().__init__(console, progress)
        earlier = progress.campaign.history.iterations(limit=SHOWN_ITERATIONS)
        self._rows: deque[IterationRow] = deque(reversed(earlier), maxlen=SHOWN_ITERATIONS)
        self._baselines: list[str] = []
        self._picture: RenderableType = ""
        self._draw("starting")
        self._live = Live(
            console=console, get_renderable=lambda: self._picture, refresh_per_second=4
        )

    def showing(self) -> AbstractContextManager[object]:
        """See :meth:`_Display.showing`."""
        return self._live

    def baseline_measured(self, row: BaselineRow) -> None:
        self._baselines.append(self._progress.measure.text(row.trial.objective or 0.0))
        self._draw("measuring the baseline")

    def trial_point(self, trial_id: str, point: CurvePoint) -> None:
        shown = self._board.reported(trial_id, point)
        if shown is not None:
            self._draw(trial_line(shown.spec, shown.role, point))

    def iteration_ended(self, row: IterationRow) -> None:
        self._progress.ended(row)
        self._rows.append(row)
        self._draw(row.decision.explanation)

    def _draw(self, doing: str) -> None:
        parts: list[RenderableType] = []
        if self._rows:
            parts.append(iterations_table(list(self._rows), self._progress.measure))
        elif self._baselines:
            unit = self._progress.measure.short
            parts.append(Text(f"baseline: {', '.join(self._baselines)} {unit}"))
        parts.append(Text.assemble(("best  ", "bold"), self._progress.best()))
        if self._board.has_several:
            parts.append(Text.assemble(("lanes ", "bold"), self._board.summary()))
            for lane, shown in self._board.by_lane():
                line = "free" if shown is None else trial_line(shown.spec, shown.role, shown.point)
                parts.append(Text(f"  {lane:>4}  {line}"))
        else:
            parts.append(Text.assemble(("now   ", "bold"), doing))
        parts.append(Text(self._progress.line(), style="dim"))
        self._picture = Group(*parts)


def display_for(console: Console, progress: Progress) -> LiveDisplay | PlainDisplay:
    """Return a live display on a terminal, else a plain one."""
    return (LiveDisplay if console.is_terminal else PlainDisplay)(console, progress)


class IterationCells:
    """The cells of one iteration's table row."""

    def __init__(self, row: IterationRow, measure: Measure = BPB) -> None:
        decision = row.decision
        self.number = str(row.iter)
        self.proposer = row.proposer.kind + ("*" if row.proposer.fallback else "")
        self.action = decision.action
        self.changes = changes_text(row.proposal.changes) if row.proposal else row.verdict.why
        self.bpb = (
            "" if decision.estimate_objective is None else measure.text(decision.estimate_objective)
        )
        self.delta = decision.explanation
        if decision.delta is not None and decision.stderr is not None:
            self.delta = f"{measure.signed(decision.delta)} ± {measure.size(decision.stderr)}"
        elif row.trials and isinstance(row.trials[-1].result, TrialFailed):
            self.delta = row.trials[-1].result.status
        elif row.verdict.rail is not None:
            self.delta = f"refused: {row.verdict.rail}"


def iterations_table(rows: list[IterationRow], measure: Measure = BPB) -> Table:
    """Return a table of the last iterations: who proposed what, and the outcome."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("iter", justify="right")
    table.add_column("by")
    table.add_column(measure.name, justify="right")
    table.add_column("delta ± stderr", no_wrap=True)
    table.add_column("runs", justify="right")
    table.add_column("decision")
    table.add_column("changes", overflow="fold")
    for row in rows:
        cells = IterationCells(row, measure)
        table.add_row(
            cells.number,
            cells.proposer,
            cells.bpb,
            cells.delta,
            str(len(row.trials)),
            Text(cells.action, style=ACTION_STYLE[row.decision.action]),
            Text(cells.changes),
        )
    return table
