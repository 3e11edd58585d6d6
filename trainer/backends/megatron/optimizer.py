"""Train in bf16 with fp32 main weights, through Megatron-Core's own wrappers.

Importing this module imports Megatron-Core. The wrappers are combined as in Megatron's launchers:

- ``Float16Module`` around the model;
- ``DistributedDataParallel`` around that, whose buffers add gradients up in fp32 (``main_grad``);
- ``Float16OptimizerWithFloat16Params``, which keeps an fp32 copy of every weight, lets Adam update
  it, and copies it back. Adam is TransformerEngine's or Apex's fused one if available, else
  torch's.

Each parameter takes 2 + 4 + 4 + 8 bytes: weight, gradient, main weight, moments.
``DistributedOptimizer`` would divide the last twelve among ranks, but here there is only one.
"""

import math

import torch
from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig
from megatron.core.optimizer import (
    OptimizerConfig,
    get_megatron_optimizer,
    get_standard_config_overrides,
)
from megatron.core.optimizer.optimizer_config import ParamKey, ParamWithNamePredicate
from megatron.core.transformer import TransformerConfig
from megatron.core.transformer.module import Float16Module
from torch import Tensor, nn

from trainer.backends.kernels import ADAM_EPS
from trainer.backends.optimizer import PLAIN, block_rates
from trainer.spec import Config


def is_block_matrix(name: str, parameter: nn.Parameter) -> bool:
    """Return whether a parameter is a matrix of the blocks, by Megatron-Core's names."""
    return "decoder.layers." in name and parameter.dim() > 1


_IN_BLOCKS = ParamKey(
    with_name_predicate=ParamWithNamePredicate(
        name="block_matrices", fn=lambda parameter, name: is_block_matrix(name, parameter)
    )
)


def mixed(options: TransformerConfig, model: nn.Module) -> DistributedDataParallel:
    """Wrap ``model``, a ``GPTModel``, in bf16 with fp32 buffers for its gradients, which are zero.

    A backward pass adds to ``main_grad`` of every parameter and leaves its ``grad`` None.
    """
    buffers = DistributedDataParallelConfig(
        grad_reduce_in_fp32=True, overlap_grad_reduce=False, use_distributed_optimizer=False
    )
    return DistributedDataParallel(options, buffers, Float16Module(options, model))


class MegatronAdamW:
    """An :class:`trainer.backends.optimizer.Optimizer` built on Megatron-Core's.

    Decoupled weight decay applies to matrices only, Megatron-Core's default.
    """

    def __init__(self, model: DistributedDataParallel, config: Config) -> None:
        """:param model: a result of :func:`mixed` with loaded weights, from which the main weights
        are copied."""
        settings = OptimizerConfig(
            optimizer="adam",
            lr=config.lr,
            weight_decay=config.weight_decay,
            adam_beta1=config.beta1,
            adam_beta2=config.beta2,
            adam_eps=ADAM_EPS,
            clip_grad=config.grad_clip,
            bf16=True,
            params_dtype=torch.bfloat16,
        )
        rates = block_rates(config)
        overrides = get_standard_config_overrides(config=settings)
        if rates != PLAIN:
            # Megatron-Core's own maximal-update parametrization does the same from 0.17 on.
            overrides[_IN_BLOCKS] = {"lr_mult": rates.lr, "eps": ADAM_EPS * rates.eps}
        chained = get_megatron_optimizer(
            settings, [model], config_overrides=overrides, use_gloo_process_groups=False
        )
        # The one optimizer is for the dense parameters; experts' parameters would have another.
        (self._optimizer,) = chained.chained_optimizers
        self._model = model
        self._grad_clip = config.grad_clip
        self._stopped = False
        for group in self._optimizer.param_groups:
            # Megatron's scheduler does this, since its decay may change during training.
            group["weight_decay"] = config.weight_decay * group["wd_mult"]

    @torch.no_grad()
    def step(self, loss: Tensor, lr: float) -> Tensor:
        """See :class:`trainer.backends.optimizer.Optimizer`.

        The host waits for the device here, since Megatron's clipping needs the norm as a number.
        """
        self._optimizer.prepare_grads()
        grad_norm: float = self._optimizer.clip_grad_norm(self._grad_clip)
        self._stopped |= not (math.isfinite(grad_norm) and math.isfinite(loss.item()))
        if not self._stopped:
            for group in self._optimizer.param_groups:
                group["lr"] = lr * group.get("lr_mult", 1.0)
            self._optimizer.step_with_ready_grads()
        self._model.zero_grad_buffer()
        return torch.tensor(grad_norm, device=loss.device)
