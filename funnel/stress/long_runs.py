"""Long runs: the specs and verdicts that stress tests, attributions and ladders share."""

from __future__ import annotations

from dataclasses import dataclass

from agent.menu.trainer_table import TrainerTable
from agent.search.campaign import Campaign
from agent.search.trials import TrialRunner
from autoresearch.errors import CampaignError
from funnel.stress.verdicts import judge_run
from trainer.spec import (
    AnyConfig,
    Budget,
    CommandOk,
    Config,
    Measured,
    TrialFailed,
    TrialSpec,
    gpt,
)
from trajectory.rows import StressVerdict, TrialRecord


def verdict_on(trial: TrialRecord, spec: TrialSpec, runner: TrialRunner) -> StressVerdict:
    """Return what a run's curve says of its config.

    :param spec: of the run; its budget counts steps or tokens.
    """
    return judge_run(
        runner.curve(trial.trial_id),
        trial.result,
        steps=spec.steps or 0,
        warmup=spec.config.lr_warmup if isinstance(spec.config, Config) else 0,
    )


def whole_schedule(short: TrialSpec, budget: Budget, longer: float) -> TrialSpec:
    """Return the spec of a run whose schedule ends with its budget, its trial_id empty.

    Every step is in the curve, also on a GPU: a spike may last a few steps, and waiting for the
    device once a step costs little beside steps long enough to be stressed.

    :param short: the spec of a short run of this config and seed.
    :param longer: how many times longer this one takes; the time limit grows by it, memory by
        nothing.
    """
    wall_s = short.limits.wall_s * max(1.0, longer)
    return short.model_copy(
        update={
            "budget": budget,
            "horizon_steps": None,
            "cooldown_steps": 0,
            "average": None,
            "log_every": 1,
            "limits": short.limits.model_copy(update={"wall_s": wall_s}),
        }
    )


@dataclass(frozen=True, slots=True)
class LongRunSpec:
    """Turns (config, seed) into the spec of a long run of one campaign."""

    campaign: Campaign
    steps: int

    def __call__(self, config: AnyConfig, seed: int) -> TrialSpec:
        short = self.campaign.trial_spec(config, seed)
        return whole_schedule(short, self.budget, self.steps_of(config) / self._short_steps(config))

    @property
    def budget(self) -> Budget:
        """In steps, or where the campaign's budget counts tokens in those of the baseline's steps,
        so that long runs are equal in what short ones were."""
        trainer = self.campaign.menu.trainer
        if trainer is not None and not self._reads_steps(trainer):
            raise CampaignError(
                f"the command of {self.campaign.directory} is not told how many steps to train, so "
                "no longer run can be asked of it; begin a campaign whose command has {steps}, or "
                "whose menu has its budget in steps where the script reads it from the values"
            )
        if self.campaign.settings.budget.unit == "tokens":
            tokens = self.steps * gpt(self.campaign.menu.baseline).tokens_per_step
            return Budget(unit="tokens", amount=tokens)
        return Budget(unit="steps", amount=self.steps)

    def _reads_steps(self, trainer: TrainerTable) -> bool:
        """Whether a command does what its budget of steps says. Of values in a file or in variables
        nobody sees what is read: there the menu has to say it, by a budget of its own."""
        if "steps" in trainer.asked:
            return True
        return trainer.tells("steps") and self.campaign.menu.campaign.budget.unit == "steps"

    def steps_of(self, config: AnyConfig) -> int:
        """Steps that this config takes."""
        return self.budget.steps(config.tokens_per_step) or self.steps

    def expected_s(self, config: AnyConfig) -> float:
        """How long a run should take, by the latest short run's pace."""
        short = self._measured(config)
        if isinstance(short, CommandOk):
            times = self.steps_of(config) / self._short_steps(config)
            return short.setup_s + short.train_s * times
        return short.setup_s + self.steps_of(config) * short.step_ms / 1000 + short.eval_s

    def _short_steps(self, config: AnyConfig) -> int:
        counted = self.campaign.settings.budget.steps(config.tokens_per_step)
        # A command that does not count its steps is taken to do as many as are asked for.
        return counted or self._measured(config).steps or self.steps

    def _measured(self, config: AnyConfig) -> Measured:
        """A short run of it, the latest."""
        for record in self.campaign.history.measurements(config.config_hash):
            if not isinstance(record.result, TrialFailed):
                return record.result
        raise CampaignError(
            f"no short run of config {config.config_hash[:12]} was measured, though it is ranked; "
            "run autoresearch reindex"
        )
