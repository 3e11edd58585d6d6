"""How fast one machine trains: as given, as a campaign measured it, or as published."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from agent.search.first_row import read_campaign_row
from autoresearch.errors import CampaignError, SettingsError
from autoresearch.layout import JOURNAL_FILE
from autoresearch.values import Frozen, Positive
from funnel.target.shape import ParameterCount
from trainer.machine.flops import TrainingFlops
from trainer.spec import Config, TrialOk, gpt
from trajectory.journal import read_rows
from trajectory.rows import BaselineRow, IterationRow

MOST = 1e15
"""The largest number that anything given may be; more is a slip of the pen."""


class MeasuredSpeed(Frozen):
    """What one unit was seen to do, and on what."""

    tokens_per_s: Positive
    flops_per_token: float
    """With the causal half of the attention, see :mod:`trainer.machine.flops`."""
    source: str

    @property
    def tflops(self) -> float:
        return self.tokens_per_s * self.flops_per_token / 1e12


@dataclass(frozen=True, slots=True)
class _PublishedShape:
    """The shape of the published 354.6 M: GPT-2's, with its vocabulary and a tied head."""

    n_layer: int = 24
    n_head: int = 16
    kv_heads: int = 16
    d_model: int = 1024
    d_ff: int = 4096
    activation: str = "gelu"


PUBLISHED_SPEED = MeasuredSpeed(
    tokens_per_s=12_820,
    flops_per_token=TrainingFlops.of(
        _PublishedShape(), vocab_size=50_257, seq_len=1024
    ).causal_per_token,
    source="published for a GB10: 354.6 M parameters, bf16, batch 4 × 1024",
)


def choose_speed(
    target_flops_per_token: float,
    tokens_per_s: float | None,
    measured_params: float | None,
    campaign: Path | None,
) -> MeasuredSpeed:
    """As given, else as the campaign measured, else as published.

    :param target_flops_per_token: at the target's own context length.

    :raises SettingsError: on two speeds, or parameters without one.
    """
    if campaign is not None and tokens_per_s is not None:
        raise SettingsError("--campaign and --tokens-per-s are two speeds; give one of them")
    if campaign is not None:
        return measured_speed(campaign)
    if tokens_per_s is None:
        if measured_params is not None:
            raise SettingsError("--measured-params says nothing without --tokens-per-s; add it")
        return PUBLISHED_SPEED
    if measured_params is None:
        flops, on = target_flops_per_token, "the target itself"
    else:
        flops = 6 * positive("--measured-params", measured_params)
        on = f"{measured_params / 1e6:.4g} M parameters, attention left out"
    speed = positive("--tokens-per-s", tokens_per_s)
    return MeasuredSpeed(tokens_per_s=speed, flops_per_token=flops, source=f"given, of {on}")


def measured_speed(directory: Path) -> MeasuredSpeed:
    """The most FLOP/s that a config of this campaign reached, by the median of its trials.

    :raises CampaignError: where there is no campaign, or no measured trial.
    """
    campaign = read_campaign_row(directory)
    if campaign is None:
        raise CampaignError(
            f"{directory} holds no campaign (no {JOURNAL_FILE}, or an empty one); name one with "
            "--campaign"
        )
    speeds: dict[Config, list[float]] = defaultdict(list)
    configs: dict[str, Config] = {}
    for row in read_rows(directory / JOURNAL_FILE):
        if not isinstance(row, BaselineRow | IterationRow) or row.config is None:
            continue
        configs[row.config.config_hash] = gpt(row.config)
        for trial in (row.trial,) if isinstance(row, BaselineRow) else row.trials:
            if isinstance(trial.result, TrialOk) and trial.config_hash in configs:
                speeds[configs[trial.config_hash]].append(trial.result.tokens_per_s)
    if not speeds:
        raise CampaignError(
            f"{directory} has no measured trial to take a speed from; give --tokens-per-s"
        )
    vocab = campaign.text.vocab_size
    candidates = [_speed(config, vocab, seen, directory) for config, seen in speeds.items()]
    return max(candidates, key=lambda speed: speed.tflops)


def _speed(config: Config, vocab: int, seen: list[float], directory: Path) -> MeasuredSpeed:
    params = ParameterCount.of(config, vocab).total
    return MeasuredSpeed(
        tokens_per_s=median(seen),
        flops_per_token=TrainingFlops.of(
            config, vocab_size=vocab, seq_len=config.seq_len
        ).causal_per_token,
        source=f"{directory}: the median of {len(seen)} trials of {params / 1e6:.3g} M parameters",
    )


def positive(name: str, value: float) -> float:
    """:raises SettingsError: where it is not above zero, or beyond all sense."""
    if not 0 < value <= MOST:
        raise SettingsError(
            f"{name} is {value:g}, and should be above 0 and at most {MOST:g}; correct it"
        )
    return value
