"""Nights with and without speculative trials, on 2 and 16 lanes, in the made-up world.

Pairs of nights share seed, noise and trial lengths. Three proposers: one that answers at once, one
whose every third answer takes 20 s, and one that always takes 20 s, against trials of about 60 s.
Cancelled trials free their lane at once and no idle lane waits, both of which favor speculation.

    python -m bench.speculation [NIGHTS]
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from random import Random
from statistics import fmean, stdev
from types import SimpleNamespace
from unittest.mock import patch

from agent.proposers.sampler import SamplerProposer
from agent.search.goal import Goal
from agent.search.iterations import scheduler
from agent.search.iterations.asking import Answer, Question
from bench.search.made_up import MadeUpWorld
from tests.support.simulated.account import Account, Stage
from tests.support.simulated.executor import SimulatedExecutor
from tests.support.simulated.night import put_together, scratch_campaign
from tests.support.simulated.world import Run
from trainer.spec import Config
from trajectory.rules import Rules

FIRST_SEED = 3100
"""Written down before the first night: none is 5 % shorter or gains 5 % more. Lanes are full where
proposals come at once; elsewhere the proposals bound the night and not the trials."""
CASES = (
    (16, 100, "at once"),
    (16, 100, "20 s every third"),
    (2, 100, "at once"),
    (2, 100, "20 s always"),
    (16, 400, "at once"),
    (16, 100, "20 s always"),
)
"""Lanes, iterations and proposer."""
PROPOSERS = {"at once": (0.0, 1), "20 s every third": (20.0, 3), "20 s always": (20.0, 1)}


class TimedWorld(MadeUpWorld):
    """Trials of about a minute, each config with its own length."""

    def run(self, config: Config, seed: int) -> Run:
        run = super().run(config, seed)
        length = 60 * math.exp(0.4 * Random(config.config_hash).gauss(0, 1))
        return Run(length if run.score is not None else length / 3, run.score)


class ClockedAsking:
    """Answers after so many simulated seconds."""

    def __init__(self, executor: ClockedExecutor, latency_s: float, every: int) -> None:
        self._executor, self._latency_s, self._every = executor, latency_s, every
        self._question: Question | None = None
        self._asked = 0

    @property
    def busy(self) -> bool:
        return self._question is not None

    def ask(self, question: Question) -> None:
        self._question = question
        self._asked += 1
        wait_s = self._latency_s if self._asked % self._every == 0 else 0.0
        self._executor.alarm_s = self._executor.now_s + wait_s

    def answer(self) -> Answer | None:
        if self._question is None or self._executor.now_s < self._executor.alarm_s:
            return None
        question, self._question = self._question, None
        self._executor.alarm_s = math.inf
        return question.answered()


class ClockedExecutor(SimulatedExecutor):
    """Moves the clock on to the next end of a trial or of a question."""

    alarm_s = math.inf

    def wait(self, wake: object, timeout_s: float) -> None:
        ends_s = self._running[0][0] if self._running else math.inf
        if self.alarm_s <= ends_s:
            self.now_s = max(self.now_s, self.alarm_s)
            return
        super().wait(wake, timeout_s)  # type: ignore[arg-type]


class ClockedAccount(Account):
    """Counts simulated time by the executor's clock."""

    executor: ClockedExecutor

    def _stage(self, iteration: int) -> Stage:
        stage = Account._stage(self, iteration)
        return stage.model_copy(update={"train_s": self.executor.now_s})


def night(
    lanes: int, iterations: int, proposer: str, *, seed: int, speculate: bool
) -> tuple[Stage, ...]:
    """Return how far one night had come after each iteration."""
    world = TimedWorld()
    with (
        scratch_campaign(world, {"seed": seed}) as campaign,
        ClockedExecutor(world, lanes) as executor,
    ):
        clock = SimpleNamespace(monotonic=lambda: executor.now_s)
        vars(scheduler).update(time=clock, PATIENCE_S=0.0)
        watcher = ClockedAccount(world, campaign)
        watcher.executor = executor
        loop = put_together(campaign, SamplerProposer, Rules(), executor, watcher)
        loop.asking = ClockedAsking(executor, *PROPOSERS[proposer])
        without = patch.object(scheduler.Scheduler, "speculate", lambda *_, **__: None)
        with nullcontext() if speculate else without:
            loop.run(Goal(iterations=iterations))
        return tuple(watcher.stages)


def gain_at(stages: Sequence[Stage], time_s: float) -> float:
    """Return the true gain of the reference at this time."""
    reached = [one for one in stages if one.train_s <= time_s]
    return stages[0].truth - (reached or stages[:1])[-1].truth


def main(nights: int) -> None:
    """Print the change by speculative trials in each case."""
    for case in CASES:
        times, gains, halves, without, early, runs = [], [], [], [], [], []
        for seed in range(FIRST_SEED, FIRST_SEED + nights):
            on = night(*case, seed=seed, speculate=True)
            off = night(*case, seed=seed, speculate=False)
            end_s = min(on[-1].train_s, off[-1].train_s)
            times.append(on[-1].train_s / off[-1].train_s - 1)
            gains.append(gain_at(on, end_s) - gain_at(off, end_s))
            without.append(gain_at(off, end_s))
            halves.append(gain_at(on, end_s / 2) - gain_at(off, end_s / 2))
            early.append(gain_at(off, end_s / 2))
            runs.append(on[-1].runs / off[-1].runs - 1)
        print(
            f"{case}, {nights} nights: time {_percent(times, 1)},"
            f" gain {_percent(gains, fmean(without))},"
            f" gain at half time {_percent(halves, fmean(early))}, runs {_percent(runs, 1)}",
            flush=True,
        )


def _percent(values: Sequence[float], whole: float) -> str:
    error = stdev(values) / math.sqrt(len(values))
    return f"{100 * fmean(values) / whole:+.1f} ± {100 * error / whole:.1f} %"


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 24)
