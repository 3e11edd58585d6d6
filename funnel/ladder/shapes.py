"""Scale a recipe's architecture to another size, and estimate the time of a run there.

Two recipes are compared at equal size, so the parameters must come out equal whatever the ratios
are. Heads, layers and the width of the feed-forward block are whole numbers, so the ratios cannot
all be kept. Of all shapes with the requested parameters, the one closest to the recipe's ratios is
chosen. The ratios are depth to width, feed-forward to width, and width of a head; the distance is
in squared logarithms, and the feed-forward width closes the gap to the parameters. Parameters are
counted without the tables of tokens and positions, as scaling laws do (Kaplan et al. 2020, arXiv
2001.08361).

The time of a run of a new shape is estimated from the campaign's own short runs. A step takes
``a (n_layer + 2) + b FLOPs``. The first term is the cost of a layer whatever its width, with the
embedding and the optimizer as two more layers; the second is the arithmetic. Both coefficients are
fitted by least squares of relative errors to every short run that has a time, and neither is
negative.

If all runs had about one shape, the two terms cannot be separated and the arithmetic takes all of
the time. That makes small shapes look faster than they are, but a ladder spends its time on its
largest rungs. Scoring is estimated by arithmetic alone.
"""

import math
from collections.abc import Iterable, Iterator
from functools import lru_cache
from statistics import median

import numpy as np
from numpy.typing import NDArray

from autoresearch.errors import CampaignError, TargetError
from autoresearch.values import Frozen, NonNegative
from funnel.targets.shape import ParameterCount
from trainer.machine.flops import TrainingFlops
from trainer.schema import Config, TrialOk, gpt
from trajectory.rows import BaselineRow, IterationRow, Row, trials_of

FF_MULTIPLES = (8, 2)
"""Multiples for the feed-forward width. It is a multiple of the first, as matrix units prefer, if
that brings the parameters within EVEN of the requested number, else of the second."""
EVEN = 0.003
"""Largest relative difference in size between two recipes at one size, if their shapes allow it.

With an exponent of a third and most of the loss still reducible, one percent in size changes the
loss by three in a thousand: as much as the luck of a run.
"""
LEAST_WIDTH = 16
"""Smallest width of a model."""
HEAD_WEIGHT = 0.5
"""Weight of a departure of the head's width, relative to one of depth or of the feed-forward block.
Attention scores are scaled by the root of it, so a recipe tolerates this departure better."""
SIZE_TOLERANCE = 0.05
"""Largest relative error of the parameters; tiny shapes come in coarse steps."""


@lru_cache(maxsize=1024)
def scaled(config: Config, params: int) -> Config:
    """Return the config with its architecture at ``params`` parameters; its other fields are
    unchanged.

    :param params: without the tables of tokens and positions and an untied head.
    :raises TargetError: if no shape of its kind has about this many.
    """
    if own_params(config) == params:
        return config
    shapes = (config.model_copy(update=fields) for fields in _shapes(config, params))
    found = min(shapes, key=lambda shape: departure(shape, config), default=None)
    if found is None:
        raise TargetError(
            f"no architecture like d_model {config.d_model}, n_layer {config.n_layer}, n_head "
            f"{config.n_head} has about {params:,} parameters without its tables; ask for larger "
            "rungs, with more hours or fewer rungs"
        )
    return found


def own_params(config: Config) -> int:
    """Return N of the scaling laws: all parameters but the tables of tokens, of positions, and an
    untied head."""
    return ParameterCount.of(config, vocab_size=1).blocks


def training_flops(config: Config, tokens: int, vocab_size: int) -> float:
    """Return the FLOPs of training on this many tokens."""
    counted = TrainingFlops.of(config, vocab_size=vocab_size, seq_len=config.seq_len)
    return counted.per_token * tokens


def departure(shape: Config, of: Config) -> float:
    """Return the distance of a shape's ratios from a config's, as a sum of squared logarithms."""
    depth = math.log(shape.n_layer / shape.d_model * of.d_model / of.n_layer)
    feed_forward = math.log(shape.d_ff / shape.d_model * of.d_model / of.d_ff)
    head = math.log(shape.d_model / shape.n_head * of.n_head / of.d_model)
    return depth**2 + feed_forward**2 + HEAD_WEIGHT * head**2


