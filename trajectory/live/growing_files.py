"""Readers of the files that a running campaign's trials and device append to.

A trial runs if it has a spec and no result yet. The device's readings are in telemetry.csv.
"""

import csv
import json
import os
import time
from collections import deque
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from pydantic import BaseModel, ValidationError

from autoresearch.campaign_files import has_file, names, open_file, read_file, status_of
from autoresearch.layout import (
    CURVE_FILE,
    IN_FLIGHT_DIR,
    LANE_FILE,
    RESULT_FILE,
    SPEC_FILE,
    TELEMETRY_FILE,
    TRIALS_DIR,
    in_flight_names,
    is_trial_id,
    trial_number,
)
from autoresearch.safe_text import plain
from autoresearch.values import Frozen, PositiveInt, Scalar
from autoresearch.words import brief, changes_text
from trainer.schema import AnyConfig, CurveLines, CurvePoint, KeptCurve, TrialSpec
from trajectory.proposals import Proposal

MAX_SPEC_BYTES = 1 << 20
MAX_CURVE_BYTES = 1 << 20
"""Most bytes of a curve read by one poll; the trial's process decides how long the curve is."""
MAX_LANE_BYTES = 100
MOST_FOLLOWED = 1000
"""Most trials, the newest, that are followed, and most iterations in flight that are read: many
more than any loop has."""
MOST_IDEAS_BYTES = 16 << 20
"""Most bytes of all iterations in flight that are read by one poll."""


class RunningIdea(Frozen):
    """The proposal of an iteration in flight."""

    iter: PositiveInt
    changes: dict[str, Scalar]
    reason: str

    def __str__(self) -> str:
        """Return ``iteration 12, lr=0.003: its reason``."""
        return plain(f"iteration {self.iter}, {changes_text(self.changes)}: {self.reason}")


class _InFlight(BaseModel):
    """The fields of an iteration's file that name its idea."""

    iter: PositiveInt
    proposal: Proposal
    config: AnyConfig


class RunningTrial(Frozen):
    """A trial that has begun and not ended."""

    trial_id: str
    config_hash: str
    seed: int
    steps: int | None
    """Steps to take; None for a budget in seconds."""
    points: tuple[CurvePoint, ...]
    """Its curve so far."""
    lane: str | None = None
    """The lane that it runs on; None if one trial runs at a time."""
    idea: RunningIdea | None = None
    """The proposal that it tries; None for a run of the baseline or of a reference."""


class RunningTrials:
    """A campaign's trials without a result; the directory is listed again only if it has
    changed."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._listed_ns = -1
        self._over: set[str] = set()
        """Trials that have a result, or are known to have been interrupted."""
        self._at_work: dict[str, _Followed] = {}
        self.all: tuple[RunningTrial, ...] = ()
        self.changed_s = 0.0
        """Last change of the trials or of a running one's curve; seconds since the epoch."""

    def cut_off(self, trial_ids: Iterable[str]) -> None:
        """Drop trials that the journal records as interrupted; they will have no result."""
        for trial_id in trial_ids:
            self._is_over(trial_id)

    def poll(self) -> None:
        """Read the running trials again, and skip what cannot be read."""
        listed = status_of(self._directory, TRIALS_DIR)
        if listed is None:
            self.all = ()
            return
        if listed.st_mtime_ns != self._listed_ns:
            self._listed_ns = listed.st_mtime_ns
            there = {name for name in names(self._directory, TRIALS_DIR) if is_trial_id(name)}
            newest = sorted(there, key=trial_number)[-MOST_FOLLOWED:]
            self._over &= there
            left = [name for name in newest if name not in self._over]
            known = self._at_work
            self._at_work = {
                name: known.get(name) or _Followed(self._directory, name) for name in left
            }
        self.changed_s = max(self.changed_s, listed.st_mtime)
        for trial_id in list(self._at_work):
            if has_file(self._directory, f"{TRIALS_DIR}/{trial_id}/{RESULT_FILE}"):
                self._is_over(trial_id)
        ideas = read_ideas(self._directory) if self._at_work else {}
        seen = [followed.state(ideas) for followed in self._at_work.values()]
        self.changed_s = max([self.changed_s, *(one.changed_s for one in self._at_work.values())])
        self.all = tuple(one for one in seen if one is not None)

    @property
    def running(self) -> RunningTrial | None:
        """The newest of the running trials."""
        return self.all[-1] if self.all else None

    def _is_over(self, trial_id: str) -> None:
        self._over.add(trial_id)
        self._at_work.pop(trial_id, None)


