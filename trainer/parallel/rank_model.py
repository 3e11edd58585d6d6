"""Distribute a model over the ranks of a layout, and train the steps of a job.

Tensor parallelism is DTensor's ``parallelize_module``. Queries, keys, values and the first matrices
of the feed-forward block are split by columns, the two that write to the residual stream by rows;
embeddings, head and norms stay whole. Pipeline parallelism is ``torch.distributed.pipelining``
(GPipe), data parallelism DDP or FSDP2's ``fully_shard``.
"""

from __future__ import annotations

from contextlib import nullcontext

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    ParallelStyle,
    RowwiseParallel,
    parallelize_module,
)
from torch.nn.parallel import DistributedDataParallel

from trainer.parallel.job import Layout, LayoutLosses, ParallelJob
from trainer.parallel.model import ParallelGPT, loss_of
from trainer.spec import Budget
from trainer.training.schedule import Batches, Schedule

EPS = 1e-8
"""AdamW's epsilon, as in :mod:`trainer.backends.optimizer`."""


class RankModel:
    """One rank's part of the model, its optimizer, and what it shares with the others."""

    def __init__(self, job: ParallelJob, layout: Layout, device: torch.device) -> None:
        """Draw the whole model from the seed on every rank, and keep this rank's part."""
        self._layout = layout
        self._device = device
        self._clip = job.config.grad_clip
        self._mesh = _mesh(layout, device)
        model = ParallelGPT(job.config, job.vocab_size)
        model.init(torch.Generator().manual_seed(job.seed))
        if layout.pipeline > 1:
            model.keep_stage(self._stage, layout.pipeline)
        model.to(device)
        self._parts = model
        self._replica = self._parallelized(model)
        self._pipeline = self._schedule() if layout.pipeline > 1 else None
        self._optimizer = _adamw(model, job)

    def rows(self, batch_size: int) -> slice:
        """Return this rank's rows of the global batch."""
        share = batch_size // self._layout.data
        return slice(share * self._data_rank, share * (self._data_rank + 1))

    def step(self, tokens_BT: Tensor, targets_BT: Tensor, lr: float) -> tuple[float, float]:
        """Train on this rank's rows of the batch.

        :return: loss and gradient norm of the global batch, equal on every rank.
        """
        loss = self._forward_backward(tokens_BT, targets_BT)
        self._share_tied_gradient()
        self._share_head_gains_gradients()
        norm = self._grad_norm()
        for parameter in self._parts.parameters():
            if parameter.grad is not None:
                parameter.grad.div_(max(norm / self._clip, 1.0))
        for group in self._optimizer.param_groups:
            group["lr"] = lr * group["lr_factor"]
        self._optimizer.step()
        self._optimizer.zero_grad()
        return self._mean_loss(loss), norm

    # --- the ranks ----------------------------------------------------------------------------

    @property
    def _stage(self) -> int:
        return 0 if self._mesh is None else self._mesh.get_local_rank("pipeline")

    @property
    def _data_rank(self) -> int:
        return 0 if self._mesh is None else self._mesh.get_local_rank("data")

    def _parallelized(self, model: ParallelGPT) -> nn.Module:
        mesh, layout = self._mesh, self._layout
        if mesh is None:
            return model
        if layout.tensor > 1:
            for block in model.blocks:
                parallelize_module(
                    block, mesh["tensor"], _tensor_plan(gated=block.gate is not None)
                )
        if layout.data == 1:
            return model
        if layout.sharded:
            for block in model.blocks:
                fully_shard(block, mesh=mesh["data"])
            fully_shard(model, mesh=mesh["data"])
            return model
        return DistributedDataParallel(model, process_group=mesh.get_group("data"))

    def _schedule(self) -> ScheduleGPipe:
        assert self._mesh is not None
        stage = PipelineStage(
            self._replica,
            self._stage,
            self._layout.pipeline,
            self._device,
            group=self._mesh.get_group("pipeline"),
        )
        return ScheduleGPipe(stage, n_microbatches=self._layout.pipeline, loss_fn=loss_of)

    # --- a step -------------------------------------------------------------------------------

    def _forward_backward(self, tokens_BT: Tensor, targets_BT: Tensor) -> Tensor | None:
        """Return the loss of this rank's rows, if this rank has it."""
        if self._pipeline is not None:
            losses: list[Tensor] = []
            inputs = (tokens_BT,) if self._stage == 0 else ()
            if self._stage == self._layout.pipeline - 1:
                self._pipeline.step(*inputs, target=targets_BT, losses=losses)
                return torch.stack(losses).mean().detach()
            self._pipeline.step(*inputs)
            return None
        with self._own_gradients():
            loss = loss_of(self._replica(tokens_BT), targets_BT)
            torch.autograd.backward(loss)
        return loss.detach()

    def _own_gradients(self) -> nullcontext[None]:
        if isinstance(self._replica, DistributedDataParallel) and not self._layout.averaged:
            return self._replica.no_sync()  # type: ignore[return-value]
        return nullcontext()

    def _share_tied_gradient(self) -> None:
        """Replace the gradients of the embedding and its tied head, on the two ends of a pipeline,
        by their sum."""
        weight = self._tied_weight()
        if weight is not None and self._mesh is not None:
            assert weight.grad is not None
            local = weight.grad.to_local() if isinstance(weight.grad, DTensor) else weight.grad
            dist.all_reduce(local, group=self._mesh.get_group("pipeline"))

    def _share_head_gains_gradients(self) -> None:
        """Sum the gradients of the gains of queries' and keys' norms, which all heads share and
        each tensor rank has in part."""
        if self._layout.tensor == 1 or self._mesh is None or not self._parts.config.qk_norm:
            return
        for name, gain_K in self._parts.named_parameters():
            if name.endswith(("query_norm.weight", "key_norm.weight")):
                assert gain_K.grad is not None
                local = gain_K.grad.to_local() if isinstance(gain_K.grad, DTensor) else gain_K.grad
                dist.all_reduce(local, group=self._mesh.get_group("tensor"))

    def _tied_weight(self) -> Tensor | None:
        if not self._parts.config.tie_embeddings or self._pipeline is None:
            return None
        if self._parts.embedding is not None:
            return self._parts.embedding.weight
        return None if self._parts.head is None else self._parts.head.weight

    def _grad_norm(self) -> float:
        """Return the norm over every parameter once, on whichever rank it is."""
        tied_copy = self._tied_weight() if self._stage > 0 else None
        square = torch.zeros((), device=self._device)
        for parameter in self._parts.parameters():
            if parameter.grad is None or parameter is tied_copy:
                continue
            grad = parameter.grad
            whole = grad.full_tensor() if isinstance(grad, DTensor) else grad
            square += whole.square().sum()
        if self._pipeline is not None and self._mesh is not None:
            dist.all_reduce(square, group=self._mesh.get_group("pipeline"))
        return float(square.sqrt())

    def _mean_loss(self, loss: Tensor | None) -> float:
        total = torch.zeros((), device=self._device) if loss is None else loss.clone()
        if self._mesh is None:
            return float(total)
        if self._pipeline is not None:
            dist.all_reduce(total, group=self._mesh.get_group("pipeline"))
        if self._layout.data > 1:
            dist.all_reduce(total, group=self._mesh.get_group("data"))
        return float(total) / self._layout.data


