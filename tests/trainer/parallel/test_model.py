"""The modules that torch's parallel tools take agree with the reference backend."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.support.configs import PAIRWISE, config
from tests.support.recipes import PARTS
from trainer.backends.torch_gpt import TorchBackend, TorchGPT
from trainer.parallel.job import SINGLE, ParallelJob
from trainer.parallel.model import ParallelGPT, loss_of
from trainer.parallel.rank_model import RankModel
from trainer.spec import Budget, Config, CurvePoint
from trainer.training.schedule import Batches, Schedule
from trainer.training.train import train

VOCAB = 97
CPU = torch.device("cpu")


def small(**changes: Any) -> Config:
    shape = {"n_layer": 2, "n_head": 4, "d_model": 32, "d_ff": 48, "seq_len": 16, "batch_size": 4}
    return config(precision="fp32", lr_warmup=0, **shape | changes)


@torch.no_grad()
def reference_with(weights: ParallelGPT, of: Config) -> TorchGPT:
    """Return the reference model with these weights, each KV head repeated for every head it
    serves."""
    repeats = of.n_head // of.kv_heads
    model = TorchBackend().build(of.model_copy(update={"n_kv_head": None}), VOCAB, CPU)
    named = dict(model.named_parameters())
    assert weights.embedding is not None
    assert weights.head is not None
    named["embedding_VD"].copy_(weights.embedding.weight)
    if weights.positions is not None:
        named["position_TD"].copy_(weights.positions.weight)
    if not of.tie_embeddings:
        named["head_VD"].copy_(weights.head.weight)
    for block, mine in zip(model.blocks, weights.blocks, strict=True):
        theirs = {name.split("_")[0]: p for name, p in block.named_parameters()}
        head_dim = of.d_model // of.n_head

        def spread(matrix: Tensor, head_dim: int = head_dim) -> Tensor:
            return matrix.unflatten(0, (-1, head_dim)).repeat_interleave(repeats, 0).flatten(0, 1)

        qkv = (mine.query.weight, spread(mine.key.weight), spread(mine.value.weight))
        theirs["qkv"].copy_(torch.cat(qkv))
        theirs["out"].copy_(mine.out.weight)
        up = (mine.up.weight,) if mine.gate is None else (mine.gate.weight, mine.up.weight)
        theirs["up"].copy_(torch.cat(up))
        theirs["down"].copy_(mine.down.weight)
        if of.qk_norm:
            theirs["query"].copy_(mine.query_norm.weight)
            theirs["key"].copy_(mine.key_norm.weight)
    return model


@pytest.mark.parametrize(
    ("activation", "norm", "positions", "tied", "kv_heads"),
    [
        (*choice, kv_heads)
        for choice, kv_heads in zip(PAIRWISE, itertools.cycle((None, 2, 1)), strict=False)
    ],
)
def test_the_same_weights_give_the_same_loss_and_gradient(
    activation: str, norm: str, positions: str, tied: bool, kv_heads: int | None
) -> None:
    of = small(
        activation=activation,
        norm=norm,
        positions=positions,
        tie_embeddings=tied,
        n_kv_head=kv_heads,
    )
    mine = ParallelGPT(of, VOCAB)
    mine.init(torch.Generator().manual_seed(1))
    with torch.no_grad():
        for parameter in mine.parameters():  # scores far from uniform show a wrong position or head
            parameter.mul_(5)
    theirs = reference_with(mine, of)
    with torch.no_grad():
        for parameter in theirs.parameters():
            if parameter.dim() == 1:
                parameter.mul_(5)
    tokens_BT = torch.randint(VOCAB, (4, 16), generator=torch.Generator().manual_seed(2))
    targets_BT = tokens_BT.roll(-1, 1)
    loss = loss_of(mine(tokens_BT), targets_BT)
    reference = theirs(tokens_BT, targets_BT).mean()
    torch.testing.assert_close(loss, reference, rtol=1e-5, atol=1e-6)
    torch.autograd.backward((loss, reference))
    assert mine.embedding is not None
    grad, wanted = mine.embedding.weight.grad, theirs.embedding_VD.grad
    assert grad is not None
    torch.testing.assert_close(grad, wanted, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize(
    "changes",
    [
        {"activation": "swiglu", "positions": "rotary", "tie_embeddings": False},
        # Grouped keys, repeated for every head, would train apart.
        *({**changes, "n_kv_head": None} for changes in PARTS[::6]),
    ],
    ids=str,
)
def test_a_single_process_trains_as_a_trial_does(changes: dict[str, Any]) -> None:
    of = small(lr=3e-3, grad_clip=0.5, **changes)
    job = ParallelJob(
        config=of, vocab_size=VOCAB, seed=3, steps=5, device="cpu", layouts=(SINGLE,), deadline_s=60
    )
    mine = ParallelGPT(of, VOCAB)
    mine.init(torch.Generator().manual_seed(job.seed))
    tokens = np.random.default_rng(0).integers(VOCAB, size=4000)
    batches = Batches(tokens, seed=3, batch_size=of.batch_size, seq_len=of.seq_len, device=CPU)
    schedule = Schedule(of, Budget(amount=5), None)
    points: list[CurvePoint] = []
    train(
        reference_with(mine, of), batches, schedule, log_every=1, prune=None, report=points.append
    )
    rank_model = RankModel(job, SINGLE, CPU)
    for point in points:
        loss, norm = rank_model.step(*batches(point.step), schedule.lr(point.step, 0.0))
        assert loss == pytest.approx(point.loss, rel=1e-5)
        assert norm == pytest.approx(point.grad_norm, rel=1e-4)


def test_the_stages_of_a_pipeline_are_the_whole_model() -> None:
    of = small(tie_embeddings=True)
    whole = ParallelGPT(of, VOCAB)
    whole.init(torch.Generator().manual_seed(1))
    stages = []
    for stage in range(2):
        part = ParallelGPT(of, VOCAB)
        part.init(torch.Generator().manual_seed(1))
        part.keep_stage(stage, 2)
        stages.append(part)
    first, last = stages
    tokens_BT = torch.arange(32).view(2, 16)
    torch.testing.assert_close(last(first(tokens_BT)), whole(tokens_BT))
    assert first.head is None
    assert last.embedding is None
