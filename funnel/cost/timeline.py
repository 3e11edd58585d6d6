"""Compute the days of a curriculum's phases, and the parallelism that each needs.

A phase trains a share of the tokens at one context length T. With N weights in matrix products, L
layers and D = d_model, training takes

    FLOPs a token = 6 × N + 6 × L × D × T

(Chowdhery et al. 2022, arXiv 2204.02311, appendix B, counted by :mod:`trainer.machine.flops`; the
attention term is halved because a causal mask needs half of the scores). A unit's FLOP/s are its
measured tokens/s times the FLOPs per token of the measured model. It is assumed to reach them in
every phase:

    tokens/s = units × scaling × FLOP/s / FLOPs a token
    days     = tokens × share / (tokens/s × 86,400)

The state is 16 bytes per parameter: weight, gradient and AdamW's two moments in fp32. ZeRO's mixed
precision comes to the same (arXiv 1910.02054, section 3.1). The activations of one sequence are
those of :mod:`trainer.memory.estimate`, without recomputation. On n devices that split a sequence c
ways, each holds

    state / n + activations / c

and 90 % of its memory may be used. If n = 1 suffices, plain data parallelism is used. Otherwise the
state is sharded over the fewest devices that hold it (FSDP, ZeRO-3), and the sequence is split
(context parallel) if necessary; both counts are powers of two.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

from agent.settings.environment import Rates
from autoresearch.errors import CampaignError, SettingsError
from autoresearch.layout import JOURNAL_FILE
from funnel.target.architecture import TargetArchitecture
from funnel.target.plain_recipe import plain_config
from trainer.machine.flops import TrainingFlops
from trainer.memory.estimate import GIB, AnalyticMemory
from trainer.spec import Config, TrialOk, gpt
from trajectory.journal import read_rows
from trajectory.rows import BaselineRow, CampaignRow, IterationRow


@dataclass(frozen=True, slots=True)
class UnitSpeed:
    """The measured training speed of a unit, in tokens per second, on a model of given FLOPs per
    token."""

    tokens_per_s: float
    flops_per_token: float
    """FLOPs per token with the causal half of the attention; see :mod:`trainer.machine.flops`."""
    source: str

    @property
    def tflops(self) -> float:
        return self.tokens_per_s * self.flops_per_token / 1e12


PUBLISHED_SPEED = UnitSpeed(
    tokens_per_s=12_820,
    # 24 blocks of 12 D² weights and a head of 50,257 D, with D = 1024 and contexts of 1024.
    flops_per_token=6 * (24 * 12 * 1024**2 + 50_257 * 1024) + 6 * 24 * 1024**2,
    source="published for a GB10: 354.6 M parameters, bf16, batch 4 × 1024",
)


def measured_speed(directory: Path) -> UnitSpeed:
    """Return the highest speed in FLOP/s of this campaign's configs, each by its trials' median.

    :raises CampaignError: if the campaign has no measured trial.
    """
    vocab = 0
    speeds: dict[str, list[float]] = defaultdict(list)
    configs: dict[str, Config] = {}
    for row in read_rows(directory / JOURNAL_FILE):
        if isinstance(row, CampaignRow):
            vocab = row.text.vocab_size
        elif isinstance(row, BaselineRow | IterationRow) and row.config is not None:
            configs[row.config.config_hash] = gpt(row.config)
            for trial in (row.trial,) if isinstance(row, BaselineRow) else row.trials:
                if isinstance(trial.result, TrialOk):
                    speeds[trial.config_hash].append(trial.result.tokens_per_s)
    found = []
    for name in speeds.keys() & configs.keys():
        config, seen = configs[name], speeds[name]
        flops = TrainingFlops.of(config, vocab_size=vocab, seq_len=config.seq_len)
        source = f"{directory}: the median of {len(seen)} trials of config {name[:8]}"
        found.append(UnitSpeed(median(seen), flops.causal_per_token, source))
    if not found:
        raise CampaignError(
            f"{directory} has no measured trial to take a speed from; leave --campaign out to use "
            "the published speed"
        )
    return max(found, key=lambda speed: speed.tflops)


SECONDS_PER_DAY = 86_400
STATE_BYTES = 16
LONGEST_SEQ_LEN = 10**9
USABLE_SHARE = 0.9
"""Share of a device's memory that training may fill; the rest is for workspaces, fragmentation and
communication."""


@dataclass(frozen=True, slots=True)
class Phase:
    """A share of the tokens, trained at one context length."""

    seq_len: int
    share: float

    @classmethod
    def parse(cls, text: str) -> Phase:
        """Return the phase that ``8192:0.9`` names.

        :raises SettingsError: if the text has another form.
        """
        try:
            length, share = text.split(":")
            phase = cls(int(length), float(share))
        except ValueError:
            phase = cls(0, 0.0)
        if not (0 < phase.seq_len <= LONGEST_SEQ_LEN and 0 < phase.share <= 1):
            raise SettingsError(
                f"a phase of {text!r} cannot be read; write context length and share of the tokens "
                "like 8192:0.9"
            )
        return phase


@dataclass(frozen=True, slots=True)
class TrainedModel:
    """The properties of a model that determine its days and its memory."""

    params: int
    products: float
    """FLOPs per token in matrix products."""
    attention: float
    """Causal FLOPs per token, for each token of context."""
    activation_bytes: float
    """Bytes that a token's forward pass keeps for the backward pass."""

    @classmethod
    def of(cls, target: TargetArchitecture) -> TrainedModel:
        """Count a target."""
        vocab, seq_len = target.vocab_size, target.seq_len
        flops = TrainingFlops.of(target, vocab_size=vocab, seq_len=seq_len)
        memory = AnalyticMemory(vocab_size=vocab, backend="megatron", device="cuda", limit_gib=1)
        return cls(
            params=target.total_params,
            products=flops.products,
            attention=(flops.causal_per_token - flops.products) / seq_len,
            activation_bytes=memory.parts(plain_config(target)).per_token_bytes,
        )

    @property
    def state_gib(self) -> float:
        """Memory in GiB of weights, gradients and optimizer state."""
        return STATE_BYTES * self.params / GIB

    def flops_per_token(self, seq_len: int) -> float:
        """Return the training FLOPs per token, forward and backward."""
        return self.products + self.attention * seq_len


