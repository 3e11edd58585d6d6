"""Plan, run, read and format an attribution: the worth of each of the winner's changes.

Its configs are the winner, the baseline, and for each change the winner without it. A change is a
knob of the menu in which the two differ. A change that cannot be undone alone, because the rest is
no config of the menu, is listed with the reason; its worth is then part of the remainder.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from agent.menu.edits import menu_now
from agent.menu.proxy_menu import ProxyMenu
from agent.search.experiment import Experiment, PlannedRun
from autoresearch.errors import CampaignError, SpecError
from autoresearch.layout import JOURNAL_FILE
from autoresearch.values import Frozen, PositiveInt, Scalar
from autoresearch.words import scalar_text, timestamp
from funnel.attribution.worth import EstimatedWorth, estimate_text, worths
from funnel.stress.long_runs import LongRunSpec
from trainer.schema import BPB, AnyConfig, Budget, Config, Measure
from trajectory.reading import Results
from trajectory.rows import AttributionRow, TrialRecord


@dataclass(frozen=True, slots=True)
class TakenBack:
    """The winner with one knob at the baseline's value."""

    knob: str
    baseline: Scalar
    """The knob's value in the baseline, and in this config."""
    winner: Scalar
    config: AnyConfig | None
    """None if the change cannot be undone alone."""
    why_not: str = ""


@dataclass(frozen=True, slots=True)
class AttributionPlan:
    """An attribution's configs, seeds and length."""

    winner: AnyConfig
    baseline: AnyConfig
    changes: tuple[TakenBack, ...]
    """Changes in the menu's order; at least one."""
    steps: int
    """Steps of a run, and of its whole schedule."""
    seeds: tuple[int, ...]

    @classmethod
    def of(
        cls,
        menu: ProxyMenu,
        winner: AnyConfig,
        *,
        budget: Budget,
        steps: int,
        seeds: Sequence[int],
    ) -> AttributionPlan:
        """
        :param budget: the campaign's budget, which some constraints of the menu use.
        :raises CampaignError: if the winner is the baseline.
        """
        changes: list[TakenBack] = []
        theirs, own = menu.knob_values(menu.baseline), menu.knob_values(winner)
        for knob, value in own.items():
            if value == theirs[knob]:
                continue
            config, why_not = None, ""
            try:
                config = menu.apply(winner, {knob: theirs[knob]})
                why_not = menu.why_broken(config, budget) or ""
            except SpecError as error:
                why_not = str(error)
            taken_back = None if why_not else config
            changes.append(TakenBack(knob, theirs[knob], value, taken_back, why_not))
        if not changes:
            raise CampaignError(
                "the best config is the baseline itself, so there is no change whose worth could "
                "be measured; run autoresearch loop first"
            )
        return cls(winner, menu.baseline, tuple(changes), steps, tuple(seeds))

    @property
    def configs(self) -> dict[AnyConfig, str | None]:
        """Every config to run, and the knob that it undoes; None for the winner and the
        baseline."""
        without = {change.config: change.knob for change in self.changes if change.config}
        both: dict[AnyConfig, str | None] = {self.winner: None, self.baseline: None}
        return both | without | both


class ChangeWorth(Frozen):
    """One change of the winner's, and the cost of undoing it alone."""

    knob: str
    baseline: Scalar
    winner: Scalar
    worth: EstimatedWorth | None
    """Worth in bits per byte, above zero if the change helps beside all others. None if not
    measured."""
    why_not: str = ""
    """The reason that the change was not measured."""


class AttributionResult(Frozen):
    """The worth of each of the winner's changes."""

    winner_hash: str
    steps: PositiveInt
    """Steps of a run."""
    seeds: tuple[int, ...]
    gain: EstimatedWorth | None
    changes: tuple[ChangeWorth, ...]
    """Changes in the menu's order."""
    remainder: EstimatedWorth | None
    """The gain that no change has alone."""

    @classmethod
    def of(cls, plan: AttributionPlan, rows: Sequence[AttributionRow]) -> AttributionResult:
        """Return the worth of a plan's changes, from its rows.

        :param rows: the newest first. Of a seed run twice, the newest score counts.
        """
        measured: dict[tuple[str, int], float] = {}
        for row in rows:
            if row.steps == plan.steps and row.trial.objective is not None:
                measured.setdefault((row.config_hash, row.trial.seed), row.trial.objective)
        scores = {
            name: {
                seed: measured[name, seed] for seed in plan.seeds[::-1] if (name, seed) in measured
            }
            for name in (config.config_hash for config in plan.configs)
        }
        found = worths(
            scores,
            plan.winner.config_hash,
            plan.baseline.config_hash,
            [change.config.config_hash if change.config else None for change in plan.changes],
        )
        return cls(
            winner_hash=plan.winner.config_hash,
            steps=plan.steps,
            seeds=plan.seeds,
            gain=found.gain,
            changes=tuple(
                ChangeWorth(
                    knob=change.knob,
                    baseline=change.baseline,
                    winner=change.winner,
                    worth=worth,
                    why_not="" if worth else change.why_not or _failures(rows, change),
                )
                for change, worth in zip(plan.changes, found.changes, strict=True)
            ),
            remainder=found.remainder,
        )

    @property
    def harmful(self) -> tuple[str, ...]:
        """Knobs whose change makes the winner worse: the whole interval is below zero."""
        return tuple(c.knob for c in self.changes if c.worth is not None and c.worth.harms)


