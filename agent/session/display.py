"""Show the running loop: one line per event, and on a terminal also what runs now, below them."""

import time
from collections import deque
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from datetime import datetime, timedelta
from statistics import fmean

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from agent.judge import Assessment
from agent.search.campaign import Campaign
from agent.search.stopping import Goal
from agent.search.trial import Watcher, left_s
from agent.session.console import say
from autoresearch.words import changes_text, counted, duration_text
from trainer.schema import CurvePoint, Measure, Place, TrialFailed, TrialSpec, difference
from trajectory.live.growing_files import RunningIdea, read_ideas
from trajectory.ranking import ranked_config
from trajectory.report.wording import cut
from trajectory.rows import BaselineRow, IterationRow, Role, TrialRecord

ACTION_STYLE = {"keep": "bold green", "discard": "", "none": "yellow"}
PACE_ITERATIONS = 30
"""Number of iterations over which the pace is averaged."""
MOST_IDEA = 160
"""Most characters of a running trial's change and reason."""
TRIALS_AN_ITERATION = 1.8
"""Mean number of trials that a race takes, as in docs/night (176 in 100 iterations)."""
FEWEST_ITERATIONS = 5
"""Iterations below which the pace is not shown: one that was pruned would set it."""


@dataclass(slots=True)
class ShownTrial:
    """A trial that began."""

    spec: TrialSpec
    role: Role
    place: Place | None = None
    """None while it waits for a lane, or if there is only one."""
    point: CurvePoint | None = None
    idea: RunningIdea | None = None
    """The proposal that it tries, if any."""

    def __str__(self) -> str:
        """Return its step, loss, tokens/s and time left."""
        name, point = self.role if self.idea is None else cut(str(self.idea), MOST_IDEA), self.point
        head = f"{name} · seed {self.spec.seed}"
        if point is None:
            return f"{head}: starting"
        steps = self.spec.steps
        of = "" if steps is None else f" of {steps}"
        text = f"{head}: step {point.step}{of} · loss {point.loss:.3f}"
        if point.tokens is not None and point.elapsed_s > 0:
            text += f" · {point.tokens / point.elapsed_s:,.0f} tokens/s"
        seconds = left_s(self.spec, point)
        return text if seconds is None else f"{text} · {duration_text(seconds)} left"


