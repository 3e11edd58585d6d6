"""Run a calibration: measure how well short runs rank configs as long runs do, config by config."""

import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from statistics import fmean

from agent.search.calibration_plan import LONG, CalibrationPlan, Planned
from agent.search.experiment import Experiment, PlannedRun
from autoresearch.errors import CampaignError
from autoresearch.words import counted, duration_text, timestamp
from trainer.schema import AnyConfig, CommandOk, TrialFailed, TrialOk
from trajectory.calibrated import Calibrated, CalibrationRun
from trajectory.rows import CalibratedRow, CalibrationRow, TrialRecord
from trajectory.statistics.fidelity import FEWEST, best_of, compared, correlation_of


@dataclass(frozen=True, slots=True)
class ConfigRuns:
    """The runs of one config: all of them, or those up to the first that gives no information."""

    results: Mapping[Planned, TrialOk | TrialFailed]
    averages: Collection[str]
    """Names of the weight averages that the first run is scored with besides."""
    complete: bool
    """Whether every run gave information."""

    @property
    def own_score(self) -> float:
        """Score by the campaign's own proxy metric."""
        return _score(next(iter(self.results.values())))

    def scores(self) -> dict[str, float]:
        """Return the config's score by each proxy metric, the campaign's own first."""
        found = {one.metric: _score(result) for one, result in self.results.items()}
        del found[LONG]
        own = next(iter(self.results.values()))
        return found | {name: _score(own, at) for at, name in enumerate(self.averages)}

    def long_scores(self) -> list[float]:
        """Return the scores of the long runs, one per seed; infinite if one was not finite."""
        return [_score(result) for one, result in self.results.items() if one.metric == LONG]


def _score(result: TrialOk | TrialFailed, checkpoint: int | None = None) -> float:
    """Return the score at a run's end, or at one of its checkpoints."""
    if isinstance(result, TrialFailed):
        return math.inf
    return result.val_bpb if checkpoint is None else result.checkpoints_bpb[checkpoint]


@dataclass(kw_only=True)
class Calibration(Experiment[Planned, CalibrationRow, Calibrated]):
    """A calibration. A run's tag is its plan entry."""

    role = "calibration"
    row_type = CalibrationRow

    plan: CalibrationPlan
    configs: list[AnyConfig] = field(init=False, default_factory=list)
    """Configs that are known so far, in order."""

    def runs(self) -> Iterator[PlannedRun[Planned] | None]:
        """Yield all runs of a config before the next config.

        The choice of the next config depends on the own runs of the earlier ones. So on several
        lanes the next config begins while the earlier ones' long runs are still at work.
        """
        self.configs = []
        while len(self.configs) < self.plan.configs:
            known = [(config, self._runs_of(config).own_score) for config in self.configs]
            config = self.plan.following(known)
            self.configs.append(config)
            own, *others = (
                PlannedRun(
                    self.plan.spec(config, one),
                    f"config {len(self.configs)}, {one.metric}",
                    one,
                    one.run,
                )
                for one in self.plan.runs(config)
            )
            yield from (own, *others)
            while own in self.in_flight:
                yield None
            if self.known(own) is None:
                return  # the plan is only inspected

    def is_wanted(self, run: PlannedRun[Planned]) -> bool:
        """Return whether every run of its config so far gave information. Otherwise the config is
        left out, and its other runs with it."""
        return self._runs_of(run.spec.config).complete

    def variant_of(self, row: CalibrationRow) -> CalibrationRun:
        return row.run

    def total(self) -> int:
        each = len(list(self.plan.runs(self.campaign.menu.baseline)))
        return max(0, self.plan.configs * each - len(self.rows))

    def row(
        self, run: PlannedRun[Planned], trial: TrialRecord, energy_wh: float | None
    ) -> CalibrationRow:
        return CalibrationRow(
            at=timestamp(),
            run=run.tag.run,
            config=run.spec.config,
            config_hash=trial.config_hash,
            trial=trial,
            energy_wh=energy_wh,
        )

    def conclude(self) -> Calibrated:
        """See :meth:`Experiment.conclude`.

        :raises CampaignError: if too few configs could be trained for a conclusion.
        """
        runs = [self._runs_of(config) for config in self.configs]
        known = [one for one in runs if one.complete]
        by_seed = [one.long_scores() for one in known]
        long = [fmean(scores) for scores in by_seed]
        if len({score for score in long if math.isfinite(score)}) < FEWEST:
            raise CampaignError(
                f"{len(known)} of {len(runs)} configs have long scores of their own, and it takes "
                f"{FEWEST} that differ to say anything; ask for more with --configs"
            )
        scores = [one.scores() for one in known]
        # How well one long run agrees with the mean of the others.
        long_runs = None
        if self.plan.long_seeds >= 2:
            firsts = [one[0] for one in by_seed]
            long_runs = correlation_of(firsts, [fmean(one[1:]) for one in by_seed])
        found = Calibrated(
            budget=self.campaign.settings.budget,
            long_steps=self.plan.long_steps,
            long_seeds=self.plan.long_seeds,
            n=len(known),
            nonfinite=sum(map(math.isinf, long)),
            left_out=len(runs) - len(known),
            best_n=len(best_of(long)),
            proxy_metrics=compared(
                {name: [one[name] for one in scores] for name in scores[0]}, long
            ),
            long_runs=long_runs,
        )
        return self.record_found(CalibratedRow(at=timestamp(), found=found)).found

    def announcement(self) -> Iterator[str]:
        plan, done = self.plan, list(self.rows.values())
        runs = list(plan.runs(self.campaign.menu.baseline))
        steps = sum(one.run.steps for one in runs)
        yield (
            f"calibrate {counted(plan.configs, 'config')} over the menu, {len(runs)} runs of "
            f"{steps:,} steps in all each; {plan.long_steps:,} are a long run's"
        )
        pace = [one.run.steps / one.trial.wall_s for one in done if one.trial.wall_s]
        if pace:
            left = max(0, plan.configs - len(done) / len(runs)) * steps / fmean(pace)
            left_s = left / self.runner.places
            by_pace = f"; by their pace about {duration_text(left_s)} are left" if left else ""
            yield f"          {counted(len(done), 'run')} of such in the journal{by_pace}"

    def _runs_of(self, config: AnyConfig) -> ConfigRuns:
        """Return the results of a config, up to the first run that gives no information."""
        results: dict[Planned, TrialOk | TrialFailed] = {}
        complete = True
        for one in self.plan.runs(config):
            row = self.rows.get((config.config_hash, one.seed, one.run))
            if row is None or (config.config_hash, one.seed, one.run) in self.again:
                continue
            assert not isinstance(row.trial.result, CommandOk)
            results[one] = row.trial.result
            if self.has_failed(row):
                complete = False
                break
        return ConfigRuns(results, self.plan.averages(config), complete)
