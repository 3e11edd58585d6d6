"""Count the hand-written reference's training step in the same way as the trainer's.

Three parts of it do not run on the meta device and are replaced. Autocast has no dispatch key
there, so :class:`_Autocast` applies CUDA's policies to the operators that the reference calls.
``clip_grad_norm_`` and ``torch.optim.AdamW(fused=True)`` refuse the device, so this module makes
the calls that they make on CUDA.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from bench.reference_gpt import ReferenceGPT
from trainer.accounting.counter import Counter
from trainer.accounting.work import StepCounts
from trainer.envelope.counted_step import META
from trainer.spec import Config
from trainer.training.scoring import LOGITS_PER_PASS, TOKENS_PER_CUDA_PASS


def count_reference_step(config: Config, vocab_size: int) -> StepCounts:
    """Count forward, backward, clipping and AdamW of :func:`bench.reference_gpt.train`."""
    counter = Counter()
    with counter.watching():
        with META:
            model = ReferenceGPT(config, vocab_size)
        model.bf16 = False  # torch's own autocast; ours is below
        model.train()
        counter.head_weight(model.tokens.weight)
        optimizer = _FusedAdamW(model)
        shape = (config.batch_size, config.seq_len)
        tokens_BT, targets_BT = (torch.empty(shape, dtype=torch.int64, device=META) for _ in "ab")
        with counter.phase("forward"), _Autocast(enabled=config.precision == "bf16"):
            loss = model(tokens_BT, targets_BT)
        with counter.phase("backward"):
            loss.backward()
        with counter.phase("update"):
            _clip([p.grad for p in model.parameters() if p.grad is not None], config.grad_clip)
            optimizer.step()
            model.zero_grad(set_to_none=True)
    return counter.counts()


def count_reference_scoring(config: Config, vocab_size: int) -> tuple[StepCounts, int]:
    """Count one pass of the reference's evaluation, which holds all logits, and its tokens."""
    counter = Counter()
    sequences = max(1, min(TOKENS_PER_CUDA_PASS, LOGITS_PER_PASS // vocab_size) // config.seq_len)
    shape = (sequences, config.seq_len)
    with counter.watching(), torch.no_grad():
        with META:
            model = ReferenceGPT(config, vocab_size)
        model.bf16 = False
        model.eval()
        tokens_BT, targets_BT = (torch.empty(shape, dtype=torch.int64, device=META) for _ in "ab")
        with counter.phase("forward"), _Autocast(enabled=config.precision == "bf16"):
            model(tokens_BT, targets_BT).sum(dtype=torch.float64)
    return counter.counts(), sequences * config.seq_len


class _Autocast(TorchFunctionMode):
    """Run products and attention in bf16, norms and the loss in fp32; cast a weight once a step.

    torch's documentation lists the operators: "CUDA Ops that can autocast to float16" and "to
    float32".
    """

    def __init__(self, *, enabled: bool) -> None:
        super().__init__()
        self._enabled = enabled
        self._casts: dict[int, Tensor] = {}

    def __torch_function__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        options = dict(kwargs or {})
        if not self._enabled:
            return func(*args, **options)
        if func in {functional.linear, functional.scaled_dot_product_attention}:
            args = tuple(self._cast(a, torch.bfloat16) for a in args)
        elif func in {functional.layer_norm, functional.cross_entropy}:
            args = tuple(self._cast(a, torch.float32) for a in args)
        return func(*args, **options)

    def _cast(self, value: Any, dtype: torch.dtype) -> Any:
        kept = {dtype, torch.float64}
        if not isinstance(value, Tensor) or not value.is_floating_point() or value.dtype in kept:
            return value
        if not isinstance(value, nn.Parameter):
            return value.to(dtype)
        if id(value) not in self._casts:
            self._casts[id(value)] = value.to(dtype)
        return self._casts[id(value)]


@torch.no_grad()
def _clip(gradients: list[Tensor], largest: float) -> None:
    """Make the calls of ``nn.utils.clip_grad_norm_`` with ``foreach``."""
    norm = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(gradients)))
    torch._foreach_mul_(gradients, (largest / (norm + 1e-6)).clamp(max=1.0))


class _FusedAdamW:
    """The calls of ``torch.optim.AdamW(fused=True)``, with its state created at the start."""

    def __init__(self, model: nn.Module) -> None:
        parameters = list(model.parameters())
        self._groups = [
            [p for p in parameters if p.dim() > 1],
            [p for p in parameters if p.dim() <= 1],
        ]
        self._state = [
            ([torch.zeros_like(p) for p in group], [torch.zeros_like(p) for p in group])
            for group in self._groups
        ]
        self._steps = [[torch.zeros((), device=META) for _ in group] for group in self._groups]

    @torch.no_grad()
    def step(self) -> None:
        """Update every parameter."""
        for group, moments, steps in zip(self._groups, self._state, self._steps, strict=True):
            torch._foreach_add_(steps, 1)
            torch._fused_adamw_(
                list(group),
                [p.grad for p in group if p.grad is not None],
                *moments,
                [],
                steps,
                lr=1e-3,
                beta1=0.9,
                beta2=0.95,
                weight_decay=0.0,
                eps=1e-8,
                amsgrad=False,
                maximize=False,
            )
