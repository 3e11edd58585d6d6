"""Networks that others trained on 34 tasks, as their own surrogate tells them: a world a task.

LCBench (Zimmer, Lindauer and Hutter 2021, arXiv 2006.13799) is 2,000 networks on each of 35 sets of
tables, 52 epochs of SGD, seven knobs. What any config comes to is said by YAHPO Gym's surrogate of
those runs (Pfisterer et al. 2022, arXiv 2109.03670), read from a checkout of
github.com/slds-lmu/yahpo_data at efdab90; nothing of it is kept here.

No search of ours was chosen on these tasks, and none is to be: they are for whoever wants to know
what a choice that was made elsewhere is worth. Nothing in them is a language model.

The tasks' losses differ by much, so a score is one and what is left to gain, as a share of what
there is from the start, the middle of every scale. As published no network was trained twice, so
the noise is made up. Config lacks some of the knobs, which are carried on fields of the like
domain.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from random import Random
from typing import Any, Protocol

import numpy as np

from agent.menu.files import ProxyMenu, parse_menu
from autoresearch.domains.ranges import Range, WholeRange
from autoresearch.errors import SettingsError
from autoresearch.values import Scalar
from bench.simulator.encoding import Matrix
from bench.simulator.surrogate import Vector
from bench.simulator.world import Run, SimulatedWorld
from trainer.spec import Config

FILE = "lcbench/model.onnx"
ENCODING, SPACE = "lcbench/encoding.json", "lcbench/config_space.json"
TASK = "OpenML_task_id"
EPOCHS = 52.0
CARRIED = {
    "batch_size": "batch_size",
    "learning_rate": "lr",
    "momentum": "beta1",
    "weight_decay": "weight_decay",
    "num_layers": "n_layer",
    "max_units": "d_ff",
    "max_dropout": "lr_min_ratio",
}
"""Their knob, and the field of Config that stands for it, in the order of the surrogate's columns,
of which the first is the epoch."""
TIME, CROSS_ENTROPY = 0, 2
"""Columns of what it says: seconds, and the validation's loss in nats."""
SIGMA = 0.05
"""Sd of one run's score."""
SCATTERED, STARTS, ROUNDS, VARIED = 20_000, 32, 60, 16
"""In looking for the best: configs anywhere, and how the best of them are varied."""
MENU = """\
name = "lcbench {task}"
doc = "The seven knobs of LCBench, on fields of the like domain."
knobs.batch_size = {{ type = "int", low = 16, high = 512, scale = "log", default = 91 }}
knobs.lr = {{ type = "float", low = 1e-4, high = 0.1, scale = "log", default = 0.0031622777 }}
knobs.beta1 = {{ type = "float", low = 0.1, high = 0.99, default = 0.545, doc = "momentum" }}
knobs.weight_decay = {{ type = "float", low = 1e-5, high = 0.1, default = 0.050005 }}
knobs.n_layer = {{ type = "int", low = 1, high = 5, default = 3 }}
knobs.d_ff = {{ type = "int", low = 64, high = 1024, scale = "log", default = 256, \
doc = "max_units" }}
knobs.lr_min_ratio = {{ type = "float", low = 0.0, high = 1.0, default = 0.5, \
doc = "max_dropout" }}

[constants]
d_model = 256
n_head = 4
seq_len = 64
activation = "relu2"
norm = "rmsnorm"
positions = "learned"
tie_embeddings = false
lr_warmup = 0
grad_clip = 1.0
beta2 = 0.95
precision = "bf16"

[campaign]
budget = "60 steps"
"""
"""With the domains and middles of YAHPO Gym's space. The steps are nominal."""


class Surrogate(Protocol):
    """What is known of the runs of one task."""

    def __call__(self, rows: Matrix) -> Matrix:
        """What it says of configs, a row each of their knobs in CARRIED's order."""
        ...


@dataclass(frozen=True, slots=True)
class Published:
    """YAHPO Gym's, of one task."""

    file: Path
    code: int
    """The task's, in their encoding."""

    def __call__(self, rows: Matrix) -> Matrix:
        """See :class:`Surrogate`."""
        count = len(rows)
        columns = np.column_stack([np.full(count, EPOCHS), rows]).astype(np.float32)
        tasks = np.full((count, 1), self.code, np.int32)
        said: Matrix = _session(self.file).run(["output"], {"x_cat": tasks, "x_cont": columns})[0]
        return said