def _shapes(config: Config, params: int) -> Iterator[dict[str, int | None]]:
    """Yield the fields of similar shapes with about ``params`` parameters."""
    growth = (params / own_params(config)) ** (1 / 3)
    head_dim = config.d_model // config.n_head
    group = config.n_head // config.kv_heads
    for width in {head_dim, head_dim // 2, head_dim // 4}:
        if width < 2 or (width % 2 and width != head_dim):
            continue
        fitting = config.d_model * growth / width
        for heads in range(max(1, math.floor(fitting / 2)), math.ceil(2 * fitting) + 1):
            kv_heads = max(1, heads // group)
            if heads * width >= LEAST_WIDTH and heads % kv_heads == 0:
                grouped = None if group == 1 else kv_heads
                fields = {"d_model": heads * width, "n_head": heads, "n_kv_head": grouped}
                yield from _filled(config, params, fields)


def _filled(
    config: Config, params: int, fields: dict[str, int | None]
) -> Iterator[dict[str, int | None]]:
    """Yield those fields with each possible depth, and the feed-forward width that the parameters
    then leave."""

    def counted(n_layer: int, d_ff: int) -> int:
        return own_params(config.model_copy(update={**fields, "n_layer": n_layer, "d_ff": d_ff}))

    # The count is linear in the depth, and in the width of each layer's feed-forward block.
    first = counted(1, 1)
    each_unit = counted(1, 2) - first
    each_layer = counted(2, 1) - first
    depth = config.n_layer * (fields["d_model"] or 0) / config.d_model
    for n_layer in range(max(1, math.floor(depth / 2)), math.ceil(2 * depth) + 1):
        least = first + (n_layer - 1) * each_layer
        d_ff = _feed_forward(params, least, n_layer * each_unit)
        if d_ff is not None:
            yield {**fields, "n_layer": n_layer, "d_ff": d_ff}


def _feed_forward(params: int, least: int, each: int) -> int | None:
    """Return the width that brings ``least``, the count at width 1, to ``params``; None if no width
    does."""
    wanted = 1 + (params - least) / each
    for multiple in FF_MULTIPLES:
        width = multiple * round(wanted / multiple)
        off = abs((least + (width - 1) * each) / params - 1)
        tolerance = SIZE_TOLERANCE if multiple == FF_MULTIPLES[-1] else EVEN
        if width > 0 and off <= tolerance:
            return width
    return None


CALLS_BESIDE_LAYERS = 2
_FORWARD_SHARE = 1 / 3
"""Share of a training step's FLOPs that scoring takes: the forward pass."""
_DISTINCT = 1.3
"""Smallest ratio between the largest and smallest FLOPs per call; below it, all runs have about one
shape."""


class Pace(Frozen):
    """Seconds of the parts of a run on this machine."""

    call_s: NonNegative
    """``a``: seconds of a step for each layer."""
    flop_s: NonNegative
    """``b``: seconds of a floating-point operation in training."""
    eval_flop_s: NonNegative
    """Seconds of a floating-point operation in scoring."""
    setup_s: NonNegative
    """Seconds before the first step."""
    eval_tokens: NonNegative
    """Tokens of the text that is scored."""
    vocab_size: int
    runs: int
    """Number of short runs behind the estimate."""

    def step_s(self, config: Config) -> float:
        """Return the seconds of one step of this config."""
        flops = training_flops(config, config.tokens_per_step, self.vocab_size)
        return self.call_s * _calls(config) + self.flop_s * flops

    def run_s(self, config: Config, steps: int) -> float:
        """Return the seconds of a run of this many steps, including scoring."""
        scoring = _scoring_flops(config, self.eval_tokens, self.vocab_size)
        return self.setup_s + steps * self.step_s(config) + self.eval_flop_s * scoring


def measured_pace(rows: Iterable[Row], vocab_size: int) -> Pace:
    """Return the pace of a campaign's short runs.

    :param rows: the rows of its journal.
    :raises CampaignError: if no row has a time.
    """
    timed = list(timed_trials(rows))
    if not timed:
        raise CampaignError(
            "no short run of this campaign has a time, so the ladder's cannot be planned; run "
            "autoresearch loop first"
        )
    calls_N = np.array([float(_calls(config)) for config, _ in timed])
    flops_N = np.array(
        [training_flops(config, config.tokens_per_step, vocab_size) for config, _ in timed]
    )
    seconds_N = np.array([result.step_ms / 1000 for _, result in timed])
    call_s, flop_s = _both(calls_N / seconds_N, flops_N / seconds_N)
    return Pace(
        call_s=call_s,
        flop_s=flop_s,
        eval_flop_s=median(
            result.eval_s / _scoring_flops(config, result.val_tokens, vocab_size)
            for config, result in timed
        ),
        setup_s=median(result.setup_s for _, result in timed),
        eval_tokens=median(result.val_tokens for _, result in timed),
        vocab_size=vocab_size,
        runs=len(timed),
    )


def _calls(config: Config) -> int:
    return config.n_layer + CALLS_BESIDE_LAYERS


def _both(x_N: NDArray[np.float64], y_N: NDArray[np.float64]) -> tuple[float, float]:
    """Return a and b, neither negative, that bring ``a x + b y`` nearest to 1."""
    only_y = float(y_N.sum() / (y_N @ y_N))
    ratio_N = y_N / x_N
    if ratio_N.max() < _DISTINCT * ratio_N.min():
        return 0.0, only_y
    design = np.stack([x_N, y_N], axis=1)
    (a, b), *_ = np.linalg.lstsq(design, np.ones(len(x_N)), rcond=None)
    if a < 0:
        return 0.0, only_y
    # A machine that is equally fast for any shape is bound by calls, though it does some
    # arithmetic.
    return (float(a), float(b)) if b > 0 else (float(x_N.sum() / (x_N @ x_N)), 0.0)


def _scoring_flops(config: Config, tokens: float, vocab_size: int) -> float:
    return training_flops(config, 1, vocab_size) * _FORWARD_SHARE * tokens


def timed_trials(rows: Iterable[Row]) -> Iterator[tuple[Config, TrialOk]]:
    """Yield the short trials with a time, each with its config."""
    configs: dict[str, Config] = {}
    for row in rows:
        if not isinstance(row, BaselineRow | IterationRow):
            continue
        if row.config is not None and row.config_hash is not None:
            configs[row.config_hash] = gpt(row.config)
        for trial in trials_of(row):
            if isinstance(trial.result, TrialOk) and trial.config_hash in configs:
                yield configs[trial.config_hash], trial.result
