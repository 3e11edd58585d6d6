"""Simulate ladders whose truth is known: the product plans them, and a law draws the losses.

The winner follows ``E + A N^-alpha + B D^-beta`` (the exponents of Hoffmann et al. 2022 as refitted
by Besiroglu et al. 2024, arXiv 2404.10102). The baseline is worse by a lead that may change with
compute. Every run has noise of its own and shares some with the other runs of its seed. Every size
and length of a recipe has an error that no seed removes, like rounded shapes and rates that fit one
rung better than another.
"""

import math
from dataclasses import dataclass, field

import numpy as np

from funnel.forecast.scaling_law import ScalingLaw
from funnel.ladder.plan import Candidates, Planner
from funnel.ladder.shapes import Pace, training_flops
from tests.support.configs import config
from tests.support.rows import ok
from trainer.schema import TrialOk
from trajectory.rows import (
    LadderAsked,
    LadderPlanRow,
    LadderRow,
    LadderRun,
    StressVerdict,
    TrialRecord,
)

VOCAB = 1024
NOW = "2026-01-05T22:00:00.000+00:00"
BASELINE = config()
WINNER = BASELINE.model_copy(update={"lr": 4e-3, "activation": "swiglu", "d_ff": 384})
PACE = Pace(
    call_s=2e-4,
    flop_s=4e-12,
    eval_flop_s=4e-12,
    setup_s=0.1,
    eval_tokens=50_000,
    vocab_size=VOCAB,
    runs=3,
)


@dataclass(frozen=True, slots=True)
class World:
    """Hold the truth of one ladder, in bits per byte."""

    law: ScalingLaw = field(
        default_factory=lambda: ScalingLaw(floor=1.0, a=60.0, alpha=0.35, b=120.0, beta=0.37)
    )
    lead: float = 0.08
    """The winner's lead at the largest rung."""
    per_tenfold: float = 0.0
    """The change of the lead with every tenfold of compute."""
    luck: float = 0.005
    """Sd of one run."""
    shared_luck: float = 0.003
    """Sd of the noise that all runs of a seed share."""
    fault: float = 0.003
    """Sd of the error of one recipe's size and length."""


def plan(rungs: int = 5, hours: float = 0.5) -> LadderPlanRow:
    """Return a ladder of the two recipes on a machine of this many hours."""
    asked = LadderAsked(rungs=rungs, hours=hours, seeds=2, tokens_per_param=20.0)
    planner = Planner(
        candidates=Candidates(WINNER, "search", BASELINE, 1000),
        asked=asked,
        seeds=(900, 901),
        pace=PACE,
        corpus_tokens=10**9,
        fits=lambda _: True,
    )
    return planner.plan(NOW)


class Trainer:
    """Draw the runs of one ladder of a world."""

    def __init__(self, world: World, of: LadderPlanRow, seed: int) -> None:
        self._world = world
        self._plan = of
        self._rng = np.random.default_rng(seed)
        self._faults = {
            (run.recipe, run.rung, run.length): float(self._rng.normal(0, world.fault))
            for run in of.runs
        }
        seeds = {seed for run in of.runs for seed in run.seeds}
        self._shared = {seed: float(self._rng.normal(0, world.shared_luck)) for seed in seeds}
        self._largest = max(_flops(run) for run in of.runs)
        self._trials = 0

    def bpb(self, run: LadderRun, seed: int) -> float:
        """Return the bits per byte of a run."""
        world = self._world
        loss = float(world.law.at(run.params, run.length))
        if run.recipe == "baseline":
            decades = math.log10(_flops(run) / self._largest)
            loss += world.lead + world.per_tenfold * decades
        return (
            loss
            + self._faults[run.recipe, run.rung, run.length]
            + self._shared[seed]
            + float(self._rng.normal(0, world.luck))
        )

    def row(self, run: LadderRun, seed: int, prediction_sha256: str | None = None) -> LadderRow:
        """Return the row that a run leaves."""
        self._trials += 1
        return LadderRow(
            at=NOW,
            plan_sha256=self._plan.sha256,
            recipe=run.recipe,
            rung=run.rung,
            params=run.params,
            steps=run.steps,
            config=run.config,
            config_hash=run.config.config_hash,
            trial=TrialRecord(
                trial_id=f"t{self._trials:06d}",
                role="ladder",
                config_hash=run.config.config_hash,
                seed=seed,
                result=_result(run, self.bpb(run, seed)),
                wall_s=run.expected_s,
            ),
            verdict=StressVerdict(outcome="survives"),
            prediction_sha256=prediction_sha256,
        )


def _flops(run: LadderRun) -> float:
    # The winner's FLOPs, which the product uses for a pair; the two recipes differ very little.
    return training_flops(run.config, run.length, VOCAB)


def _result(run: LadderRun, bpb: float) -> TrialOk:
    return ok(
        bpb,
        val_bits_per_token=3 * bpb,
        val_bytes=131_072,
        val_tokens=50_000,
        train_loss_last=2.0 * bpb,
        steps=run.steps,
        tokens=run.tokens,
        params=run.params,
        step_ms=1000 * run.expected_s / run.steps,
        tokens_per_s=run.tokens / run.expected_s,
        train_s=run.expected_s,
        eval_s=0.1,
        setup_s=0.1,
    )
