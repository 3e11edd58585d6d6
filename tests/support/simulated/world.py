"""What a world is: a menu, the truth about every config of it, and what a trial would show of that.

A world knows one budget, that of its menu: what a run of another length would have scored is not in
the runs it was made of, so such a spec is refused.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from math import log
from statistics import fmean
from typing import Protocol

from agent.menu.files import ProxyMenu
from autoresearch.errors import SpecError
from trainer.spec import (
    Config,
    CurvePoint,
    FailureStatus,
    PruneRule,
    TrialFailed,
    TrialOk,
    TrialSpec,
)

Outcome = tuple[TrialOk | TrialFailed, tuple[CurvePoint, ...]]


class World(Protocol):
    """Somewhere to search, where the truth is known."""

    @property
    def name(self) -> str: ...
    @property
    def menu(self) -> ProxyMenu:
        """The product's own; its baseline is where a night starts."""
        ...

    @property
    def best(self) -> float:
        """The best noise-free score that is known of any config of the menu."""
        ...

    @property
    def failure_s(self) -> float:
        """Seconds that a failed trial takes, where it leaves no curve to tell."""
        ...

    def truth(self, config: Config) -> float | None:
        """The score without noise; None where the config cannot be trained."""
        ...

    def outcome(self, spec: TrialSpec) -> Outcome:
        """What a trial would leave: the same at every call for the same config, seed and budget.

        :raises SpecError: where the budget is not the menu's.
        """
        ...


@dataclass(frozen=True, slots=True)
class Run:
    """One simulated run, before anybody looked at it."""

    train_s: float
    score: float | None
    """None where it failed."""
    losses: Sequence[float] = ()
    """Training loss of each step, nats per token; empty where the world has no curves."""
    status: FailureStatus = "nonfinite"
    """Of one that failed."""


class SimulatedWorld(ABC):
    """What all worlds have in common: from a run to the results and curves of the product."""

    name: str
    menu: ProxyMenu
    failure_s: float = 1.0

    @property
    @abstractmethod
    def best(self) -> float:
        """See :class:`World`."""

    @abstractmethod
    def truth(self, config: Config) -> float | None:
        """See :class:`World`."""

    @abstractmethod
    def run(self, config: Config, seed: int) -> Run:
        """What this config would come to with this seed."""

    def outcome(self, spec: TrialSpec) -> Outcome:
        """See :class:`World`."""
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
    """What the trainer does of a rule (:func:`trainer.training.train.train`)."""
    if rule is None or len(points) < rule.at_step:
        return None
    mean = fmean(point.loss for point in points[rule.at_step - rule.window : rule.at_step])
    if mean <= rule.max_loss:
        return None
    why = (
        f"the mean training loss of the {rule.window} steps up to {rule.at_step} was {mean:.4g}, "
        f"above the {rule.max_loss:.4g} at which a config is hopeless against its reference"
    )
    return TrialFailed(status="pruned", message=why, steps=rule.at_step)


def _measured(spec: TrialSpec, run: Run, score: float, steps: int) -> TrialOk:
    """A result of which the score, the time and the ends of the curve mean something."""
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
