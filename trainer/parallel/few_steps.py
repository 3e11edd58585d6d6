"""Train the steps of a job on one rank, whoever started it."""

from __future__ import annotations

import numpy as np
import torch

from trainer.parallel.job import Layout, LayoutLosses, ParallelJob
from trainer.parallel.rank_model import RankModel
from trainer.spec import Budget
from trainer.training.data import Batches
from trainer.training.schedule import Schedule

TRAIN_TOKENS = 1 << 16


def train(job: ParallelJob, layout: Layout, device: torch.device) -> LayoutLosses:
    """Train the job's steps under this layout on this rank; the result is equal on all ranks."""
    config = job.config
    # Word frequencies are as unequal as in text, so that there is something to learn.
    words = np.random.default_rng(job.seed).zipf(1.3, TRAIN_TOKENS) % job.vocab_size
    batches = Batches(
        words,
        seed=job.seed,
        batch_size=config.batch_size,
        seq_len=config.seq_len,
        device=device,
    )
    schedule = Schedule(config, Budget(amount=job.steps), horizon_steps=None)
    model = RankModel(job, layout, device)
    rows = model.rows(config.batch_size)
    seen = []
    for step in range(1, job.steps + 1):
        tokens_BT, targets_BT = batches(step)
        seen.append(model.step(tokens_BT[rows], targets_BT[rows], schedule.lr(step, 0.0)))
    losses, norms = zip(*seen, strict=True)
    return LayoutLosses(name=layout.name, losses=losses, grad_norms=norms)
