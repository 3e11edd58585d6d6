"""Rank another tool's configs by their runs, and summarize how its loop used its iterations.

No seed is known, so no two runs form a pair. The noise is pooled over configs that were run more
than once. The posterior is that of :mod:`trajectory.statistics.population` without seeds. If no
config was run twice, the noise is unknown and scores are not shrunk.

A repeat is a proposal of a knob and a value that an earlier iteration had proposed, with any
outcome. The published analysis of the single-knob loop counts in the same way (36 of its 50).
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from statistics import fmean
from typing import Any, Self

from autoresearch.plain_text import plain
from autoresearch.values import Finite, Frozen, NonNegativeInt
from autoresearch.words import counted, duration_text
from trajectory.formats.foreign import ForeignRun, Plain
from trajectory.statistics.crossed_effects import Measured
from trajectory.statistics.intervals import RunNoise
from trajectory.statistics.population import Population
from trajectory.statistics.standings import Standing, standings

NAME_CHARACTERS = 12
TEXT_CHARACTERS = 120


@dataclass(slots=True)
class ForeignConfig(Measured):
    """One config of another tool and all its runs."""

    key: str
    """See :attr:`ForeignRun.config_key`."""
    name: str | None
    values: Mapping[str, Plain] | None
    iter: int
    """Iteration that first ran it; 0 for a baseline measured before."""
    is_baseline: bool = False
    changes: Mapping[str, Plain] = field(default_factory=dict)
    reason: str = ""
    action: str = "none"
    """The latest decision on it."""
    scores: dict[int, float] = field(default_factory=dict)
    """Scores by the run's line in the source, used as a seed that no other run has."""
    failures: list[str] = field(default_factory=list)
    """Reason for each failure."""


@dataclass(frozen=True)
class Standings:
    """All configs of another tool's campaign, in the order first seen, and the noise."""

    configs: Mapping[str, ForeignConfig]
    noise: RunNoise | None
    """Pooled noise; None if no config was run twice, or repeated runs never differ."""

    @classmethod
    def of(cls, runs: Iterable[ForeignRun]) -> Self:
        configs: dict[str, ForeignConfig] = {}
        for run in runs:
            key = run.config_key
            if key is None or run.status not in {"measured", "failed"}:
                continue
            config = configs.setdefault(
                key, ForeignConfig(key, run.name, run.values, run.iter, changes=run.changes or {})
            )
            config.is_baseline |= run.is_baseline
            config.reason = config.reason or run.reason
            if run.action != "none":
                config.action = run.action
            if run.score is None:
                config.failures.append(run.why or "failed")
            else:
                config.scores[run.line] = run.score
        replicated = [config for config in configs.values() if config.n > 1]
        dof = sum(config.n - 1 for config in replicated)
        squares = math.fsum(
            (score - mean) ** 2
            for config in replicated
            for mean in (config.mean,)
            for score in config.scores.values()
        )
        return cls(configs, RunNoise(math.sqrt(squares / dof), dof) if squares > 0 else None)

    @property
    def baseline(self) -> ForeignConfig | None:
        """The measured baseline; None if the source names none."""
        return next((one for one in self.configs.values() if one.is_baseline and one.n), None)

    @cached_property
    def population(self) -> Population | None:
        """Population of all measured configs except the baseline; None while the noise is
        unknown."""
        if self.noise is None:
            return None
        baseline = self.baseline
        others = [one for one in self.configs.values() if one.n and one is not baseline]
        return Population.fit(others, self.noise.sigma, seeds_known=False)

    def top(self, k: int) -> list[Standing[ForeignConfig]]:
        """Return the ``k`` best configs by posterior mean, best first."""
        return standings(
            self.configs.values(),
            k,
            noise=self.noise,
            population=self.population,
            baseline=self.baseline,
        )

    def described(self, config: ForeignConfig) -> str:
        """Describe a config on one line: its name and reason, or its changes from the baseline."""
        if config.is_baseline and config.name is None:
            return "the baseline itself"
        if config.values is None:
            return f"{(config.name or '')[:NAME_CHARACTERS]}  {_one_line(config.reason)}"
        base = (self.baseline.values if self.baseline else None) or {}
        changed = {n: v for n, v in config.values.items() if base.get(n) != v}
        return _one_line(" ".join(f"{name}={json.dumps(value)}" for name, value in changed.items()))


