"""Rank another tool's configs by their runs.

No seed is known, so no two runs form a pair. The noise is pooled over configs that were run more
than once. The posterior is that of :mod:`trajectory.statistics.population` without seeds. If no
config was run twice, the noise is unknown and scores are not shrunk.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from autoresearch.safe_text import plain
from trajectory.formats.foreign import ForeignRun, Plain
from trajectory.statistics.crossed_effects import Measured
from trajectory.statistics.intervals import RunNoise
from trajectory.statistics.population import Population
from trajectory.statistics.standings import Estimates, Standing

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


class Standings(Estimates[ForeignConfig]):
    """All configs of another tool's campaign, in the order first seen, with their estimates.

    The noise is None if no config was run twice, or repeated runs never differ.
    """

    @classmethod
    def of(cls, runs: Iterable[ForeignRun]) -> Self:
        configs: dict[str, ForeignConfig] = {}
        for run in runs:
            key = run.config_key
            if key is None:
                continue
            config = configs.setdefault(
                key, ForeignConfig(key, run.name, run.values, run.iter, changes=run.changes or {})
            )
            config.is_baseline |= run.is_baseline
            config.reason = config.reason or run.reason
            if run.action != "none":
                config.action = run.action
            if run.score is not None:
                config.scores[run.line] = run.score
        measured = [config for config in configs.values() if config.n]
        baseline = next((config for config in measured if config.is_baseline), None)
        dof = sum(config.n - 1 for config in measured)
        squares = math.fsum(
            (score - mean) ** 2
            for config in measured
            for mean in (config.mean,)
            for score in config.scores.values()
            if config.n > 1
        )
        if not squares:
            return cls(configs, baseline, None, None)
        noise = RunNoise(math.sqrt(squares / dof), dof)
        others = [config for config in measured if config is not baseline]
        population = Population.fit(others, noise.sigma, seeds_known=False)
        return cls(configs, baseline, noise, population)

    def top(self, k: int) -> list[Standing[ForeignConfig]]:
        """Return the ``k`` best configs by posterior mean, best first."""
        return self.standings(self.configs.values(), k)

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
