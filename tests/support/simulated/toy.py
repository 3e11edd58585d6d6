"""Run the commands that start trials in this process, with trials that a world simulates."""

from __future__ import annotations

import math
import subprocess
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any
from unittest import mock

from agent.workbench import lane_opening
from autoresearch.screen import Screen
from tests.support.campaigns import Toy
from tests.support.in_process import run_here
from tests.support.simulated.executor import SimulatedExecutor
from tests.support.simulated.world import Outcome
from tests.support.trials import trial_ok
from trainer.spec import CurvePoint, TextScore, TrialFailed, TrialSpec

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


class SimulatedToy(Toy):
    """Hold a toy campaign whose commands all run here, and whose trials take no time."""

    def __init__(self, home: Path, at_trial: AtTrial = nothing) -> None:
        super().__init__(home)
        self.world: Any = ToyWorld(at_trial)

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        with (
            mock.patch.object(lane_opening, "choose_executor", self._executor),
            mock.patch.object(Screen, "outlived", Screen.outlived),
        ):
            return run_here(arguments, self.home, self.environment)

    def _executor(
        self, _name: str = "local", *, lanes: int | None = 1, **_others: object
    ) -> SimulatedExecutor:
        return SimulatedExecutor(self.world, lanes or 1)