@dataclass(frozen=True, slots=True)
class PhasePlan:
    """The computed plan of one phase."""

    seq_len: int
    share: float
    tokens: float
    flops_per_token: float
    tokens_per_s: float
    """Tokens per second of all units together."""
    days: float
    state_gib: float
    activations_gib: float
    """Memory in GiB that one sequence keeps for its backward pass."""
    parallelism: str
    devices: int
    """Fewest devices that hold one copy of the model and one sequence."""
    splits: int
    """Number of devices that share one sequence."""
    fits: bool
    """Whether there are at least this many units."""

    def needs(self) -> str:
        """Return the phase's needs in words."""
        on = f" over {self.devices}" if self.devices > 1 else ""
        split = f", a sequence over {self.splits}" if self.splits > 1 else ""
        short = "" if self.fits else ": more than there are"
        return f"{self.parallelism.split(',')[0]}{on}{split}{short}"


@dataclass(frozen=True, slots=True)
class Timeline:
    """The phases of training one model at one speed."""

    target: str
    model: TrainedModel
    speed: UnitSpeed
    rates: Rates
    units: int
    tokens: float
    phases: tuple[PhasePlan, ...]

    @property
    def days(self) -> float:
        """Days that all phases take, one after the other."""
        return sum(plan.days for plan in self.phases)

    def as_json(self) -> dict[str, Any]:
        """Return the published form."""
        asked = {"tokens": self.tokens, "units": self.units}
        used = {"efficiency": self.rates.spark_scaling, "device_gib": self.rates.spark_gib}
        return {
            "target": self.target,
            "params": self.model.params,
            "asked": asked | used,
            "speed": asdict(self.speed) | {"tflops": self.speed.tflops},
            "phases": [asdict(plan) for plan in self.phases],
            "days": self.days,
        }

    def assumptions(self) -> tuple[str, ...]:
        """Return the assumptions: everything that was not measured."""
        return (
            "the FLOP/s of the measured model stand for those of the target; larger matrices are "
            "usually faster, long contexts slower",
            f"{USABLE_SHARE:.0%} of a unit's {self.rates.spark_gib:g} GiB can be used (SPARK_GIB), "
            "and no activation is computed anew, which would save memory for a third more time",
            f"units keep {self.rates.spark_scaling:.0%} of their speed together (SPARK_SCALING)",
        )


def plan_timeline(
    target: str,
    model: TrainedModel,
    speed: UnitSpeed,
    rates: Rates,
    *,
    units: int,
    tokens: float,
    phases: Sequence[Phase],
) -> Timeline:
    """Compute the plan of each phase.

    :raises SettingsError: if the phases' shares do not add up to 1.
    """
    total = math.fsum(phase.share for phase in phases)
    if abs(total - 1) > 1e-6:
        raise SettingsError(f"the phases' shares add up to {total:g}, not to 1; correct them")
    usable_gib = rates.spark_gib * USABLE_SHARE
    plans = []
    for phase in phases:
        flops = model.flops_per_token(phase.seq_len)
        tokens_per_s = units * rates.spark_scaling * speed.tflops * 1e12 / flops
        activations = model.activation_bytes * phase.seq_len / GIB
        devices, splits = fewest_devices(model.state_gib, activations, usable_gib)
        sharded = "sharded" if splits == 1 else "sharded, sequence split"
        plan = PhasePlan(
            seq_len=phase.seq_len,
            share=phase.share,
            tokens=tokens * phase.share,
            flops_per_token=flops,
            tokens_per_s=tokens_per_s,
            days=tokens * phase.share / tokens_per_s / SECONDS_PER_DAY,
            state_gib=model.state_gib,
            activations_gib=activations,
            parallelism="data parallel" if devices == 1 else sharded,
            devices=devices,
            splits=splits,
            fits=devices <= units,
        )
        plans.append(plan)
    return Timeline(target, model, speed, rates, units, tokens, tuple(plans))


def fewest_devices(state_gib: float, activations_gib: float, usable_gib: float) -> tuple[int, int]:
    """Return the fewest devices that fit, and for these the fewest splits of a sequence."""
    devices = 1
    while True:
        splits = 1
        while splits <= devices:
            if state_gib / devices + activations_gib / splits <= usable_gib:
                return devices, splits
            splits *= 2
        devices *= 2
