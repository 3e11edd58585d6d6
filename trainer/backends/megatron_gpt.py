"""A GPT in Megatron-Core, entirely on one device. Importing this module imports Megatron-Core.

It computes the same as :class:`~trainer.backends.torch_gpt.TorchGPT` from the same weights. Its
layers are TransformerEngine's if that is installed, else Megatron-Core's own. The wrappers are
combined as in Megatron's launchers: ``Float16Module`` around the model below fp32,
``DistributedDataParallel`` with fp32 gradients around that, and Megatron's own optimizer, which
keeps an fp32 copy of bf16 weights. Each parameter then takes 2 + 4 + 4 + 8 bytes: weight, gradient,
main weight, moments. In fp32 products are TF32, exact to three digits.

The vocabulary is padded to a multiple of 128, as Megatron's launchers do, since matrix products
over an odd vocabulary run at a fraction of the speed. The logits of the added words are minus
infinity, so no loss and no score has them, and their weights stay 0.

Shapes: B sequences, T tokens, D d_model, H heads, G heads of keys and values, K = D / H,
R = (H + 2 G) × K, V vocabulary.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from megatron.core import parallel_state, tensor_parallel
from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig
from megatron.core.models.gpt import GPTModel
from megatron.core.models.gpt.gpt_layer_specs import HAVE_TE
from megatron.core.optimizer import (
    OptimizerConfig,
    get_megatron_optimizer,
    get_standard_config_overrides,
)
from megatron.core.optimizer.optimizer_config import ParamKey, ParamWithNamePredicate
from megatron.core.transformer.module import Float16Module
from torch import Tensor, distributed, nn
from torch.nn import functional
from torch.testing._internal.distributed.fake_pg import FakeStore  # registers "fake"

from autoresearch.errors import SpecError
from trainer.backends.kernels import ADAM_EPS
from trainer.backends.linear_cross_entropy import exact_nll_of_logits
from trainer.backends.megatron_recipe import (
    DIVISIBLE_BY,
    as_megatron,
    fuse_gradients,
    layers,
    remove_norm_biases,
    transformer_config,
)
from trainer.backends.optimizer import Optimizer, block_rates
from trainer.backends.products import MULTIPLE
from trainer.backends.torch_gpt import TorchGPT
from trainer.schema import Config


def build(config: Config, vocab_size: int, device: torch.device) -> MegatronGPT:
    """Build a model with the weights that the torch backend draws from the same generator.

    :raises SpecError: for fp8 without TransformerEngine, since Megatron-Core alone would silently
        train in bf16.
    """
    engine = device.type == "cuda" and bool(HAVE_TE)
    if config.precision == "fp8" and not engine:
        raise SpecError(
            f"precision fp8 needs TransformerEngine on a GPU, not Megatron-Core alone on {device};"
            " choose bf16"
        )
    source = TorchGPT(config.model_copy(update={"precision": "fp32"}), vocab_size, device)
    source.init()
    # This process is the only rank of a job, without torchrun and a network, which trials do not
    # have: torch's "fake" process group changes no tensor, like every collective of one rank.
    if not distributed.is_initialized():
        distributed.init_process_group("fake", store=FakeStore(), rank=0, world_size=1)
    if not parallel_state.model_parallel_is_initialized():
        parallel_state.initialize_model_parallel(create_gloo_process_groups=False)
    if device.type == "cuda":
        seed = torch.initial_seed() % (1 << 31)
        tensor_parallel.model_parallel_cuda_manual_seed(seed, force_reset_rng=True)
    model = MegatronGPT(config, vocab_size, device, engine=engine)
    parameters = dict(model.gpt.named_parameters())
    with torch.no_grad():
        for name, weight in as_megatron(source, fused_norms=engine):
            parameters.pop(name).copy_(weight)
    assert not parameters, f"weights that the torch backend does not have: {[*parameters]}"
    return model


class MegatronGPT(nn.Module):
    """A ``GPTModel`` with the interface of :class:`trainer.backends.Backend`.

    Its weights are undefined until loaded. A backward pass adds to ``main_grad`` of every
    parameter and leaves its ``grad`` None.
    """

    def __init__(
        self, config: Config, vocab_size: int, device: torch.device, *, engine: bool
    ) -> None:
        super().__init__()
        self._engine, self._vocab_size = engine, vocab_size
        self._multiple = MULTIPLE if config.precision == "fp8" else 1
        options = transformer_config(config, device, engine=engine)
        self.gpt: nn.Module = GPTModel(
            vocab_size=-(-vocab_size // DIVISIBLE_BY) * DIVISIBLE_BY,
            config=options,
            transformer_layer_spec=layers(config, engine=engine),
            max_sequence_length=config.seq_len,
            share_embeddings_and_output_weights=config.tie_embeddings,
            position_embedding_type="learned_absolute" if config.positions == "learned" else "rope",
            rotary_base=config.rope_base,
        ).to(device)
        remove_norm_biases(self.gpt)
        if engine and options.bf16:
            fuse_gradients(self.gpt)
        self.gpt.output_layer.register_forward_hook(self._without_added_words)
        if config.width_factor != 1.0:
            # Maximal update's logit factor applies to the head's input.
            self.gpt.decoder.final_layernorm.register_forward_hook(
                lambda _module, _inputs, normed_TBD: normed_TBD * config.width_factor
            )
        # Logits stay bf16, which the loss and the score expect.
        self._call_options = {"fp32_output": False} if options.bf16 else {}
        buffers = DistributedDataParallelConfig(
            grad_reduce_in_fp32=True, overlap_grad_reduce=False, use_distributed_optimizer=False
        )
        inner = Float16Module(options, self.gpt) if options.bf16 else self.gpt
        self._wrapped = DistributedDataParallel(options, buffers, inner)

    def _without_added_words(self, _head: nn.Module, _inputs: Any, output: Any) -> None:
        """Take the added words out of the head's logits, in place."""
        output[0][..., self._vocab_size :] = -math.inf

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Drop all gradients, those in Megatron's buffers included."""
        super().zero_grad(set_to_none)
        self._wrapped.zero_grad_buffer()

    def optimizer(self, config: Config) -> Optimizer:
        """See :class:`trainer.backends.optimizer.BringsOptimizer`."""
        return MegatronAdamW(self._wrapped, config)

    def forward(self, tokens_BT: Tensor, targets_BT: Tensor) -> Tensor:
        """See :meth:`trainer.backends.Backend.build`."""
        if self.training:
            losses_BT = self._run(tokens_BT, labels=self._padded(targets_BT))
            return losses_BT[:, : targets_BT.shape[1]].mean()
        logits_NV = self._logits(tokens_BT).flatten(0, 1)
        return exact_nll_of_logits(logits_NV, targets_BT.flatten()).view_as(targets_BT)

    def logits(self, tokens_BT: Tensor) -> Tensor:
        """Return ``logits_BTV``, fp32."""
        return self._logits(tokens_BT).float()

    def _logits(self, tokens_BT: Tensor) -> Tensor:
        """Return ``logits_BTV`` in the precision of the matrix products."""
        return self._run(tokens_BT)[:, : tokens_BT.shape[1], : self._vocab_size]

    def _padded(self, tokens_BT: Tensor) -> Tensor:
        """Return sequences of a length that fp8 takes, a multiple of 16.

        The padding comes after every token that is scored, and no token sees a later one.
        """
        return functional.pad(tokens_BT, (0, -tokens_BT.shape[1] % self._multiple))

    def _run(self, tokens_BT: Tensor, **labels: Tensor) -> Tensor:
        """Return the padded sequences' logits, or with labels their losses."""
        tokens_BT = self._padded(tokens_BT)
        padded = tokens_BT.shape[1]
        positions_BT = torch.arange(padded, device=tokens_BT.device).expand_as(tokens_BT)
        mask_11TT = None  # TransformerEngine's attention is causal without a mask
        if not self._engine:
            whole_TT = torch.ones(padded, padded, dtype=torch.bool, device=tokens_BT.device)
            mask_11TT = whole_TT.triu(1)[None, None]
        output: Tensor = self._wrapped(
            tokens_BT, positions_BT, mask_11TT, **labels, **self._call_options
        )
        return output


