"""The scores of configs on seeds that no search used, kept as they come."""

from __future__ import annotations

import contextlib
import json
import math
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean, stdev

from scipy.stats import t as student

from agent.settings.campaign import CampaignSettings
from bench.table.__main__ import spec_of
from bench.table.plan import SHORT_STEPS, Job
from trainer.corpus import Corpus
from trainer.executors.base import Executor
from trainer.spec import Config, TrialOk

FIRST_FRESH_SEED = 9_000_000
"""Far from those of any campaign whose own seed is small."""


@dataclass(slots=True)
class FreshRuns:
    """Trials of one length, in a file a line each."""

    path: Path
    executor: Executor
    settings: CampaignSettings
    corpus: Corpus
    steps: int = SHORT_STEPS
    _known: dict[tuple[str, int], float | None] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        for line in self.path.read_bytes().splitlines() if self.path.exists() else ():
            with contextlib.suppress(ValueError, TypeError):  # torn: it is run again
                config_hash, seed, score = json.loads(line)
                self._known[config_hash, seed] = score

    def score(self, config: Config, number: int) -> float | None:
        """On the so-manieth fresh seed; None where it failed."""
        return self.on(config, FIRST_FRESH_SEED + number)

    def on(self, config: Config, seed: int) -> float | None:
        """On this seed; None where it failed."""
        key = config.config_hash, seed
        if key not in self._known:
            job = Job("spread", config, key[1], self.steps)
            spec = spec_of(job, self.settings, self.corpus)
            with tempfile.TemporaryDirectory() as scratch:
                result = self.executor.run(spec, Path(scratch)).result
            self._known[key] = result.val_bpb if isinstance(result, TrialOk) else None
            with self.path.open("ab") as file:
                file.write(json.dumps([*key, self._known[key]]).encode() + b"\n")
        return self._known[key]

    def gain(self, config: Config, baseline: Config, seeds: int) -> float:
        """How much lower than the baseline's its mean score is over the fresh seeds, paired; 0 of
        the baseline itself, and the seeds on which either failed left out.

        :return: nan where every seed failed.
        """
        pairs = [
            (self.score(baseline, number), self.score(config, number)) for number in range(seeds)
        ]
        gains = [a - b for a, b in pairs if a is not None and b is not None]
        return fmean(gains) if gains else math.nan


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean with its 95 % interval, by Student's t."""

    mean: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Interval:
        """Of one value the interval is everything."""
        mean = fmean(values)
        if len(values) < 2:
            return cls(mean, -math.inf, math.inf)
        half = student.ppf(0.975, len(values) - 1) * stdev(values) / math.sqrt(len(values))
        return cls(mean, mean - half, mean + half)

    def __str__(self) -> str:
        return f"{self.mean:+.4f} ({self.low:+.4f} … {self.high:+.4f})"
