"""Format the result of a stress test as lines and JSON."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from rich.text import Text

from autoresearch.words import changes_text
from funnel.stress.experiment import StressConfig, StressTest
from funnel.stress.fidelity_words import fidelity_json, fidelity_lines
from trainer.schema import Measure, difference
from trajectory import ranking
from trajectory.longruns import (
    OUTCOME_STYLE,
    LongNoise,
    LongRuns,
    RankingTest,
    ranking_test,
    standing,
)
from trajectory.rows import Finalist, FinalistsRow


@dataclass(frozen=True, slots=True)
class _Line:
    """One config and all its long runs."""

    config: StressConfig
    runs: LongRuns
    standing: Finalist | None


@dataclass(frozen=True, slots=True)
class StressReport:
    """A completed stress test."""

    work: StressTest
    finalists: FinalistsRow
    table: tuple[_Line, ...]
    """The configs in the plan's order."""
    noise: LongNoise
    ranking: RankingTest | None

    @classmethod
    def of(cls, work: StressTest, finalists: FinalistsRow) -> StressReport:
        """Combine what the journal holds of the plan."""
        results = work.results()
        noise = LongNoise.of(results.values())
        evidence = work.campaign.evidence
        baseline = results.get(evidence.baseline_hash or "")
        table = tuple(
            _Line(
                config,
                results[config.config_hash],
                standing(results[config.config_hash], noise, baseline),
            )
            for config in work.plan.configs
        )
        ranked = ranking.top(evidence, len(evidence.configs))
        ended = [finalists, *work.campaign.results.newest(FinalistsRow)]
        return cls(
            work, finalists, table, noise, ranking_test(ranked, list(work.rows.values()), ended)
        )

    @property
    def _measure(self) -> Measure:
        return self.work.campaign.menu.measure

    def lines(self) -> Iterator[Text]:
        """Yield the lines for a terminal."""
        yield Text(
            f"{'rank':>4}  {'for':<9} {'verdict':<22} {'n':>2} {self._measure.name:>8}   "
            f"{'against the baseline':<22}",
            style="bold",
        )
        measure, baseline = self._measure, self.work.campaign.menu.baseline
        for line in self.table:
            verdict, found = line.runs.verdict, line.standing
            at = "" if verdict.step is None else f" at step {verdict.step}"
            versus = ""
            if found and found.delta_vs_baseline is not None:
                versus = measure.signed(found.delta_vs_baseline)
                if found.delta_stderr is not None:
                    versus += f" (se {measure.size(found.delta_stderr)})"
            yield Text.assemble(
                f"{line.config.rank:>4}  {line.config.purpose:<9} ",
                (f"{verdict.outcome + at:<22}", OUTCOME_STYLE[verdict.outcome]),
                f" {len(line.runs.scores):>2} "
                f"{measure.text(found.objective) if found else '':>8}   "
                f"{versus:<22}",
            )
            changes = changes_text(difference(line.config.config, baseline))
            yield Text(f"      {changes or 'the baseline itself'}", style="cyan")
        plan, noise = self.work.plan, self.noise
        legend = (
            f"{measure.name} after {plan.steps} steps, {measure.better}, on seeds that no short "
            "run used, se: standard error; the verdict is the worst of n runs"
        )
        if plan.narrows:
            legend += f"; seed {plan.seeds[0]} chose who got the others, and flatters them a little"
        if noise.sigma_run is None:
            legend += "; one seed each, so how noisy a run is remains unknown (--seeds 2)"
        else:
            sd = f"{measure.size(noise.sigma_run)} ({noise.dof} degrees of freedom)"
            legend += f"; one run has sd {sd}"
        yield Text(legend, style="dim")
        configs = {line.config.config_hash: line.config for line in self.table}
        best = []
        for finalist in self.finalists.finalists:
            config = configs[finalist.config_hash]
            name = f"rank {config.rank}{', the baseline' if config.config == baseline else ''}"
            error = "" if finalist.stderr is None else f" (se {measure.size(finalist.stderr)})"
            best.append(f"{name} ({measure.text(finalist.objective)}{error} {measure.short})")
        yield Text(f"finalists {', '.join(best) or 'none: no config stood its long runs'}")
        if self.ranking is not None:
            yield from map(Text, fidelity_lines(self.ranking))

    def as_json(self) -> dict[str, Any]:
        """Return the JSON fields."""
        return {
            "campaign": str(self.work.campaign.directory),
            "steps": self.work.plan.steps,
            "seeds": list(self.work.plan.seeds),
            "sigma_run_bpb": self.noise.sigma_run,
            "sigma_run_dof": self.noise.dof,
            "configs": [
                {
                    "config_hash": line.config.config_hash,
                    "rank": line.config.rank,
                    "purpose": line.config.purpose,
                    "in_spread": line.config.in_spread,
                    "config": line.config.config.canonical(),
                    "verdict": line.runs.verdict.model_dump(mode="json"),
                    "standing": line.standing.model_dump(mode="json") if line.standing else None,
                    "runs": [
                        {
                            "seed": row.trial.seed,
                            "trial_id": row.trial.trial_id,
                            "status": row.trial.result.status,
                            "objective": row.trial.objective,
                            "verdict": row.verdict.model_dump(mode="json"),
                        }
                        for row in line.runs.rows
                    ],
                }
                for line in self.table
            ],
            "finalists": [entry.model_dump(mode="json") for entry in self.finalists.finalists],
            "ranking": fidelity_json(self.ranking),
        }