class MegatronAdamW:
    """An :class:`trainer.backends.optimizer.Optimizer` built on Megatron-Core's.

    Decoupled weight decay applies to matrices only, Megatron-Core's default.
    """

    def __init__(self, model: DistributedDataParallel, config: Config) -> None:
        """:param model: a model with loaded weights, from which main weights are copied."""
        bf16 = config.precision != "fp32"
        settings = OptimizerConfig(
            optimizer="adam",
            lr=config.lr,
            weight_decay=config.weight_decay,
            adam_beta1=config.beta1,
            adam_beta2=config.beta2,
            adam_eps=ADAM_EPS,
            clip_grad=config.grad_clip,
            bf16=bf16,
            params_dtype=torch.bfloat16 if bf16 else torch.float32,
        )
        overrides = get_standard_config_overrides(config=settings)
        in_blocks = ParamWithNamePredicate(
            name="block_matrices", fn=lambda p, name: "decoder.layers." in name and p.dim() > 1
        )
        rates = block_rates(config)
        # Megatron-Core's own maximal-update parametrization does the same from 0.17 on.
        overrides[ParamKey(with_name_predicate=in_blocks)] = {
            "lr_mult": rates.lr,
            "eps": ADAM_EPS * rates.eps,
        }
        chained = get_megatron_optimizer(
            settings, [model], config_overrides=overrides, use_gloo_process_groups=False
        )
        # The one optimizer is for the dense parameters; experts' parameters would have another.
        (self._optimizer,) = chained.chained_optimizers
        self._model, self._grad_clip, self._stopped = model, config.grad_clip, False
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
        self._optimizer.zero_grad()
        self._model.zero_grad_buffer()
        return torch.tensor(grad_norm, device=loss.device)
