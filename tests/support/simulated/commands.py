"""Run the commands that start trials in this process, with trials that a world simulates."""

import math
import subprocess
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any
from unittest import mock

from agent.session import lane_opening
from autoresearch.screen import Screen
from tests.support.campaigns import Toy
from tests.support.in_process import run_here
from tests.support.own_trainers import Own
from tests.support.simulated.executor import SimulatedExecutor
from tests.support.simulated.world import Outcome
from tests.support.trials import trial_ok
from trainer.schema import CommandConfig, CommandOk, CurvePoint, TextScore, TrialFailed, TrialSpec

SIGMA = 0.002
STEP_S = 0.01

AtTrial = Callable[[TrialSpec], TrialFailed | None]
"""A function called before each trial: what it returns is the trial's result, if anything, and what
it raises ends the command."""


def nothing(_spec: TrialSpec) -> None:
    """Let every trial train."""


class ToyWorld:
    """A world of the toy's menu, for runs of any length, on any texts: a learning rate of 1e-2 is
    best, and noise depends on config and seed."""

    name = "toy"
    failure_s = 1.0

    def __init__(self, at_trial: AtTrial = nothing) -> None:
        self._at_trial = at_trial

    def outcome(self, spec: TrialSpec) -> Outcome:
        """Return a trial's result and its curve."""
        failed = self._at_trial(spec)
        if failed is not None:
            return failed, ()
        config, steps = spec.gpt, spec.steps or 1
        rng = Random(f"{config.config_hash}:{spec.seed}")
        own = 2.5 + 0.1 * math.log10(config.lr / 1e-2) ** 2 + rng.gauss(0, SIGMA)

        def score(step: int) -> float:
            return own + 3 * math.exp(-step / 20)

        losses = [math.log(2) * score(step) + rng.gauss(0, 0.01) for step in range(1, steps + 1)]
        points = tuple(
            CurvePoint(
                step=step,
                tokens=step * config.tokens_per_step,
                loss=loss,
                lr=config.lr,
                grad_norm=1.0,
                elapsed_s=step * STEP_S,
            )
            for step, loss in enumerate(losses, 1)
        )
        scored = tuple(
            TextScore(
                sha256=text.sha256,
                val_bpb=score(steps),
                val_bytes=text.bytes,
                val_tokens=text.tokens - len(text.parts),
                parts_bpb=(score(steps),) * len(text.parts),
            )
            for text in spec.texts
        )
        result = trial_ok(
            spec,
            val_bpb=score(steps),
            texts=scored,
            checkpoints_bpb=tuple(score(one.step or steps) for one in spec.checkpoints),
            step_ms=1000 * STEP_S,
            train_s=steps * STEP_S,
        )
        return result, points


def simulated(
    world: Any, words: tuple[str, ...], cwd: Path, environment: dict[str, str]
) -> subprocess.CompletedProcess[str]:
    """Run the command in this process, with the trials of a world."""

    def executor(
        _name: str = "local", *, lanes: int | None = 1, **_others: object
    ) -> SimulatedExecutor:
        return SimulatedExecutor(world, lanes or 1)

    with (
        mock.patch.object(lane_opening, "choose_executor", executor),
        mock.patch.object(Screen, "outlived", Screen.outlived),
    ):
        return run_here(words, cwd, environment)


class SimulatedToy(Toy):
    """Hold a toy campaign whose commands all run here, and whose trials take no time."""

    def __init__(self, home: Path, at_trial: AtTrial = nothing) -> None:
        super().__init__(home)
        self._world = ToyWorld(at_trial)

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return simulated(self._world, arguments, self.home, self.environment)


class ScriptWorld:
    """A world of the own trainer's menu: a learning rate of 1 and no decay are best."""

    name = "own"
    failure_s = 1.0

    def __init__(self, *, runs_differ: bool) -> None:
        self._runs_differ = runs_differ

    def outcome(self, spec: TrialSpec) -> tuple[CommandOk, tuple[CurvePoint, ...]]:
        """Return a trial's score and its curve."""
        assert isinstance(spec.config, CommandConfig) and spec.command is not None
        values = spec.config.values
        rate, decay = float(values["lr"]), float(values["l2"])
        rng = Random(f"{spec.config.config_hash}:{spec.seed if self._runs_differ else 0}")
        loss = 0.5 + 0.02 * math.log10(rate) ** 2 + 0.1 * decay + rng.gauss(0, SIGMA)
        direction = spec.command.measure.direction
        points = tuple(
            CurvePoint(step=step, loss=loss + math.exp(-step / 20), elapsed_s=step * STEP_S)
            for step in range(0, int(spec.budget.amount) + 1, 4)
        )
        score = loss if direction == "minimise" else 1 - loss
        took_s = points[-1].elapsed_s
        return CommandOk(score=score, direction=direction, train_s=took_s, setup_s=0), points


class SimulatedOwn(Own):
    """Hold a checkout whose commands all run here, and whose script is never started."""

    def __init__(self, home: Path, *, runs_differ: bool = True, **menu: str) -> None:
        super().__init__(home, **menu)
        self._world = ScriptWorld(runs_differ=runs_differ)

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        return simulated(self._world, words, self.checkout, self.env)
