"""Build the specs and verdicts of long runs, for stress tests, attributions and ladders."""

from dataclasses import dataclass

from agent.search.campaign import Campaign
from agent.search.trials import TrialRunner
from autoresearch.errors import CampaignError
from funnel.stress.detectors import judge_run
from trainer.schema import (
    AnyConfig,
    Budget,
    Measured,
    RunSchedule,
    TrialFailed,
    TrialSpec,
    gpt,
)
from trajectory.rows import StressVerdict, TrialRecord


def verdict_on(trial: TrialRecord, spec: TrialSpec, runner: TrialRunner) -> StressVerdict:
    """Return the verdict on a run, by its curve.

    :param spec: the run's spec; its budget counts steps or tokens.
    """
    return judge_run(
        runner.curve(trial.trial_id),
        trial.result,
        steps=spec.steps or 0,
        warmup=spec.config.warmup_steps,
    )


def whole_schedule(short: TrialSpec, budget: Budget, longer: float) -> TrialSpec:
    """Return the spec of a run whose schedule ends with its budget, its trial_id empty.

    Every step is in the curve, even on a GPU: a spike may last only a few steps, and waiting for
    the device once per step costs little relative to the step.

    :param short: the spec of a short run of this config and seed.
    :param longer: length of this run as a multiple of the short one. The time limit grows by it;
        the memory limit does not.
    """
    wall_s = short.limits.wall_s * max(1.0, longer)
    return short.model_copy(
        update={
            **dict(RunSchedule(budget=budget, horizon_steps=None)),
            "log_every": 1,
            "limits": short.limits.model_copy(update={"wall_s": wall_s}),
        }
    )


@dataclass(frozen=True, slots=True)
class LongRunSpec:
    """Builds the spec of a long run of one campaign from a config and a seed."""

    campaign: Campaign
    steps: int

    def __call__(self, config: AnyConfig, seed: int) -> TrialSpec:
        short = self.campaign.trial_spec(config, seed)
        return whole_schedule(short, self.budget, self.steps_of(config) / self._short_steps(config))

    @property
    def budget(self) -> Budget:
        """Budget of a long run: in tokens if the campaign's budget is, by the baseline's tokens per
        step, else in steps. So long runs are equal in the same quantity as short ones.

        :raises CampaignError: if the campaign's command is not given its number of steps.
        """
        trainer = self.campaign.menu.trainer
        # A script may ignore values in a file or in variables, so the menu must declare that it
        # reads them, by a budget in steps.
        declared = self.campaign.menu.campaign.budget.unit == "steps"
        if trainer is not None and not (
            "steps" in trainer.asked or (trainer.tells("steps") and declared)
        ):
            raise CampaignError(
                f"the command of {self.campaign.directory} does not take a number of steps, so it "
                "cannot train for longer; begin a campaign whose command has {steps}, or "
                "whose menu has its budget in steps where the script reads it from the values"
            )
        if self.campaign.settings.budget.unit == "tokens":
            tokens = self.steps * gpt(self.campaign.menu.baseline).tokens_per_step
            return Budget(unit="tokens", amount=tokens)
        return Budget(unit="steps", amount=self.steps)

    def steps_of(self, config: AnyConfig) -> int:
        """Return the steps of this config's long run."""
        return self.budget.steps(config.tokens_per_step) or self.steps

    def expected_s(self, config: AnyConfig) -> float:
        """Return the expected seconds of a run, by the latest short run's pace."""
        short = self._measured(config)
        steps = self.steps_of(config)
        return short.longer_s(steps, steps / self._short_steps(config))

    def _short_steps(self, config: AnyConfig) -> int:
        counted = self.campaign.settings.budget.steps(config.tokens_per_step)
        # A command that does not count its steps is assumed to do the requested number.
        return counted or self._measured(config).steps or self.steps

    def _measured(self, config: AnyConfig) -> Measured:
        """Return the latest short run of a config.

        :raises CampaignError: if there is none.
        """
        for record in self.campaign.results.measurements(config.config_hash):
            if not isinstance(record.result, TrialFailed):
                return record.result
        raise CampaignError(
            f"no short run of config {config.config_hash[:12]} was measured, though it is ranked; "
            "restore the journal from a copy"
        )
