"""Run a stress test: train the best configs of a search for a full schedule."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from agent.search.experiment import Experiment, PlannedRun
from autoresearch.errors import CampaignError
from autoresearch.words import changes_text, timestamp
from funnel.stress.long_runs import LongRunSpec, verdict_on
from trainer.schema import AnyConfig, difference
from trajectory.longruns import LongRuns, finalists, gather
from trajectory.ranking import Ranked
from trajectory.rows import FinalistsRow, StressPurpose, StressRow, TrialRecord


@dataclass(frozen=True, slots=True)
class StressConfig:
    """A config that gets long runs."""

    config: AnyConfig
    config_hash: str
    rank: int
    """Rank among the short runs, 1 the best."""
    purpose: StressPurpose
    in_spread: bool


@dataclass(frozen=True, slots=True)
class StressPlan:
    """A stress test: its runs and their order."""

    steps: int
    seeds: tuple[int, ...]
    configs: tuple[StressConfig, ...]
    """Candidates, the baseline and the rest of the spread; each group by rank."""
    carried: int
    """Number of candidates that get more than the first seed, and largest number of finalists."""

    @classmethod
    def of(
        cls,
        ranked: Sequence[Ranked],
        *,
        top: int,
        spread: int,
        baseline_hash: str | None,
        steps: int,
        seeds: Sequence[int],
        first: int | None = None,
    ) -> StressPlan:
        """
        :param ranked: every measured config, the best first.
        :param first: number of best configs that get the first seed, if more than ``top``.
        :param spread: number of configs that span the ranking; 0 for none.
        :param baseline_hash: the config to compare with; None to leave it out.
        :raises CampaignError: if nothing was measured.
        """
        if not ranked:
            raise CampaignError(
                "nothing was measured in this campaign yet, so there is nothing to stress; "
                "run autoresearch loop first"
            )
        # Ranks spread evenly over the ranking, both ends included.
        count = min(spread, len(ranked))
        spread_ranks = {1 + round(i * (len(ranked) - 1) / max(count - 1, 1)) for i in range(count)}
        configs: list[StressConfig] = []
        for rank, entry in enumerate(ranked, start=1):
            purpose: StressPurpose
            if rank <= max(top, first or 0):
                purpose = "candidate"
            elif entry.config_hash == baseline_hash:
                purpose = "baseline"
            elif rank in spread_ranks:
                purpose = "spread"
            else:
                continue
            configs.append(
                StressConfig(entry.config, entry.config_hash, rank, purpose, rank in spread_ranks)
            )
        order: list[StressPurpose] = ["candidate", "baseline", "spread"]
        configs.sort(key=lambda config: (order.index(config.purpose), config.rank))
        candidates = sum(config.purpose == "candidate" for config in configs)
        return cls(steps, tuple(seeds), tuple(configs), carried=min(top, candidates))

    @property
    def candidates(self) -> tuple[str, ...]:
        """Hashes of the candidates, by rank."""
        return tuple(e.config_hash for e in self.configs if e.purpose == "candidate")

    @property
    def narrows(self) -> bool:
        """Whether the first seed decides which configs get the others."""
        return len(self.seeds) > 1 and len(self.candidates) > self.carried

    @property
    def spread(self) -> tuple[str, ...]:
        """Hashes of the configs that span the ranking, by rank."""
        members = sorted((e for e in self.configs if e.in_spread), key=lambda e: e.rank)
        return tuple(config.config_hash for config in members)


@dataclass(kw_only=True)
class StressTest(Experiment[StressConfig, StressRow, FinalistsRow]):
    """A stress test. A run's tag is its config's plan entry."""

    role = "stress"
    row_type = StressRow

    plan: StressPlan

    @cached_property
    def long_run(self) -> LongRunSpec:
        """Builds the specs of the runs."""
        return LongRunSpec(self.campaign, self.plan.steps)

    def runs(self) -> Iterator[PlannedRun[StressConfig] | None]:
        """Yield all configs on one seed before the next seed. If stopped early, the test has
        compared all of them, on fewer seeds. If the first seed decides which configs get the
        others, those wait for it."""
        first, *others = self.plan.seeds
        yield from (self._planned(one, first) for one in self.plan.configs)
        while self.plan.narrows and self.in_flight:
            yield None
        going_on = self._going_on()
        for seed in others:
            for one in self.plan.configs:
                if one.config_hash in going_on:
                    yield self._planned(one, seed)

    def _planned(self, one: StressConfig, seed: int) -> PlannedRun[StressConfig]:
        changes = changes_text(difference(one.config, self.campaign.menu.baseline))
        label = f"{one.purpose}, rank {one.rank}, {changes or 'the baseline itself'}"
        return PlannedRun(self.long_run(one.config, seed), label, one, self.plan.steps)

    def variant_of(self, row: StressRow) -> int:
        return row.steps

    def has_failed(self, row: StressRow) -> bool:
        return row.verdict.outcome == "failed"

    def expected_s(self, run: PlannedRun[StressConfig]) -> float:
        return self.long_run.expected_s(run.tag.config)

    def row(
        self, run: PlannedRun[StressConfig], trial: TrialRecord, energy_wh: float | None
    ) -> StressRow:
        return StressRow(
            at=timestamp(),
            purpose=run.tag.purpose,
            rank=run.tag.rank,
            steps=self.plan.steps,
            config=run.tag.config,
            config_hash=run.tag.config_hash,
            trial=trial,
            verdict=verdict_on(trial, run.spec, self.runner),
            energy_wh=energy_wh,
        )

    def results(self) -> dict[str, LongRuns]:
        """Return all long runs of the plan's length so far, by config_hash."""
        return gather(list(self.rows.values()), self.plan.steps)

    def conclude(self) -> FinalistsRow:
        best = finalists(
            self.results(),
            sorted(self._going_on()),
            self.plan.carried,
            self.campaign.evidence.baseline_hash,
        )
        return self.record_found(
            FinalistsRow(
                at=timestamp(), steps=self.plan.steps, finalists=best, spread=self.plan.spread
            )
        )

    def announcement(self) -> Iterator[str]:
        plan = self.plan
        counts = Counter(one.purpose for one in plan.configs)
        kinds: dict[StressPurpose, str] = {
            "candidate": "of the best",
            "baseline": "the baseline",
            "spread": "more at even ranks",
        }
        configs = ", ".join(f"{counts[kind]} {of}" for kind, of in kinds.items() if counts[kind])
        seeds = ", ".join(map(str, plan.seeds))
        yield f"stress    {self.long_run.budget} a run; configs: {configs}; seeds {seeds}"
        yield self.progress("the short runs")
        if plan.narrows:
            yield (
                f"          the other seeds are for the best {plan.carried} of these "
                f"{len(plan.candidates)} on seed {plan.seeds[0]}{self._others()}"
            )

    def _others(self) -> str:
        """Return a clause on the configs that may be finalists besides the candidates."""
        others = {one.purpose for one in self.plan.configs} - {"candidate"}
        names = {"baseline": "the baseline", "spread": "the configs at even ranks"}
        named = [name for purpose, name in names.items() if purpose in others]
        return f", and for {' and '.join(named)}, which may be finalists, too" if named else ""

    def _going_on(self) -> set[str]:
        """Return the configs that get more than the first seed.

        Of the candidates they are the best on it. While a candidate has no run on it, they are the
        first by rank.
        """
        plan, results = self.plan, self.results()
        everybody = {one.config_hash for one in plan.configs}
        if not plan.narrows:
            return everybody
        first = {name: runs.on(plan.seeds[0]) for name, runs in results.items()}
        if all(first.get(name) for name in plan.candidates):
            known = {name: runs for name, runs in first.items() if runs is not None}
            best = finalists(known, plan.candidates, plan.carried, None)
            leaders = {entry.config_hash for entry in best}
        else:
            leaders = set(plan.candidates[: plan.carried])
        if self.campaign.evidence.baseline_hash in everybody:
            leaders.add(self.campaign.evidence.baseline_hash)
        return everybody - set(plan.candidates) | leaders