def _mesh(layout: Layout, device: torch.device) -> DeviceMesh | None:
    if layout.world_size == 1:
        return None
    return init_device_mesh(
        device.type,
        (layout.pipeline, layout.data, layout.tensor),
        mesh_dim_names=("pipeline", "data", "tensor"),
    )


def _tensor_plan(*, gated: bool) -> dict[str, ParallelStyle]:
    plan: dict[str, ParallelStyle] = {
        name: ColwiseParallel() for name in ("query", "key", "value", "up")
    }
    if gated:
        plan["gate"] = ColwiseParallel()
    return plan | {"out": RowwiseParallel(), "down": RowwiseParallel()}


def _adamw(model: nn.Module, job: ParallelJob) -> torch.optim.AdamW:
    """Return AdamW with decay on matrices only and the blocks' own rates, as in
    :mod:`trainer.backends.optimizer`."""
    config = job.config
    tables, in_blocks, gains = list[nn.Parameter](), list[nn.Parameter](), list[nn.Parameter]()
    for name, parameter in model.named_parameters():
        of_blocks = in_blocks if name.startswith("blocks.") else tables
        (of_blocks if parameter.dim() > 1 else gains).append(parameter)
    eps = EPS * config.width_factor * config.depth_factor
    decay = {"weight_decay": config.weight_decay}
    return torch.optim.AdamW(
        [
            {"params": tables, "lr_factor": 1.0, **decay},
            {"params": in_blocks, "lr_factor": config.width_factor, "eps": eps, **decay},
            {"params": gains, "lr_factor": 1.0, "weight_decay": 0.0},
        ],
        betas=(config.beta1, config.beta2),
        eps=EPS,
        foreach=False,
    )


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
