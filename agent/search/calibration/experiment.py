"""Run a calibration: measure how well short runs rank configs as long runs do, config by config."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from statistics import fmean

from agent.search.calibration.metrics import ConfigRuns, conclude, is_uninformative
from agent.search.calibration.plan import CalibrationPlan, Planned
from agent.search.experiment import Experiment, PlannedRun
from autoresearch.errors import CampaignError
from autoresearch.words import counted, duration_text, timestamp
from trainer.spec import AnyConfig, CommandOk, TrialFailed, TrialOk
from trajectory.calibrated import Calibrated, CalibrationRun
from trajectory.calibration import FEWEST
from trajectory.rows import CalibratedRow, CalibrationRow, TrialRecord


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
                    f"config {len(self.configs)}, {one.metric or one.kind}",
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
        known = [self._runs_of(config) for config in self.configs]
        found = conclude(self.plan, known)
        if found is None:
            measured = sum(one.complete for one in known)
            raise CampaignError(
                f"{measured} of {len(known)} configs have long scores of their own, and it takes "
                f"{FEWEST} that differ to say anything; ask for more with --configs"
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
        for one in self.plan.runs(config):
            key = (config.config_hash, one.seed, one.run)
            if key in self.rows and key not in self.again:
                result = self.rows[key].trial.result
                assert not isinstance(result, CommandOk)
                results[one] = result
                if is_uninformative(result):
                    break
        return ConfigRuns(self.plan, config, results)