class _Followed:
    """Reads a trial without a result as it grows."""

    def __init__(self, directory: Path, trial_id: str) -> None:
        self._directory = directory
        self._trial_id = trial_id
        self._spec: TrialSpec | None = None
        self._lines, self._curve = CurveLines(None), KeptCurve()
        self._read_bytes = 0
        self.changed_s = 0.0
        """Last change of its curve; seconds since the epoch."""

    def state(self, ideas: Mapping[str, RunningIdea]) -> RunningTrial | None:
        """Return the trial's current state; None while there is nothing to show.

        :param ideas: the iterations in flight, by config_hash.
        """
        try:
            if self._spec is None:
                spec_json, _ = self._read(SPEC_FILE, 0, MAX_SPEC_BYTES)
                self._spec = TrialSpec.model_validate_json(spec_json)
                self._lines = CurveLines(self._spec.max_step)
        except (OSError, ValidationError):
            return None  # incomplete, or from another version
        with suppress(OSError):
            new, changed_s = self._read(CURVE_FILE, self._read_bytes, MAX_CURVE_BYTES)
            self.changed_s = max(self.changed_s, min(changed_s, time.time()))
            self._read_bytes += len(new)
            self._curve.add(self._lines.feed(new))
        lane = None
        with suppress(OSError):
            name, _ = self._read(LANE_FILE, 0, MAX_LANE_BYTES)
            lane = name.decode("utf-8", "replace")
        spec = self._spec
        return RunningTrial(
            trial_id=self._trial_id,
            config_hash=spec.config.config_hash,
            seed=spec.seed,
            steps=spec.steps,
            points=tuple(self._curve.points()),
            lane=lane,
            idea=ideas.get(spec.config.config_hash),
        )

    def _read(self, name: str, offset: int, limit_bytes: int) -> tuple[bytes, float]:
        """Return a piece of one of its files, and when the file last changed.

        :raises OSError: if it is not a regular file that can be read.
        """
        descriptor = open_file(self._directory, f"{TRIALS_DIR}/{self._trial_id}/{name}")
        with os.fdopen(descriptor, "rb") as file:
            file.seek(offset)
            return file.read(limit_bytes), os.fstat(descriptor).st_mtime


def read_ideas(directory: Path) -> dict[str, RunningIdea]:
    """Return the proposals of the iterations in flight, by config_hash, without files that cannot
    be read."""
    ideas, left_bytes = {}, MOST_IDEAS_BYTES
    for name in in_flight_names(directory)[-MOST_FOLLOWED:]:
        with suppress(OSError, ValidationError, RecursionError):
            file = read_file(directory, f"{IN_FLIGHT_DIR}/{name}", left_bytes)
            left_bytes -= len(file)
            one = _InFlight.model_validate_json(file)
            changes = {name: brief(name, value) for name, value in one.proposal.changes.items()}
            ideas[one.config.config_hash] = RunningIdea(
                iter=one.iter, changes=changes, reason=one.proposal.reason
            )
    return ideas


def read_until(directory: Path) -> int | None:
    """Return the loop's target from the latest iteration in flight; None if there is none, or its
    file has no target."""
    try:
        latest = in_flight_names(directory)[-1]
        in_flight = json.loads(read_file(directory, f"{IN_FLIGHT_DIR}/{latest}"))
    except (OSError, ValueError, IndexError, RecursionError):
        return None
    until = in_flight.get("until") if isinstance(in_flight, dict) else None
    return until if isinstance(until, int) else None


SHOWN_SAMPLES = 1800
"""An hour at one sample every two seconds."""
_TAIL_BYTES = 256 << 10


class DeviceSample(Frozen):
    """The device's readings at one moment; None for a reading that it did not give."""

    at: str
    """Time in ISO 8601, UTC."""
    gpu_util_pct: float | None
    power_w: float | None
    temperature_c: float | None
    mem_used_gib: float | None
    throttle_reasons: str
    """NVML's names, joined by a bar."""


_NUMBERS = ("gpu_util_pct", "power_w", "temperature_c", "mem_used_gib")


class DeviceTail:
    """The latest samples of a campaign's telemetry.csv."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._columns: list[str] = []
        self._read_bytes = 0
        self.samples: deque[DeviceSample] = deque(maxlen=SHOWN_SAMPLES)

    def poll(self) -> None:
        """Read the complete lines that were appended; of a long file, only about the last hour."""
        try:
            with os.fdopen(open_file(self._directory, TELEMETRY_FILE), "rb") as file:
                size = os.fstat(file.fileno()).st_size
                if size < self._read_bytes:
                    self._read_bytes = 0
                    self.samples.clear()
                if size == self._read_bytes:
                    return
                if self._read_bytes == 0:
                    header = file.readline(_TAIL_BYTES)
                    self._columns = header.decode("utf-8", "replace").strip().split(",")
                    self._read_bytes = max(len(header), size - _TAIL_BYTES)
                file.seek(self._read_bytes)
                new = file.read(_TAIL_BYTES)
        except OSError:
            return
        whole = new[: new.rfind(b"\n") + 1]
        self._read_bytes += len(whole)
        for line in whole.decode("utf-8", "replace").splitlines():
            # A line may be partial, such as the first of the tail, or nothing that a loop wrote.
            with suppress(KeyError, ValueError, StopIteration, csv.Error):
                row = dict(zip(self._columns, next(csv.reader([line])), strict=False))
                numbers = {name: float(row[name]) if row[name] else None for name in _NUMBERS}
                reasons = row["throttle_reasons"]
                sample = DeviceSample(at=row["at"], throttle_reasons=reasons, **numbers)
                self.samples.append(sample)
