"""Hold the training speed of one unit: as a campaign measured it, or as published."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from autoresearch.errors import CampaignError
from autoresearch.layout import JOURNAL_FILE
from trainer.machine.flops import TrainingFlops
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
