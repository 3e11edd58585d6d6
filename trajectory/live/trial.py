"""The trials at work, found by what a trial leaves on disk: a spec and no result yet."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from pathlib import Path

from pydantic import ValidationError

from autoresearch.given_file import open_regular
from autoresearch.layout import CURVE_FILE, RESULT_FILE, SPEC_FILE, is_trial_id, trial_number
from autoresearch.values import Frozen
from trainer.spec import CurveLines, CurvePoint, KeptCurve, TrialSpec

MAX_SPEC_BYTES = 1 << 20
MAX_CURVE_BYTES = 1 << 20
"""The most that one poll takes in of a curve, which is as long as the trial's process makes it."""


class RunningTrial(Frozen):
    """A trial that has begun and not ended."""

    trial_id: str
    config_hash: str
    seed: int
    steps: int | None
    """It is to take; None for a budget in seconds."""
    points: tuple[CurvePoint, ...]
    """Its curve so far."""


class RunningTrials:
    """The trials of a campaign without a result, looked up again only when the directory
    changed."""

    def __init__(self, trials: Path) -> None:
        self._trials = trials
        self._listed_ns = -1
        self._over: set[str] = set()
        """Those that have a result, or are known to have been cut off."""
        self._at_work: dict[str, _Followed] = {}
        self.running: RunningTrial | None = None
        """The newest of them."""
        self.all: tuple[RunningTrial, ...] = ()
        self.changed_s = 0.0
        """When the trials or a running one's curve last changed; seconds since the epoch."""

    def cut_off(self, trial_ids: Iterable[str]) -> None:
        """The journal says that these will have no result."""
        for trial_id in trial_ids:
            self._is_over(trial_id)

    def poll(self) -> None:
        """Look again; what cannot be read is passed over."""
        try:
            self._list()
            for trial_id in list(self._at_work):
                if (self._trials / trial_id / RESULT_FILE).exists():
                    self._is_over(trial_id)
            seen = [followed.look() for followed in self._at_work.values()]
        except OSError:
            self.running, self.all = None, ()
            return
        self.changed_s = max([self.changed_s, *(one.changed_s for one in self._at_work.values())])
        self.all = tuple(one for one in seen if one is not None)
        self.running = self.all[-1] if self.all else None

    def _list(self) -> None:
        listed = self._trials.stat()
        if listed.st_mtime_ns != self._listed_ns:
            self._listed_ns = listed.st_mtime_ns
            names = {entry.name for entry in self._trials.iterdir() if is_trial_id(entry.name)}
            self._over &= names
            left = sorted(names - self._over, key=trial_number)
            known = self._at_work
            self._at_work = {
                name: known.get(name) or _Followed(self._trials / name) for name in left
            }
        self.changed_s = max(self.changed_s, listed.st_mtime)

    def _is_over(self, trial_id: str) -> None:
        self._over.add(trial_id)
        self._at_work.pop(trial_id, None)


class _Followed:
    """A trial without a result, read on and on."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._spec: TrialSpec | None = None
        self._lines, self._curve = CurveLines(None), KeptCurve()
        self._read_bytes = 0
        self.changed_s = 0.0
        """When its curve last changed."""

    def look(self) -> RunningTrial | None:
        """As it stands; None while there is nothing to show."""
        try:
            if self._spec is None:
                spec_json, _ = _read_plain(self._directory / SPEC_FILE, 0, MAX_SPEC_BYTES)
                self._spec = TrialSpec.model_validate_json(spec_json)
                self._lines = CurveLines(self._spec.max_step)
        except (OSError, ValidationError):
            return None  # half-made, or of another version
        self._read_curve(self._directory / CURVE_FILE)
        spec = self._spec
        return RunningTrial(
            trial_id=self._directory.name,
            config_hash=spec.config.config_hash,
            seed=spec.seed,
            steps=spec.steps,
            points=tuple(self._curve.points()),
        )

    def _read_curve(self, curve: Path) -> None:
        try:
            new, changed_s = _read_plain(curve, self._read_bytes, MAX_CURVE_BYTES)
        except OSError:
            return
        self.changed_s = max(self.changed_s, min(changed_s, time.time()))
        self._read_bytes += len(new)
        self._curve.add(self._lines.feed(new))


def _read_plain(path: Path, offset: int, limit_bytes: int) -> tuple[bytes, float]:
    """A piece of a file that a trial's process could have put something else in the place of, and
    when it last changed: no link is followed and no pipe waited for.

    :raises OSError: where it is no plain file that can be read.
    """
    descriptor = open_regular(path, through_links=False)
    with os.fdopen(descriptor, "rb") as file:
        file.seek(offset)
        return file.read(limit_bytes), os.fstat(descriptor).st_mtime
