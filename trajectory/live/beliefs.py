"""Posterior means of a followed campaign's best configs, computed once per row."""

from __future__ import annotations

import math
from typing import Any

from trainer.spec import Measure
from trajectory.confirmed import NOTHING_YET, ConfirmedConfig, finding
from trajectory.evidence import Evidence
from trajectory.live.brief import Step, incumbent_of
from trajectory.ranking import Noise, Ranked, population_of, rank
from trajectory.rows import IterationRow, Row
from trajectory.statistics.score_axis import score_limits


class Beliefs:
    """A campaign's evidence, its incumbents in order, and their ranking."""

    def __init__(self) -> None:
        self.evidence = Evidence()
        self._reigns: list[tuple[int, str]] = []
        """Each incumbent's hash, and the iteration after which it became the incumbent."""
        self._rows = 0
        self._scores: list[tuple[float, int]] = []
        """Each measured candidate's mean, and its number of runs."""
        self._known: tuple[int, dict[str, Any]] = (0, {})
        """Cached fields of a status, and the number of rows they were computed from."""

    def add(self, row: Row) -> None:
        """Add the next row."""
        self.evidence.add(row)
        self._rows += 1
        if isinstance(row, IterationRow) and row.decision.estimate_objective is not None:
            self._scores.append((row.decision.estimate_objective, max(1, row.decision.pairs)))
        incumbent = self.evidence.incumbent_hash
        last, known = self._reigns[-1] if self._reigns else (0, None)
        if incumbent and incumbent != known:
            # With several lanes, a later incumbent may have a lower number.
            number = row.iter if isinstance(row, IterationRow) else 0
            self._reigns.append((max(number, last), incumbent))

    def fields(self, measure: Measure, fresh: ConfirmedConfig | None) -> dict[str, Any]:
        """Return the fields of a status that hold estimates.

        :param fresh: the incumbent's results on fresh runs.
        """
        if self._known[0] != self._rows or not self._known[1]:
            self._known = self._rows, self._computed(measure, fresh)
        return self._known[1]

    def _computed(self, measure: Measure, fresh: ConfirmedConfig | None) -> dict[str, Any]:
        evidence, noise = self.evidence, Noise.of(self.evidence.tally)
        ranked = self._as_ranked(noise)
        best = ranked.get(evidence.incumbent_hash or "")
        baseline = ranked.get(evidence.baseline_hash or "")
        steps = tuple(
            Step(iter=number, objective=ranked[name].objective)
            for number, name in self._reigns
            if name in ranked
        )
        gain = (best.delta_vs_baseline, best.delta_lo, best.delta_hi) if best else (None,) * 3
        return {
            "finding": finding(measure, fresh, *gain) if best else NOTHING_YET,
            "incumbent": incumbent_of(evidence),
            "incumbents": steps,
            "believed_objective": best.objective if best else None,
            "gain": gain[0],
            "gain_lo": gain[1],
            "gain_hi": gain[2],
            "confirmed": fresh,
            "sigma": noise.sigma if noise else None,
            "run_half": noise.half_interval() if noise else None,
            "baseline_objective": baseline.objective if baseline else None,
            "baseline_lo": baseline.objective_lo if baseline else None,
            "baseline_hi": baseline.objective_hi if baseline else None,
            "scale": self._scale(noise, baseline, steps),
        }

    def _scale(
        self, noise: Noise | None, baseline: Ranked | None, steps: tuple[Step, ...]
    ) -> tuple[float, float]:
        half = noise.half_interval() if noise else 0.0
        band = None
        if baseline is not None:
            high = baseline.objective if baseline.objective_hi is None else baseline.objective_hi
            band = baseline.objective, high - baseline.objective
        return score_limits(
            [(mean, half / math.sqrt(n)) for mean, n in self._scores],
            band,
            [step.objective for step in steps],
            noise.sigma if noise else None,
        )

    def _as_ranked(self, noise: Noise | None) -> dict[str, Ranked]:
        """Return the baseline and all incumbents, ranked, by hash."""
        configs, baseline = self.evidence.configs, self.evidence.baseline_hash or ""
        hashes = {baseline, *(name for _, name in self._reigns)}
        entries = [configs[name] for name in hashes if name in configs]
        ranked = rank(
            entries,
            len(entries),
            noise=noise,
            population=population_of(self.evidence, noise),
            baseline=configs.get(baseline),
        )
        return {one.config_hash: one for one in ranked}
