"""Compute a session's progress, pace and estimated end, and report slow trials.

A trial's result does not depend on its speed.
"""

import os
from collections import deque
from datetime import datetime, timedelta
from statistics import fmean

from agent.search.campaign import Campaign
from agent.search.stopping import Goal
from autoresearch.words import changes_text, duration_text
from trainer.spec import Measure, TrialOk, difference
from trajectory.confirmed import latest_of
from trajectory.evidence import Evidence
from trajectory.ranking import ranked_config
from trajectory.rows import ConfirmedRow, IterationRow, TrialRecord
from trajectory.spending import BusyTime

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