class Display(Watcher):
    """Follows a session of the loop.

    Rich redraws from its own thread, which reads one immutable renderable of everything. Each event
    replaces it, so that thread never reads the campaign while rows are added.
    """

    def __init__(
        self, console: Console, campaign: Campaign, goal: Goal, *, places: int = 1
    ) -> None:
        """
        :param places: number of trials at the same time.
        """
        self._places = places
        self._is_estimated = False
        self._console = console
        self._campaign = campaign
        self._goal = goal
        self._measure = campaign.menu.measure
        self._trials: dict[str, ShownTrial] = {}
        self._ends_s: deque[float] = deque(maxlen=PACE_ITERATIONS + 1)
        self._best = self._best_text()
        self._picture: RenderableType = ""
        self._draw("starting")

    def showing(self) -> AbstractContextManager[object]:
        """Show what runs now while the block runs, if a person sees it."""
        if not self._console.is_terminal:
            return nullcontext()
        return Live(
            console=self._console, get_renderable=lambda: self._picture, refresh_per_second=4
        )

    def note(self, text: str) -> None:
        say(self._console, text, "yellow")

    def proposing(self, iteration: int) -> None:
        if not self._is_estimated:
            self._is_estimated = True
            if line := night_text(self._campaign, self._goal, self._places):
                say(self._console, line)
            if line := self._campaign.results.headline().can_find:
                say(self._console, f"can find  {line}")
        self._draw(f"iteration {iteration}: proposing")

    def trial_started(self, spec: TrialSpec, role: Role) -> None:
        idea = None
        if self._console.is_terminal and role == "candidate":
            idea = read_ideas(self._campaign.directory).get(spec.config.config_hash)
        shown = self._trials[spec.trial_id] = ShownTrial(spec, role, idea=idea)
        self._draw(str(shown))

    def trial_placed(self, trial_id: str, place: Place) -> None:
        if trial_id in self._trials:
            self._trials[trial_id].place = place
            self._draw(f"{trial_id} on lane {place}")

    def trial_point(self, trial_id: str, point: CurvePoint) -> None:
        if trial_id in self._trials:
            self._trials[trial_id].point = point
            self._draw(str(self._trials[trial_id]))

    def trial_ended(self, record: TrialRecord) -> None:
        self._trials.pop(record.trial_id, None)
        self._draw("deciding")

    def assessed(self, assessment: Assessment) -> None:
        self._draw(assessment.explanation)

    def baseline_measured(self, row: BaselineRow) -> None:
        score, short = self._measure.text(row.trial.objective or 0.0), self._measure.short
        line = f"baseline  seed {row.trial.seed}  {score} {short}  {row.trial.wall_s:.1f} s"
        say(self._console, line)
        self._best = self._best_text()

    def iteration_ended(self, row: IterationRow) -> None:
        self._ends_s.append(time.monotonic())
        say(self._console, iteration_line(row, self._measure), ACTION_STYLE[row.decision.action])
        self._best = self._best_text()
        if row.decision.action == "keep":
            say(self._console, f"      best so far: {self._best}")
        is_round = row.iter % 10 == 0 or row.iter == self._goal.iterations
        if is_round and not self._console.is_terminal:
            say(self._console, f"      {self._progress()}")
        self._draw(row.decision.explanation)

    def _draw(self, doing: str) -> None:
        """Redraw everything, with what the loop does now."""
        placed = [one for one in self._trials.values() if one.place is not None]
        now = [f"lane {one.place}  {one}" for one in placed] or [doing]
        self._picture = Group(
            Text.assemble(("best  ", "bold"), self._best),
            *(Text.assemble(("now   ", "bold"), line) for line in now),
            Text(self._progress(), style="dim"),
        )

    def _progress(self) -> str:
        """Return counts, pace and estimated end."""
        done, until = self._campaign.evidence.iterations, self._goal.iterations
        text = f"{done} iterations; goal: {self._goal}"
        if len(self._ends_s) > FEWEST_ITERATIONS:
            seconds = (self._ends_s[-1] - self._ends_s[0]) / (len(self._ends_s) - 1)
            text += f" · {3600 / max(seconds, 1e-3):.0f} an hour"
            if self._goal.is_iterations_alone and until is not None and done < until:
                left_s = seconds * (until - done)
                end = datetime.now() + timedelta(seconds=left_s)
                text += f" · {duration_text(left_s)} left (about {end:%a %H:%M})"
        return text

    def _best_text(self) -> str:
        """Return the incumbent and its gain over the baseline, both as shrunk estimates, not means
        of the runs that chose it."""
        evidence, measure = self._campaign.evidence, self._measure
        best = ranked_config(evidence, evidence.incumbent_hash)
        baseline = evidence.configs.get(evidence.baseline_hash or "")
        if best is None or baseline is None or not baseline.n:
            return "no baseline yet"
        text = f"estimated {measure.text(best.objective)} {measure.short} (n={best.n})"
        if best.config_hash == baseline.config_hash:
            return f"the baseline, {text}"
        gain = "" if best.delta_vs_baseline is None else measure.signed(best.delta_vs_baseline)
        if best.delta_lo is not None and best.delta_hi is not None:
            gain += f" ({measure.signed_span(best.delta_lo, best.delta_hi)})"
        changed = changes_text(difference(best.config, baseline.config))
        return f"iteration {best.iter}, {text}, {gain} against the baseline: {changed}"


def night_text(campaign: Campaign, goal: Goal, places: int) -> str:
    """Return a line on how long the iterations left should take, by the pace of the baseline's
    trials; empty if that is unknown, or hours end the night anyway."""
    evidence = campaign.evidence
    trials = campaign.results.measurements(evidence.baseline_hash or "")
    left = (goal.iterations or 0) - evidence.iterations
    if not trials or left <= 0:
        return ""
    trial_s = fmean(trial.wall_s for trial in trials)
    left_s = left * TRIALS_AN_ITERATION * trial_s / places
    return (
        f"how long  about {duration_text(left_s)} for {counted(left, 'iteration')} of "
        f"{TRIALS_AN_ITERATION:g} trials each, if a trial takes {duration_text(trial_s)} as the "
        f"baseline's do{f', {places} at a time' if places > 1 else ''}"
    )


def iteration_line(row: IterationRow, measure: Measure) -> str:
    """Return a line on who proposed what, and the outcome."""
    decision, score = row.decision, ""
    if decision.estimate_objective is not None:
        score = measure.text(decision.estimate_objective)
    proposer = row.proposer.kind + ("*" if row.proposer.fallback else "")
    changes = changes_text(row.proposal.changes) if row.proposal else row.verdict.why
    return (
        f"{row.iter:>4}  {proposer:<8} {decision.action:<8} {score:>7}  {_delta(row, measure):<19} "
        f"{changes}  [{duration_text(row.wall_s)}]"
    )


def _delta(row: IterationRow, measure: Measure) -> str:
    decision = row.decision
    if decision.delta is not None and decision.stderr is not None:
        return f"{measure.signed(decision.delta)} (se {measure.size(decision.stderr)})"
    if row.trials and isinstance(row.trials[-1].result, TrialFailed):
        return row.trials[-1].result.status
    return decision.explanation if row.verdict.rail is None else f"refused: {row.verdict.rail}"
