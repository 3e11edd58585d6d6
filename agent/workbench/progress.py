"""Follow a session for displays: the trials on its lanes, its pace and estimated end, slow trials.

A trial's result does not depend on its speed."""

import os
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from math import inf
from statistics import fmean

from agent.search.campaign import Campaign
from agent.search.stopping import Goal
from autoresearch.words import changes_text, duration_text
from trainer.spec import CurvePoint, Measure, Place, TrialOk, TrialSpec, difference
from trajectory.confirmed import latest_of
from trajectory.evidence import Evidence
from trajectory.ranking import ranked_config
from trajectory.rows import ConfirmedRow, IterationRow, Role, TrialRecord
from trajectory.spending import BusyTime


@dataclass(slots=True)
class Shown:
    """A trial that began."""

    spec: TrialSpec
    role: Role
    place: Place | None = None
    """None while it waits for a lane."""
    point: CurvePoint | None = None


class LaneBoard:
    """Follows the trials of one session."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """
        :param clock: returns the time in seconds.
        """
        self.trials: dict[str, Shown] = {}
        """Trials that run or wait for a lane, by id."""
        self._clock = clock
        self._lanes: set[str] = set()
        self._began_s: float | None = None
        self._since_s: dict[str, float] = {}
        self._busy_s = 0.0

    @property
    def has_several(self) -> bool:
        """Whether trials run on lanes."""
        return bool(self._lanes)

    def started(self, spec: TrialSpec, role: Role) -> Shown:
        """Add a trial that began; it may have to wait."""
        shown = self.trials[spec.trial_id] = Shown(spec, role)
        return shown

    def placed(self, trial_id: str, place: Place) -> None:
        """Put a trial on a lane. Whatever ran there before has left it, since a trial that was
        given up ends without a record."""
        before = [name for name, one in self.trials.items() if one.place == place]
        for name in before:
            if name != trial_id:
                self.left(name)
        if trial_id in self.trials:
            self.trials[trial_id].place = place
            self._since_s[trial_id] = self._clock()
            self._began_s = self._since_s[trial_id] if self._began_s is None else self._began_s
            self._lanes.add(place.lane)

    def reported(self, trial_id: str, point: CurvePoint) -> Shown | None:
        """One more point of its curve."""
        shown = self.trials.get(trial_id)
        if shown is not None:
            shown.point = point
        return shown

    def left(self, trial_id: str, wall_s: float = inf) -> None:
        """Remove a trial that is over.

        :param wall_s: the seconds that it took, if it has a record.
        """
        self.trials.pop(trial_id, None)
        since_s = self._since_s.pop(trial_id, None)
        if since_s is not None:
            self._busy_s += min(wall_s, self._clock() - since_s)

    @property
    def waiting(self) -> int:
        """Number of trials that wait for a lane."""
        return sum(shown.place is None for shown in self.trials.values())

    @property
    def utilisation(self) -> float | None:
        """Share of the lanes' time in this session in which a trial ran on them; None before the
        first trial."""
        if self._began_s is None:
            return None
        now_s = self._clock()
        passed_s = (now_s - self._began_s) * len(self._lanes)
        busy_s = self._busy_s + sum(now_s - since_s for since_s in self._since_s.values())
        return min(1.0, busy_s / passed_s) if passed_s > 0 else None

    def summary(self) -> str:
        """Return a line such as ``4 lanes, 97% in use for 2 h 05 min, 1 waiting``."""
        used = self.utilisation
        text = f"{len(self._lanes)} lanes"
        if used is not None:
            text += f", {used:.0%} in use"
        if self._began_s is not None:
            text += f" for {duration_text(self._clock() - self._began_s)}"
        return f"{text}, {self.waiting} waiting"

    def by_lane(self) -> Iterator[tuple[str, Shown | None]]:
        """Yield every lane seen so far, and the trial that runs there."""
        running = {one.place.lane: one for one in self.trials.values() if one.place is not None}
        for lane in sorted(self._lanes, key=lambda name: (len(name), name)):
            yield lane, running.get(lane)


SAME_CONFIG = 3.0
"""Ratio to the fastest step of the same config above which a trial is slow."""
OTHER_CONFIG = 8.0
"""The same ratio to the fastest step per parameter and token of any config, since sizes differ."""
IN_A_ROW = 2
"""Slow trials in a row before a report."""


class Pace:
    """Follows the speed of one session's trials."""

    def __init__(self) -> None:
        self._of_config: dict[str, float] = {}
        self._of_any: float | None = None
        self._slow = 0
        self._reported = False

    def ended(self, record: TrialRecord) -> str | None:
        """Return a sentence when trials have become slow, once until they are fast again."""
        result = record.result  # a command's size and steps are unknown
        if not isinstance(result, TrialOk):
            return None
        times, usual_ms = self._compared(record.config_hash, result)
        if times is None:
            self._slow, self._reported = 0, False
            return None
        self._slow += 1
        if self._slow < IN_A_ROW or self._reported:
            return None
        self._reported = True
        load, cores = os.getloadavg()[0], os.cpu_count() or 1
        why = (
            f"more processes are runnable than this machine has cores (load {load:.1f} on {cores})"
            if load > cores
            else f"the machine is not busy now (load {load:.1f} on {cores} cores)"
        )
        return (
            f"trials take {times:.1f} times as long as before ({result.step_ms:,.0f} ms a step, "
            f"{usual_ms:,.0f} before): {why}. Stop other programs, or run with "
            "--threads 1, since the threads of a trial wait for each other; scores are unaffected"
        )

    def _compared(self, config_hash: str, result: TrialOk) -> tuple[float | None, float]:
        """Return the slow-down, None if it is usual, and the usual step time in milliseconds."""
        work = float(result.params) * result.tokens / result.steps
        same, other = self._of_config.get(config_hash), self._of_any
        self._of_config[config_hash] = min(same or result.step_ms, result.step_ms)
        self._of_any = min(other or result.step_ms / work, result.step_ms / work)
        if same is not None and result.step_ms > SAME_CONFIG * same:
            return result.step_ms / same, same
        if same is None and other is not None and result.step_ms > OTHER_CONFIG * other * work:
            return result.step_ms / (other * work), other * work
        return None, result.step_ms


