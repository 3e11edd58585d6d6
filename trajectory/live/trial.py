"""The trial at work, found by what a trial leaves on disk: a spec and no result yet."""

from __future__ import annotations

import os
import time
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
    """The newest trial of a campaign, looked up again only when the directory changed."""

    def __init__(self, trials: Path) -> None:
        self._trials = trials
        self._listed_ns = -1
        self._newest: Path | None = None
        self._spec: TrialSpec | None = None
        self._forget_curve()
        self.running: RunningTrial | None = None
        self.changed_s = 0.0
        """When the trials or the running curve last changed; seconds since the epoch."""

    def _forget_curve(self, max_step: int | None = None) -> None:
        self._lines, self._curve = CurveLines(max_step), KeptCurve()
        self._read_bytes = 0

    def poll(self) -> None:
        """Look again; what cannot be read is passed over."""
        try:
            self._find_newest()
            self.running = self._look()
        except OSError:
            self.running = None

    def _find_newest(self) -> None:
        listed = self._trials.stat()
        if listed.st_mtime_ns != self._listed_ns:
            self._listed_ns = listed.st_mtime_ns
            names = [e.name for e in self._trials.iterdir() if is_trial_id(e.name)]
            newest = max(names, key=trial_number, default=None)
            if newest is not None and self._trials / newest != self._newest:
                self._newest = self._trials / newest
                self._spec = None
        self.changed_s = max(self.changed_s, listed.st_mtime)

    def _look(self) -> RunningTrial | None:
        newest = self._newest
        if newest is None or (newest / RESULT_FILE).exists():
            return None
        try:
            if self._spec is None:
                spec_json, _ = _read_plain(newest / SPEC_FILE, 0, MAX_SPEC_BYTES)
                self._spec = spec = TrialSpec.model_validate_json(spec_json)
                self._forget_curve(spec.max_step)
        except (OSError, ValidationError):
            return None  # half-made, or of another version: there is nothing to show yet
        self._read_curve(newest / CURVE_FILE)
        spec = self._spec
        return RunningTrial(
            trial_id=newest.name,
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
