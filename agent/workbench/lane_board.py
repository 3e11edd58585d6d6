"""Follow which trial runs on which lane, for displays."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import inf

from autoresearch.words import duration_text
from trainer.spec import CurvePoint, Place, TrialSpec
from trajectory.rows import Role


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
