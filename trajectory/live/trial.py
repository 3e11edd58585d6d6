"""The trial at work, found by what a trial leaves on disk: a spec and no result yet."""

from __future__ import annotations

from pathlib import Path

from pydantic import ValidationError

from trainer.spec import CurvePoint, Frozen, TrialSpec

SPEC_NAME = "spec.json"
RESULT_NAME = "result.json"
CURVE_NAME = "curve.jsonl"


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
        self._points: list[CurvePoint] = []
        self._read_bytes = 0
        self.running: RunningTrial | None = None
        self.changed_s = 0.0
        """When the trials or the running curve last changed; seconds since the epoch."""

    def poll(self) -> None:
        """Look again."""
        try:
            listed = self._trials.stat()
        except OSError:
            return
        if listed.st_mtime_ns != self._listed_ns:
            self._listed_ns = listed.st_mtime_ns
            names = [entry.name for entry in self._trials.iterdir()]
            newest = max(names, key=lambda name: (len(name), name), default=None)
            if newest is not None and self._trials / newest != self._newest:
                self._newest = self._trials / newest
                self._spec, self._points, self._read_bytes = None, [], 0
        self.changed_s = max(self.changed_s, listed.st_mtime)
        self.running = self._look()

    def _look(self) -> RunningTrial | None:
        newest = self._newest
        if newest is None or (newest / RESULT_NAME).exists():
            return None
        try:
            if self._spec is None:
                self._spec = TrialSpec.model_validate_json((newest / SPEC_NAME).read_bytes())
            self._read_curve(newest / CURVE_NAME)
        except (OSError, ValidationError):
            return None  # half-made, or of another version: there is nothing to show yet
        spec = self._spec
        return RunningTrial(
            trial_id=newest.name,
            config_hash=spec.config.config_hash,
            seed=spec.seed,
            steps=spec.budget.steps(spec.config.tokens_per_step),
            points=tuple(self._points),
        )

    def _read_curve(self, curve: Path) -> None:
        try:
            with curve.open("rb") as file:
                file.seek(self._read_bytes)
                new = file.read()
                self.changed_s = max(self.changed_s, curve.stat().st_mtime)
        except FileNotFoundError:
            return
        whole = new[: new.rfind(b"\n") + 1]
        self._read_bytes += len(whole)
        self._points += [CurvePoint.model_validate_json(line) for line in whole.splitlines()]