PACE_ITERATIONS = 30
"""Number of iterations over which the pace is averaged."""


class Progress:
    """The campaign's progress, pace and estimated end."""

    def __init__(self, campaign: Campaign, goal: Goal) -> None:
        self.campaign = campaign
        self.goal = goal
        self.pace = Pace()
        self._walls_s: deque[float] = deque(maxlen=PACE_ITERATIONS)
        self._busy = BusyTime()
        self._measured: tuple[str | None, int, int] | None = None
        """The state of the evidence when :attr:`_best` was computed."""
        self._best = ""

    @property
    def measure(self) -> Measure:
        """The unit of the campaign's scores."""
        return self.campaign.menu.measure

    def ended(self, row: IterationRow) -> None:
        """Count one more iteration. The pace is that of the latest ones, without the baseline and
        pauses."""
        self._walls_s.append(self._busy.added_s(row))

    def line(self) -> str:
        """Return counts, pace and estimated end."""
        done = self.campaign.evidence.tally.iterations
        until = self.goal.iterations if self.goal.is_iterations_alone else None
        text = f"{done} iterations, until {self.goal}"
        if until is not None:
            text = f"{done} of {until} iterations"
        seconds = fmean(self._walls_s) if self._walls_s else 0.0
        if seconds > 0:
            text += f" · {3600 / seconds:.0f} an hour"
            if until is not None and done < until:
                left_s = seconds * (until - done)
                end = datetime.now() + timedelta(seconds=left_s)
                text += f" · {duration_text(left_s)} left (about {end:%a %H:%M})"
        return text

    def best(self) -> str:
        """Return the incumbent and its gain over the baseline, both as shrunk estimates, not means
        of the runs that chose it. The text is cached until something new is measured, because a
        screen asks often."""
        evidence = self.campaign.evidence
        measured = (evidence.incumbent_hash, evidence.tally.iterations, evidence.tally.within_dof)
        if measured != self._measured:
            confirmed = latest_of([row.found for row in self.campaign.history.newest(ConfirmedRow)])
            said = confirmed.get(evidence.incumbent_hash or "")
            stands = f"; confirmed {said.headline}" if said is not None and said.stands else ""
            self._measured, self._best = measured, _best(evidence, self.measure) + stands
        return self._best


def _best(evidence: Evidence, measure: Measure) -> str:
    best = ranked_config(evidence, evidence.incumbent_hash)
    baseline = evidence.configs.get(evidence.baseline_hash or "")
    if best is None or baseline is None or not baseline.n:
        return "no baseline yet"
    text = f"believed to score {measure.text(best.objective)} {measure.short} (n={best.n})"
    if best.config_hash == baseline.config_hash:
        return f"the baseline, {text}"
    gain = "" if best.delta_vs_baseline is None else measure.signed(best.delta_vs_baseline)
    if best.delta_lo is not None and best.delta_hi is not None:
        gain += f" ({measure.signed_span(best.delta_lo, best.delta_hi)})"
    changed = changes_text(difference(best.config, baseline.config))
    return f"iteration {best.iter}, {text}, {gain} against the baseline: {changed}"
