"""Estimate how fast this machine trains a new shape, from the campaign's own short runs.

A step takes ``a (n_layer + 2) + b FLOPs``. The first term is the cost of a layer whatever its
width, with the embedding and the optimizer as two more layers; the second is the arithmetic. Both
coefficients are fitted by least squares of relative errors to every short run that has a time, and
neither is negative.

If all runs had about one shape, the two terms cannot be separated and the arithmetic takes all of
the time. That makes small shapes look faster than they are, but a ladder spends its time on its
largest rungs. Scoring is estimated by arithmetic alone.
"""

from collections.abc import Iterable, Iterator
from statistics import median

import numpy as np
from numpy.typing import NDArray

from autoresearch.errors import CampaignError
from autoresearch.values import Frozen, NonNegative
from funnel.ladder.shapes import training_flops
from trainer.spec import Config, TrialOk, gpt
from trajectory.rows import BaselineRow, IterationRow, Row, trials_of

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
