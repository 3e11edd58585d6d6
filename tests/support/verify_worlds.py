"""Simulate worlds with known laws, in which ladders and large runs are made.

Tests compare the ladder's forecast with the run, and the output of ``verify`` with planted faults.
No world follows the law that is fitted, except for one end law in three. Ends: Besiroglu et al.
2024 (arXiv 2404.10102, table 1), Kaplan et al. 2020 (arXiv 2001.08361, equation 1.5 with the
constants of its table 2: no floor, size and data coupled) and a coupled law with a floor. Curves
towards the end: the multi-power law (arXiv 2503.12811) with its authors' constants, and annealing
with momentum in the form of Tissue et al. (arXiv 2408.11029, lambda 0.999), both in steps and real
learning rates. Runs have individual offsets, drift with their text, and have noise that neighboring
steps share.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from funnel.forecast.band import BothRuns
from funnel.forecast.cloud_log import CloudLog, CloudPoint
from funnel.forecast.schedule import GRID, RungRun, ScheduleShape
from trainer.schema import CurvePoint

Array = NDArray[np.float64]

BYTES = 4.0
"""Bytes per token."""
LOGGED = 4000
"""Maximum number of logged losses in a run."""
KINDS = (
    "sound", "spikes", "x1.02", "x1.05", "x1.10", "x1.40", "stop 5 %", "stop 50 %", "half size",
    "drift",
)  # fmt: skip


def besiroglu(n: float, d: float) -> float:
    return float(1.8172 + 482.01 * n**-0.3478 + 2085.43 * d**-0.3658)


def kaplan(n: float, d: float) -> float:
    return float(((6.4e13 / n) ** (0.076 / 0.103) + 1.8e13 / d) ** 0.103)


def coupled(n: float, d: float) -> float:
    return float(1.7 + ((3.2e7 / n) ** 0.5 + (7.0e8 / d) ** 0.55) ** 0.62)


ENDS: dict[str, Callable[[float, float], float]] = {
    "besiroglu": besiroglu,
    "kaplan": kaplan,
    "coupled": coupled,
}


@dataclass(frozen=True)
class World:
    """Hold one truth, one ladder in it, and one target."""

    seed: int
    end: str
    is_momentum: bool
    luck: float
    wander: float
    noise: float
    correlation: float
    rungs: int
    leap: float
    """The target's parameters over the largest rung's."""
    kind: str
    """The kind of learning-rate schedule."""

    @classmethod
    def of(cls, seed: int) -> World:
        """Return the world with this seed."""
        rng = np.random.default_rng([seed, 5])
        return cls(
            seed=seed,
            end=list(ENDS)[seed % 3],
            is_momentum=bool(seed // 3 % 2),
            luck=float(rng.uniform(0.0005, 0.003)),
            wander=float(rng.uniform(0.0, 0.0015)),
            noise=float(rng.uniform(0.005, 0.02)),
            correlation=float(rng.uniform(0.0, 0.7)),
            rungs=int(rng.integers(5, 9)),
            leap=float(rng.choice([2.0, 4.0, 8.0, 16.0])),
            kind=str(rng.choice(["cosine", "wsd", "linear"])),
        )

    def ladder(self) -> list[RungRun]:
        """Return rungs of doubling size, with two seeds on the smallest."""
        rng = np.random.default_rng([self.seed, 6])
        sizes = [1e7 * 2.0**k for k in range(self.rungs)]
        return [self._rung(size, rng) for size in [sizes[0], *sizes]]

    def target(self) -> BothRuns:
        """Return the planned run."""
        n = 1e7 * 2.0 ** (self.rungs - 1) * self.leap
        schedule, batch = self._schedule(n)
        tokens = schedule.steps * round(batch)
        return BothRuns(
            target="target",
            corpus="world",
            corpus_bytes_per_token=BYTES,
            bytes_per_token=BYTES,
            target_params=round(n),
            tokens_per_step=round(batch),
            seq_len=1024,
            first_day_tokens=max(1, tokens // 7),
            schedule=schedule,
        )

    def end_bpb(self) -> float:
        """Return the final bits per byte of a sound target run, without its individual offset."""
        both = self.target()
        end = ENDS[self.end](both.target_params, both.schedule.steps * both.tokens_per_step)
        return end / math.log(2) / BYTES

    def log(self, kind: str, draw: int) -> CloudLog:
        """Return the log of a target's run of one of KINDS."""
        both = self.target()
        schedule = both.schedule
        rng = np.random.default_rng([self.seed, 7, draw])
        n = both.target_params / (2 if kind == "half size" else 1)
        steps = self._logged(schedule.steps)
        clean = self._curve(n, float(schedule.steps * both.tokens_per_step), schedule, steps)
        clean = clean * self._luck_and_wander(steps / schedule.steps, rng)
        clean = _faulty(kind, clean, steps / schedule.steps, rng)
        loss = clean * self._noise(both.tokens_per_step, len(steps), rng)
        points = tuple(
            CloudPoint(step=int(s), tokens=int(s) * both.tokens_per_step, loss=float(v))
            for s, v in zip(steps, loss, strict=True)
        )
        return CloudLog(points, "nats_per_token", 0)

    def _schedule(self, n: float) -> tuple[ScheduleShape, float]:
        tokens = 20 * n
        batch = float(round(65_536 * (tokens / 2e8) ** 0.4))
        steps = round(tokens / batch)
        shape = ScheduleShape(
            steps=steps,
            warmup_steps=max(10, steps // 100),
            kind="wsd" if self.kind == "wsd" else "linear" if self.kind == "linear" else "cosine",
            lr_min_ratio=0.1 if self.kind == "cosine" else 0.0,
        )
        return shape, batch

    def _logged(self, steps: int) -> Array:
        return np.unique(np.round(np.linspace(1, steps, min(steps, LOGGED))))

    def _rung(self, n: float, rng: np.random.Generator) -> RungRun:
        schedule, batch = self._schedule(n)
        steps = self._logged(schedule.steps)
        clean = self._curve(n, schedule.steps * batch, schedule, steps)
        loss = clean * self._luck_and_wander(steps / schedule.steps, rng)
        loss = loss * self._noise(batch, len(steps), rng)
        curve = tuple(
            CurvePoint(
                step=int(s),
                tokens=int(s * batch),
                loss=float(v),
                lr=1e-3,
                grad_norm=1.0,
                elapsed_s=float(s),
            )
            for s, v in zip(steps, loss, strict=True)
        )
        return RungRun(params=n, tokens=schedule.steps * batch, schedule=schedule, curve=curve)

    def _curve(self, n: float, d: float, schedule: ScheduleShape, steps: Array) -> Array:
        end = ENDS[self.end](n, d)
        data = end - ENDS[self.end](n, 1e3 * d)
        peak = 3e-4 * (d / 1e10) ** -0.2
        rates, sums = schedule.rates() * peak, _sums(schedule) * peak * schedule.steps
        progress = np.maximum(sums / sums[-1], 1e-4)
        gained = (_momentum if self.is_momentum else settling)(rates, sums, schedule.steps)
        exponent = 0.42 if self.is_momentum else 0.5
        size = (n / 1e8) ** 0.15
        way = 0.9 * data * (progress**-exponent - 1) + size * (gained[-1] - gained)
        grid = np.linspace(0, 1, GRID + 1)
        return np.asarray(end + np.interp(steps / schedule.steps, grid, way))

    def _luck_and_wander(self, share: Array, rng: np.random.Generator) -> Array:
        place = np.linspace(math.log(1e-3), 0, 60)
        walk = np.zeros(60)
        for k in range(1, 60):
            walk[k] = 0.8 * walk[k - 1] + rng.normal(0, 0.6)
        wander = self.wander * np.interp(np.log(share), place, walk)
        return np.asarray(np.exp(rng.normal(0, self.luck) + wander))

    def _noise(self, batch: float, count: int, rng: np.random.Generator) -> Array:
        sd = self.noise * math.sqrt(65_536 / batch)
        draws = rng.standard_normal(count) * math.sqrt(1 - self.correlation**2)
        noise = np.empty(count)
        last = rng.standard_normal()
        for k in range(count):
            last = self.correlation * last + draws[k]
            noise[k] = last
        return np.asarray(np.exp(sd * noise))


def _sums(schedule: ScheduleShape) -> Array:
    """Return the summed rates up to each boundary, in units of a whole run at the peak."""
    rates = schedule.rates()
    return np.concatenate([[0.0], np.cumsum((rates[1:] + rates[:-1]) / 2 / GRID)])


def settling(rates: Array, sums: Array, _: int) -> Array:
    """Return LD of the multi-power law with the authors' constants for 100 M parameters."""
    fall = np.maximum(rates[:-1] - rates[1:], 0.0)
    since = np.maximum(sums[:, None] - sums[None, 1:], 0.0)
    x = np.maximum(rates[1:], 1e-7) ** -0.655 * since
    return np.asarray(438.0 * ((1 - (2.13 * x + 1) ** -0.598) @ fall))


def _momentum(rates: Array, _: Array, steps: int) -> Array:
    """Return C S2 of annealing with momentum; C makes a whole cosine gain 0.1 nats."""
    keep = 0.999 ** (steps / GRID)
    area, held = np.zeros(len(rates)), 0.0
    for k in range(1, len(rates)):
        held = keep * held + max(rates[k - 1] - rates[k], 0.0)
        area[k] = area[k - 1] + held * (1 - keep) / 0.001
    return 0.35 * area


def _faulty(kind: str, loss: Array, share: Array, rng: np.random.Generator) -> Array:
    if kind.startswith("x"):
        return loss * float(kind[1:])
    if kind.startswith("stop"):
        at = float(kind.split()[1]) / 100
        return np.where(share > at, np.interp(at, share, loss), loss)
    if kind == "drift":
        return np.asarray(loss * (1 + 0.05 * share))
    if kind == "spikes":
        for _ in range(int(rng.integers(1, 5))):
            start, lasts = rng.uniform(0.03, 0.98), rng.uniform(0.0005, 0.002)
            since = np.maximum(share - start, 0.0)
            loss = loss * (1 + (share >= start) * rng.uniform(0.1, 1) * np.exp(-since / lasts))
    return loss
