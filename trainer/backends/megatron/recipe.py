"""Translate a recipe into Megatron-Core's options. Importing this module imports Megatron-Core.

With these options it computes the same as :class:`~trainer.backends.torch_gpt.TorchGPT`: GELU by
the error function, rotary pairs (i, i + K/2), norms with epsilon 1e-5 and without bias, no dropout.

The vocabulary is padded to a multiple of 128, as Megatron's launchers do, without changing any
result. Rows of an odd vocabulary are not aligned for wide loads, so matrix products over them run
at a fraction of the speed (50,257 words in bf16 are 100,514 bytes, 2 past a multiple of 16).
Megatron pads, and the model learns that the added words never occur. Here their logits are minus
infinity, so the softmax gives them no probability and no gradient. Their rows, 0 at the start, stay
0.

Shapes: T tokens, B sequences, D d_model, V vocabulary, W padded vocabulary.
"""

import importlib.util
import math
from typing import Any

import torch
from megatron.core.models.gpt import GPTModel
from megatron.core.models.gpt.gpt_layer_specs import (
    get_gpt_layer_local_spec,
    get_gpt_layer_with_transformer_engine_spec,
)
from megatron.core.transformer import TransformerConfig
from megatron.core.transformer.torch_norm import WrappedTorchNorm
from megatron.core.transformer.transformer_block import TransformerBlockSubmodules
from torch import Tensor, nn
from torch.nn import functional

from trainer.backends.kernels import NORM_EPS
from trainer.backends.megatron.weights import filled_up
from trainer.spec import Config, Fp8Recipe


def transformer_config(
    config: Config, device: torch.device, *, engine: bool, fp8: Fp8Recipe, dtype: torch.dtype
) -> TransformerConfig:
    """Return Megatron-Core's options for the recipe; ``dtype`` is that of the weights."""
    half = dtype is torch.bfloat16
    options: dict[str, Any] = {}
    if config.precision == "fp8":
        options = {
            "fp8": fp8.format,
            "fp8_recipe": "delayed",
            "fp8_margin": fp8.margin,
            "fp8_amax_history_len": fp8.amax_history_len,
            "fp8_amax_compute_algo": fp8.amax_compute_algo,
        }
    return TransformerConfig(
        num_layers=config.n_layer,
        hidden_size=config.d_model,
        num_attention_heads=config.n_head,
        num_query_groups=config.kv_heads,
        ffn_hidden_size=config.d_ff,
        gated_linear_unit=config.gated,
        activation_func=_ACTIVATIONS[config.activation],
        qk_layernorm=config.qk_norm,
        normalization="RMSNorm" if config.norm == "rmsnorm" else "LayerNorm",
        layernorm_epsilon=NORM_EPS,
        add_bias_linear=False,
        hidden_dropout=0.0,
        attention_dropout=0.0,
        bf16=half,
        params_dtype=dtype,
        # The weights are loaded afterwards.
        perform_initialization=False,
        use_cpu_initialization=device.type == "cpu",
        apply_rope_fusion=engine and config.positions == "rotary",
        # The products themselves write weights' gradients to the fp32 buffers, if Apex's kernel is
        # available for the head, which is not one of TransformerEngine's layers.
        gradient_accumulation_fusion=half
        and engine
        and importlib.util.find_spec("fused_weight_gradient_mlp_cuda") is not None,
        # This would need Apex too, for layers without TransformerEngine.
        masked_softmax_fusion=False,
        # Every batch is one microbatch. Without this, the layers would treat each but the first as
        # a later microbatch of the same step, and keep the first step's fp8 weights forever.
        disable_parameter_transpose_cache=True,
        **options,
    )


def layers(config: Config, *, engine: bool) -> TransformerBlockSubmodules:
    """Return the modules of every layer, and the norm after the last.

    That norm is torch's, since TransformerEngine's stand-alone norm always trains a bias.
    """
    if engine:
        layer = get_gpt_layer_with_transformer_engine_spec(qk_layernorm=config.qk_norm)
    else:
        layer = get_gpt_layer_local_spec(qk_layernorm=config.qk_norm)
        # Otherwise Megatron-Core would use Apex's norms if they are installed.
        layer.submodules.input_layernorm = WrappedTorchNorm
        layer.submodules.pre_mlp_layernorm = WrappedTorchNorm
    if config.qk_norm:
        heads = layer.submodules.self_attention.submodules
        heads.q_layernorm = heads.k_layernorm = HeadNorm
    return TransformerBlockSubmodules(
        layer_specs=[layer] * config.n_layer, layer_norm=WrappedTorchNorm
    )


_ACTIVATIONS = {
    "gelu": functional.gelu,
    "swiglu": functional.silu,
    "geglu": functional.gelu,
    # Megatron-Core's own version compiles at its first call, but a trial has no compiler.
    "relu2": lambda x: functional.relu(x).square(),
}
"""The activation functions of the first branch."""


class HeadNorm:
    """A factory of torch's RMS norm for heads.

    Megatron-Core's own norm of heads would be of the same kind as the other norms.
    """

    def __new__(cls, config: TransformerConfig, hidden_size: int, eps: float) -> nn.RMSNorm:  # type: ignore[misc]
        return nn.RMSNorm(hidden_size, eps, dtype=config.params_dtype)


def remove_norm_biases(model: nn.Module) -> None:
    """Remove the biases from every LayerNorm, since Megatron-Core has no option to omit them.

    TransformerEngine's fused norm still reads a bias, so there it becomes a constant zero.
    """
    for module in model.modules():
        if isinstance(module, nn.LayerNorm):
            module.register_parameter("bias", None)
        elif "layer_norm_bias" in dict(module.named_parameters(recurse=False)):
            zero_D = torch.zeros_like(module.get_parameter("layer_norm_bias"), requires_grad=False)
            del module.layer_norm_bias
            module.register_buffer("layer_norm_bias", zero_D, persistent=False)


class FilledUpGPT(GPTModel):  # type: ignore[misc]
    """A ``GPTModel`` of W words, the last W - V of which occur in no text."""

    def __init__(self, *, words: int, **options: Any) -> None:
        """:param words: V; the others are ``GPTModel``'s own arguments except ``vocab_size``."""
        super().__init__(vocab_size=filled_up(words), **options)
        self.words = words

    def compute_language_model_loss(self, labels: Tensor, logits: Tensor) -> Tensor:
        """Return ``nll_BT`` over V words from ``labels_BT`` and ``logits_TBW``."""
        loss_BT: Tensor = super().compute_language_model_loss(labels, without(logits, self.words))
        return loss_BT


def without(logits_TBW: Tensor, words: int) -> Tensor:
    """Overwrite the tensor with minus infinity from column ``words`` on, and return it.

    Neither pass copies the V columns. In the backward pass the gradient of the overwritten columns
    is already 0, since their probability in the softmax is 0.
    """
    if logits_TBW.shape[-1] == words:
        return logits_TBW
    masked: Tensor = _Without.apply(logits_TBW, words)  # type: ignore[no-untyped-call]
    return masked


class _Without(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, logits_TBW: Tensor, words: int) -> Tensor:
        ctx.mark_dirty(logits_TBW)
        logits_TBW[..., words:] = -math.inf
        return logits_TBW

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return gradients[0], None