class LcbenchWorld(SimulatedWorld):
    """See the module."""

    noise = f"normal, sd {SIGMA:g}"

    def __init__(self, task: str, surrogate: Surrogate) -> None:
        self.name = f"lcbench {task}"
        self.menu = parse_menu(MENU.format(task=task), self.name)
        self._surrogate = surrogate
        self._best = best_loss(surrogate, _Scales.of(self.menu))
        self._start = self._said(self.menu.knob_values(self.menu.baseline))[CROSS_ENTROPY]

    @property
    def best(self) -> float:
        """See :class:`World`."""
        return 1.0

    def truth(self, config: Config) -> float:
        """See :class:`World`."""
        return self._score(self._said(self.menu.knob_values(config)))

    def run(self, config: Config, seed: int) -> Run:
        """Gaussian noise, nothing of it shared by the configs of a seed."""
        said = self._said(self.menu.knob_values(config))
        luck = Random(f"{config.config_hash}:{seed}").gauss(0, SIGMA)
        return Run(max(float(said[TIME]), 1.0), self._score(said) + luck)

    def _score(self, said: Vector) -> float:
        return float(1 + (said[CROSS_ENTROPY] - self._best) / (self._start - self._best))

    def _said(self, knobs: Mapping[str, Scalar]) -> Vector:
        said: Vector = self._surrogate(np.array([[knobs[field] for field in CARRIED.values()]]))[0]
        return said.astype(np.float64)


def lcbench(checkout: Path) -> list[LcbenchWorld]:
    """A world for every task of their space, in its order.

    :raises SettingsError: where onnxruntime is not installed.
    """
    codes = json.loads((checkout / ENCODING).read_text(encoding="utf-8"))[TASK]
    space = json.loads((checkout / SPACE).read_text(encoding="utf-8"))["hyperparameters"]
    tasks: Sequence[str] = next(knob["choices"] for knob in space if knob["name"] == TASK)
    file = checkout / FILE
    _ = _session(file)
    return [LcbenchWorld(task, Published(file, codes[task])) for task in tasks]


@dataclass(frozen=True, slots=True)
class _Scales:
    """The menu's domains, in CARRIED's order, a column each."""

    low: Vector
    high: Vector
    is_log: Vector
    is_whole: Vector

    @classmethod
    def of(cls, menu: ProxyMenu) -> _Scales:
        found = [menu.domains[field] for field in CARRIED.values()]
        ranges = [one for one in found if isinstance(one, Range)]
        return cls(
            low=np.array([one.low for one in ranges]),
            high=np.array([one.high for one in ranges]),
            is_log=np.array([one.scale == "log" for one in ranges]),
            is_whole=np.array([isinstance(one, WholeRange) for one in ranges]),
        )

    def knobs(self, unit: Matrix) -> Matrix:
        """Rows of knobs from rows of shares of their scales."""
        straight = self.low + unit * (self.high - self.low)
        low = np.where(self.is_log, self.low, 1.0)
        curved = low * (self.high / low) ** unit
        knobs: Matrix = np.where(self.is_log, curved, straight)
        rounded: Matrix = np.where(self.is_whole, np.round(knobs), knobs)
        return rounded


def best_loss(surrogate: Surrogate, scales: _Scales) -> float:
    """The lowest loss that is found, climbing from the best of many configs, from each alone.

    :func:`bench.simulator.climb.climb` makes a Config of every point; here are 50,000 a world,
    which the surrogate takes as they are.
    """
    rng, columns = np.random.default_rng(0), len(scales.low)
    unit = rng.random((SCATTERED, columns))
    loss = surrogate(scales.knobs(unit))[:, CROSS_ENTROPY]
    first = np.argsort(loss, kind="stable")[:STARTS]
    unit, loss = unit[first], loss[first]
    for number in range(ROUNDS):
        steps = rng.normal(0, 0.3 * 0.93**number, (STARTS, VARIED, columns))
        steps *= rng.random(steps.shape) < 0.4
        varied = np.clip(unit[:, None] + steps, 0, 1)
        losses = surrogate(scales.knobs(varied.reshape(-1, columns)))[:, CROSS_ENTROPY]
        losses = losses.reshape(STARTS, VARIED)
        best = losses.argmin(axis=1)
        better = losses.min(axis=1) < loss
        unit = np.where(better[:, None], varied[np.arange(STARTS), best], unit)
        loss = np.where(better, losses.min(axis=1), loss)
    return float(loss.min())


@cache
def _session(file: Path) -> Any:
    """One thread: an ask of one config takes a fifth of a millisecond.

    :raises SettingsError: where onnxruntime is not installed.
    """
    try:
        import onnxruntime
    except ImportError as error:
        raise SettingsError(
            "the worlds of lcbench want onnxruntime; pip install 'autoresearch[searches]'"
        ) from error
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(str(file), options)