def as_json(standing: Standing[ForeignConfig]) -> dict[str, Any]:
    """Return a standing as values for JSON."""
    config = standing.entry
    return {
        "config_key": config.key,
        "name": config.name,
        "values": dict(config.values) if config.values is not None else None,
        "iter": config.iter,
        "is_baseline": config.is_baseline,
        "changes": dict(config.changes),
        "reason": config.reason,
        "action": config.action,
        "n": config.n,
        "mean_objective": config.mean,
        "objective": standing.objective,
        "objective_lo": standing.objective_lo,
        "objective_hi": standing.objective_hi,
        "delta_vs_baseline": standing.delta_vs_baseline,
        "delta_stderr": standing.delta_stderr,
        "delta_lo": standing.delta_lo,
        "delta_hi": standing.delta_hi,
        "beats_baseline": standing.beats_baseline,
    }


def _one_line(text: str) -> str:
    words = " ".join(plain(text).split())
    return words if len(words) <= TEXT_CHARACTERS else f"{words[: TEXT_CHARACTERS - 1]}…"


_SHOWN = 12
_SECONDS = {"iter_wall_s": "a turn", "train_wall_s": "training", "nim_latency_s": "proposing"}
"""Metrics of the single-knob loop's lines, with the names of what they time, in seconds."""


class Repeats(Frozen):
    """Number of proposals, and of those made before."""

    proposals: NonNegativeInt
    repeats: NonNegativeInt
    distinct: NonNegativeInt


class Retold(Frozen):
    """Summary of a loop's runs; None or empty for what the file does not contain."""

    repeats: Repeats | None
    touched: dict[str, NonNegativeInt]
    """Number of proposals by knob, most frequent first."""
    untouched: tuple[str, ...]
    """Knobs never proposed: those of the menu, or else values that the baseline names."""
    knobs_known: bool
    """Whether a menu defined the knobs."""
    total_s: Finite | None
    """Seconds of all iterations that report their duration."""
    mean_s: dict[str, Finite]
    """Mean seconds by activity, over the iterations that report it."""

    @classmethod
    def of(cls, runs: Sequence[ForeignRun], knobs: Sequence[str] | None = None) -> Retold:
        """Summarize runs.

        :param knobs: of the menu that the loop searched; None if it is not known.
        """
        proposed = [run.changes for run in runs if run.changes]
        touched = Counter(knob for changes in proposed for knob in changes)
        if knobs is None:
            baseline = next((run.values for run in runs if run.is_baseline and run.values), None)
        named = list(baseline or ()) if knobs is None else knobs
        distinct = len({json.dumps(changes, sort_keys=True) for changes in proposed})
        walls = [wall for run in runs if (wall := _seconds(run, "iter_wall_s")) is not None]
        return cls(
            repeats=Repeats(
                proposals=len(proposed), repeats=len(proposed) - distinct, distinct=distinct
            )
            if proposed
            else None,
            touched=dict(touched.most_common()),
            untouched=tuple(name for name in named if name not in touched) if proposed else (),
            knobs_known=knobs is not None,
            total_s=sum(walls) if walls else None,
            mean_s={
                name: fmean(seen)
                for name in _SECONDS
                if (seen := [s for run in runs if (s := _seconds(run, name)) is not None])
            },
        )

    def lines(self) -> Iterator[str]:
        """Yield the summary as lines of text."""
        found = self.repeats
        if found is None:
            yield "repeats   unknown: the file has no proposals, its configs are only names"
        else:
            yield (
                f"repeats   {found.repeats} of {counted(found.proposals, 'proposal')} "
                f"({found.repeats / found.proposals:.0%}) had been made before; "
                f"{found.distinct} different"
            )
            of = len(self.touched) + len(self.untouched)
            what = "knobs were" if self.knobs_known else "values that the baseline names were"
            said = [f"{plain(name)} {times}" for name, times in list(self.touched.items())[:_SHOWN]]
            never = ", ".join(plain(name) for name in self.untouched[:_SHOWN])
            more = len(self.untouched) - _SHOWN
            rest = f" and {more} more" if more > 0 else ""
            ending = f"; never {never}{rest}" if never else ""
            yield (
                f"knobs     {len(self.touched)} of {of} {what} ever changed: {', '.join(said)}"
                f"{ending}"
            )
        if self.total_s is None:
            yield "time      unknown: the file has no durations"
        else:
            parts = ", ".join(
                f"{_SECONDS[name]} {seconds:.1f} s" for name, seconds in self.mean_s.items()
            )
            yield f"time      {duration_text(self.total_s)} in all; on average {parts}"


def _seconds(run: ForeignRun, name: str) -> float | None:
    seconds = run.metrics.get(name)
    is_number = isinstance(seconds, int | float) and not isinstance(seconds, bool)
    return float(seconds) if is_number and seconds >= 0 else None  # type: ignore[arg-type, operator]
