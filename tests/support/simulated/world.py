"""Define a world: a menu, the truth about each of its configs, and the result of a trial.

A world knows one budget, that of its menu. It refuses a spec with another budget, since its runs do
not contain the score of a run of another length.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from math import log
from statistics import fmean

from agent.menu.files import ProxyMenu
from autoresearch.errors import SpecError
from trainer.schema import (
    Config,
    CurvePoint,
    FailureStatus,
    PruneRule,
    TrialFailed,
    TrialOk,
    TrialSpec,
)

Outcome = tuple[TrialOk | TrialFailed, tuple[CurvePoint, ...]]


@dataclass(frozen=True, slots=True)
class Run:
    """Hold one simulated run before its conversion into a result."""

    train_s: float
    score: float | None
    """None if it failed."""
    losses: Sequence[float] = ()
    """Training loss of each step, nats per token; empty if the world has no curves."""
    status: FailureStatus = "nonfinite"
    """Status of a failed run."""


class World(ABC):
    """Define a search space whose true scores are known, and return its trials' results."""

    name: str
    menu: ProxyMenu
    """The product's own menu; a night starts at its baseline."""
    failure_s: float = 1.0
    """Seconds that a failed trial takes if it leaves no curve."""

    @property
    @abstractmethod
    def best(self) -> float:
        """The best known noise-free score of any config of the menu."""

    @abstractmethod
    def truth(self, config: Config) -> float | None:
        """Return the score without noise, or None if the config cannot be trained."""

    @abstractmethod
    def run(self, config: Config, seed: int) -> Run:
        """Return the run of this config with this seed."""

    def outcome(self, spec: TrialSpec) -> Outcome:
        """Return a trial's result: the same at every call for the same config, seed and budget.

        :raises SpecError: if the budget is not the menu's.
        """
        budget = self.menu.campaign.budget
        steps = budget.steps(spec.gpt.tokens_per_step)
        if spec.budget != budget or steps is None:
            raise SpecError(
                f"the world {self.name} knows runs of {budget}, not of {spec.budget}; search there "
                "with its menu's own budget"
            )
        run = self.run(spec.gpt, spec.seed)
        points = _points(spec, run, steps)
        pruned = _pruned(spec.prune, points)
        if pruned is not None:
            return pruned, points[: pruned.steps]
        if run.score is None:
            why = f"simulated: such a config ended as {run.status}"
            return TrialFailed(status=run.status, message=why), points
        return _measured(spec, run, run.score, steps), points


def _points(spec: TrialSpec, run: Run, steps: int) -> tuple[CurvePoint, ...]:
    config, step_s = spec.gpt, run.train_s / steps
    return tuple(
        CurvePoint.model_construct(
            step=step,
            tokens=step * config.tokens_per_step,
            loss=loss,
            lr=config.lr,
            grad_norm=1.0,
            elapsed_s=step * step_s,
        )
        for step, loss in enumerate(run.losses, 1)
    )


def _pruned(rule: PruneRule | None, points: Sequence[CurvePoint]) -> TrialFailed | None:
    """Apply a pruning rule as the trainer does (:func:`trainer.training.train.train`)."""
    if rule is None or len(points) < rule.at_step:
        return None
    mean = fmean(point.loss for point in points[rule.at_step - rule.window : rule.at_step])
    if mean <= rule.max_loss:
        return None
    why = (
        f"the mean training loss of the {rule.window} steps up to {rule.at_step} was {mean:.4g}, "
        f"above the {rule.max_loss:.4g} at which a config is stopped, given its reference"
    )
    return TrialFailed(status="pruned", message=why, steps=rule.at_step)


def _measured(spec: TrialSpec, run: Run, score: float, steps: int) -> TrialOk:
    """Return a result whose score, time and ends of the curve are meaningful."""
    tokens = steps * spec.gpt.tokens_per_step
    losses = run.losses or (score * log(2),) * 2
    train_s = max(run.train_s, 1e-3)
    return TrialOk(
        val_bpb=score,
        val_bits_per_token=score,
        val_bytes=1,
        val_tokens=1,
        train_loss_first=losses[0],
        train_loss_last=losses[-1],
        steps=steps,
        tokens=tokens,
        params=1,
        step_ms=1000 * train_s / steps,
        tokens_per_s=tokens / train_s,
        train_s=train_s,
        eval_s=0,
        setup_s=0,
        peak_mem_gib=0,
        backend=spec.backend,
        device="simulated",
        precision=spec.gpt.precision,
    )