def _failures(rows: Sequence[AttributionRow], change: TakenBack) -> str:
    """Return how the runs without this change ended, if they have no score."""
    ended = [
        row.trial.result.status
        for row in rows
        if row.config == change.config and row.trial.objective is None
    ]
    if not ended:
        return "no run of it has ended yet"
    return f"without it {len(ended)} of its runs ended with no score ({', '.join(ended)})"


def read_attribution(directory: Path, winner: Config) -> AttributionResult | None:
    """Return the result of the latest attribution of this winner's changes; None if there is none.

    :raises JournalError: if the journal is damaged.
    """
    results = Results(directory / JOURNAL_FILE)
    first, rows = results.campaign, results.newest(AttributionRow)
    latest = next((row for row in rows if row.winner_hash == winner.config_hash), None)
    if first is None or latest is None:
        return None
    seeds = {row.trial.seed for row in rows if row.steps == latest.steps}
    try:
        plan = AttributionPlan.of(
            menu_now(first, results),
            winner,
            budget=first.budget,
            steps=latest.steps,
            seeds=sorted(seeds, reverse=True),
        )
    except CampaignError:
        return None
    return AttributionResult.of(plan, rows)


def lines(result: AttributionResult, measure: Measure = BPB) -> Iterator[str]:
    """Yield the table, and how to read it."""
    yield f"gain      {estimate_text(result.gain)} against the baseline"
    width = max(len(_change_text(change)) for change in result.changes)
    for change in result.changes:
        said = worth_words(change)
        yield f"          {_change_text(change):<{width}}  {said}"
    yield f"remainder {estimate_text(result.remainder)}: interactions, and what was not measured"
    yield (
        f"          {measure.unit} after {result.steps} steps, 95 % intervals over "
        f"{len(result.seeds)} seeds that chose nothing; above zero helps"
    )


def worth_words(change: ChangeWorth) -> str:
    """Return an estimate and its verdict."""
    if change.worth is None:
        return f"not measured: {change.why_not}"
    if change.worth.is_exact:
        return "0: it trains alike to the last bit"
    verdict = (
        "helps" if change.worth.helps else "harms" if change.worth.harms else "not told from zero"
    )
    return f"{estimate_text(change.worth)}: {verdict}"


def _change_text(change: ChangeWorth) -> str:
    return f"{change.knob} {scalar_text(change.baseline)} → {scalar_text(change.winner)}"


@dataclass(kw_only=True)
class Attribution(Experiment[str | None, AttributionRow, AttributionResult]):
    """An attribution. A run's tag is the knob that it undoes."""

    role = "attribution"
    row_type = AttributionRow

    plan: AttributionPlan

    def runs(self) -> Iterator[PlannedRun[str | None]]:
        """Yield all configs on one seed before the next seed. If stopped early, the attribution has
        compared all of them, on fewer seeds."""
        long_run = LongRunSpec(self.campaign, self.plan.steps)
        for seed in self.plan.seeds:
            # The winner without a change was never measured, so no time limit could be derived from
            # it.
            of_winner = long_run(self.plan.winner, seed)
            for config, knob in self.plan.configs.items():
                label = f"without {knob}" if knob else "the baseline"
                if config == self.plan.winner:
                    label = "the winner"
                spec = of_winner.model_copy(update={"config": config})
                yield PlannedRun(spec, label, knob, self.plan.steps)

    def variant_of(self, row: AttributionRow) -> int:
        return row.steps

    def expected_s(self, run: PlannedRun[str | None]) -> float:
        return LongRunSpec(self.campaign, self.plan.steps).expected_s(self.plan.winner)

    def row(
        self, run: PlannedRun[str | None], trial: TrialRecord, energy_wh: float | None
    ) -> AttributionRow:
        return AttributionRow(
            at=timestamp(),
            winner_hash=self.plan.winner.config_hash,
            without=run.tag,
            steps=self.plan.steps,
            config=run.spec.config,
            config_hash=trial.config_hash,
            trial=trial,
            energy_wh=energy_wh,
        )

    def conclude(self) -> AttributionResult:
        return AttributionResult.of(self.plan, list(self.rows.values()))

    def announcement(self) -> Iterator[str]:
        plan = self.plan
        alone = sum(change.config is not None for change in plan.changes)
        yield (
            f"attribute {LongRunSpec(self.campaign, plan.steps).budget} a run; the winner, the "
            f"baseline and {alone} changes of {len(plan.changes)} taken back alone; seeds "
            f"{', '.join(map(str, plan.seeds))}"
        )
        yield self.progress("the winner's short runs")
