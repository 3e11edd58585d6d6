"""Run experiments in a session, and print their progress as lines.

Lines suit terminals, logs and pipes alike, since an experiment's runs take long.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any, TypeVar

import typer
from rich.console import Console
from rich.text import Text

from agent.search.experiment import Experiment, ExperimentWatcher, Key, PlannedRun
from agent.session.console import can_ask, print_lines, say
from agent.session.session import Session
from autoresearch.words import duration_text
from trainer.schema import BPB, CurvePoint, Measure, TrialFailed, TrialSpec
from trajectory.longruns import OUTCOME_STYLE
from trajectory.rows import LadderRow, Role, RowOfOneRun, StressRow, TrialRecord

Work = TypeVar("Work")

ASKS_ABOVE_S = 3600
"""Seconds above which a person is asked before an experiment starts."""
FEWEST_STEPS = 50
"""Fewest steps between two lines of a run."""


@dataclass(slots=True)
class _Shown:
    """A running run, as displayed."""

    number: int
    head: str
    steps: int | None
    losses: list[float] = field(default_factory=list)
    """Losses since the run's last line."""


def experiment(session: Session, kind: Callable[..., Work], *, lines: int = 0, **more: Any) -> Work:
    """Return an experiment on the session's campaign, with the runner and the display of its
    trials.

    :param lines: largest number of lines that a run prints while it trains.
    :param more: further arguments of this kind of experiment.
    """
    campaign = session.campaign
    display = ExperimentDisplay(session.console, campaign.menu.measure, lines=lines)
    return kind(
        campaign=campaign,
        runner=session.runner(display),
        watcher=display,
        meter=session.sampler,
        **more,
    )


def ask_if_long(work: Experiment[Any, Any, Any], *, yes: bool) -> None:
    """Have a person at a terminal agree to an experiment of over an hour.

    :raises typer.Abort: if the person does not.
    """
    left_s = work.expected_left_s()
    if left_s > ASKS_ABOVE_S and not yes and can_ask():
        question = f"It takes about {duration_text(left_s)}. Start?"
        typer.confirm(question, abort=True, err=True)


class ExperimentDisplay(ExperimentWatcher):
    """Prints a line when a run ends, and for long runs also lines while it trains; each names its
    run."""

    def __init__(self, console: Console, measure: Measure = BPB, *, lines: int = 0) -> None:
        """
        :param measure: unit and direction of the printed scores.
        :param lines: largest number of lines that a run prints while it trains.
        """
        self._console = console
        self._measure = measure
        self._lines = lines
        self._runs: dict[Key, _Shown] = {}
        self._next: _Shown | None = None
        """The run that began last, whose trial starts next."""
        self._trials: dict[str, _Shown] = {}

    def note(self, text: str) -> None:
        say(self._console, text, "yellow")

    def run_begins(self, run: PlannedRun[Any], number: int, total: int) -> None:
        head = f"run {number} of {total}  {run.label}, seed {run.spec.seed}"
        self._next = self._runs[run.key] = _Shown(number, head, run.spec.steps)
        if self._lines:
            say(self._console, head, "bold")

    def trial_started(self, spec: TrialSpec, role: Role) -> None:
        if self._next is not None:
            self._trials[spec.trial_id] = self._next

    def trial_point(self, trial_id: str, point: CurvePoint) -> None:
        shown = self._trials.get(trial_id)
        if shown is None or shown.steps is None or not self._lines:
            return
        shown.losses.append(point.loss)
        if point.step % max(FEWEST_STEPS, -(-shown.steps // self._lines)) and (
            point.step != shown.steps
        ):
            return
        left_s = point.elapsed_s / max(1, point.step) * (shown.steps - point.step)
        text = f"  run {shown.number}  step {point.step:>5} of {shown.steps}   "
        text += f"loss {fmean(shown.losses):7.4f}   "
        if point.lr is not None and point.grad_norm is not None:
            text += f"lr {point.lr:.2e}   grad norm {point.grad_norm:8.3g}   "
        say(self._console, f"{text}{duration_text(left_s)} left")
        shown.losses.clear()

    def trial_ended(self, record: TrialRecord) -> None:
        self._trials.pop(record.trial_id, None)

    def run_ended(self, run: PlannedRun[Any], row: RowOfOneRun) -> None:
        took = duration_text(row.trial.wall_s)
        head = self._runs.pop(run.key).head
        result, judged = row.trial.result, isinstance(row, StressRow | LadderRow)
        if isinstance(result, TrialFailed) and judged:
            score = Text("no score")
        elif isinstance(result, TrialFailed):
            score = Text(f"{result.status}: {result.message}", style="red")
        else:
            others = "".join(f", {text.val_bpb:.4f}" for text in result.texts)
            score = Text(f"{self._measure.text(result.objective)}{others} {self._measure.short}")
        if isinstance(row, StressRow | LadderRow):
            verdict = row.verdict
            at = "" if verdict.step is None else f" at step {verdict.step}"
            why = "" if verdict.outcome == "survives" else f"; {verdict.explanation}"
            outcome = (f"{verdict.outcome}{at}", OUTCOME_STYLE[verdict.outcome])
            score = Text.assemble(outcome, f"{why}  ", score)
        print_lines(self._console, [Text.assemble(f"{head}: ", score, f"  [{took}]")])
