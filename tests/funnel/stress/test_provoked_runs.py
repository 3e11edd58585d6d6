"""Verdicts on small runs that really fail, because their configs provoke it."""

from typing import Any

import numpy as np
import pytest
import torch

from tests.support.configs import config
from tests.support.corpora import VOCAB_SIZE, byte_stream
from tests.support.curves import judged
from tests.support.texts import make_texts
from trainer.backends import choose_backend
from trainer.schema import Budget, CurvePoint, TrialFailed
from trainer.training.schedule import Batches, Schedule
from trainer.training.train import TrialStopped, train
from trajectory.rows import StressVerdict

pytestmark = pytest.mark.slow

STEPS = 300
CPU = torch.device("cpu")
UNCLIPPED = 1e9
BROKEN = range(150, 153)
"""Steps whose targets are noise."""


class Broken(Batches):
    """Sound batches, except for three in the middle."""

    def __call__(self, step: int) -> tuple[torch.Tensor, torch.Tensor]:
        tokens_BT, targets_BT = super().__call__(step)
        if step in BROKEN:
            noise = torch.Generator().manual_seed(step)
            targets_BT = torch.randint(VOCAB_SIZE, targets_BT.shape, generator=noise)
        return tokens_BT, targets_BT


def run(seed: int = 1, **changes: Any) -> tuple[StressVerdict, list[CurvePoint]]:
    """Train a full schedule on words; return the verdict and the curve."""
    small = {"n_layer": 2, "n_head": 2, "d_model": 32, "d_ff": 64, "seq_len": 32}
    recipe = config(**{**small, "precision": "fp32", "lr": 3e-3, **changes})
    torch.manual_seed(seed)
    model = choose_backend("torch").build(recipe, VOCAB_SIZE, CPU)
    text = byte_stream([text.encode() for text in make_texts(200, size=2000)])
    batches = Batches(
        text, seed=seed, batch_size=recipe.batch_size, seq_len=recipe.seq_len, device=CPU
    )
    curve: list[CurvePoint] = []
    failed = None
    try:
        schedule = Schedule(recipe, Budget(amount=STEPS), None)
        train(model, batches, schedule, log_every=1, prune=None, report=curve.append)
    except TrialStopped as stopped:
        failed = TrialFailed(status=stopped.status, message=str(stopped), steps=stopped.steps)
    return judged(curve, failed, steps=STEPS, warmup=recipe.lr_warmup), curve


def test_a_sound_recipe_survives() -> None:
    verdict, _ = run()
    assert verdict.outcome == "survives"


def test_a_learning_rate_that_is_far_too_high_diverges_or_leaves_all_bounds() -> None:
    verdict, curve = run(lr=3.0, lr_warmup=100, lr_min_ratio=1.0, grad_clip=UNCLIPPED)
    assert verdict.outcome == "diverges"
    assert min(point.loss for point in curve) < curve[-1].loss - 1.0
    verdict, curve = run(lr=30.0, lr_warmup=100, grad_clip=UNCLIPPED)
    assert verdict.outcome == "nonfinite"
    assert verdict.step == curve[-1].step + 1 < STEPS


def test_a_few_broken_batches_are_a_spike(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three batches of a sound recipe have noise as targets, as a damaged shard would produce."""
    monkeypatch.setitem(globals(), "Batches", Broken)
    verdict, curve = run(grad_clip=UNCLIPPED)
    assert (verdict.outcome, verdict.step) == ("spikes", BROKEN.start)
    loss = np.array([point.loss for point in curve])
    assert loss[BROKEN.start - 1 : BROKEN.stop].max() > np.median(loss[100:140]) + 3.0
    assert np.median(loss[-10:]) < np.median(loss[100:140])
