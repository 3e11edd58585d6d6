"""Translate a recipe and its weights to Megatron-Core. Importing this module imports Megatron-Core.

With TransformerEngine the fusions of Megatron's launchers are on. Their speed and memory are not
yet measured.

Shapes: D d_model, H heads, G heads of keys and values, K = D / H, R = (H + 2 G) × K, V vocabulary.
"""

import importlib.util
from collections.abc import Iterator

import torch
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
from trainer.backends.torch_gpt import TorchGPT
from trainer.schema import Config, Fp8Recipe

DIVISIBLE_BY = 128
"""The default of Megatron's ``--make-vocab-size-divisible-by``."""

_ACTIVATIONS = {
    "gelu": functional.gelu,
    "swiglu": functional.silu,
    "geglu": functional.gelu,
    # Megatron-Core's own version would be compiled on a CPU too.
    "relu2": lambda x: functional.relu(x).square(),
}
"""The activation functions of the first branch."""


def transformer_config(config: Config, device: torch.device, *, engine: bool) -> TransformerConfig:
    """Return Megatron-Core's options for the recipe."""
    half = config.precision != "fp32"
    fp8 = Fp8Recipe()
    in_fp8 = {
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
        params_dtype=torch.bfloat16 if half else torch.float32,
        # The weights are loaded afterwards.
        perform_initialization=False,
        use_cpu_initialization=device.type == "cpu",
        apply_rope_fusion=engine and config.positions == "rotary",
        # For the head, which is not one of TransformerEngine's layers, this needs Apex's kernel;
        # :func:`fuse_gradients` does the others.
        gradient_accumulation_fusion=half
        and engine
        and importlib.util.find_spec("fused_weight_gradient_mlp_cuda") is not None,
        # Without TransformerEngine this would need Apex too.
        masked_softmax_fusion=engine,
        bias_dropout_fusion=engine,
        bias_activation_fusion=engine and config.activation == "swiglu",
        # TransformerEngine's is unstable: Megatron-LM refuses it, Megatron-Core (0.18 on) warns of
        # it. Megatron-Core's own rounds gradients to bf16.
        cross_entropy_loss_fusion=engine and half,
        cross_entropy_fusion_impl="native",
        # Every batch is one microbatch. Without this, the layers would treat each but the first as
        # a later microbatch of the same step, and keep the first step's fp8 weights forever.
        disable_parameter_transpose_cache=True,
        **(in_fp8 if config.precision == "fp8" else {}),
    )


def layers(config: Config, *, engine: bool) -> TransformerBlockSubmodules:
    """Return the modules of every layer, and the norm after the last.

    That norm is torch's, since TransformerEngine's stand-alone norm always trains a bias. The norm
    of heads is torch's RMS norm, since Megatron-Core's would be of the same kind as the others.
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
        heads.q_layernorm = heads.k_layernorm = _HeadNorm
    return TransformerBlockSubmodules(
        layer_specs=[layer] * config.n_layer, layer_norm=WrappedTorchNorm
    )


class _HeadNorm:
    def __new__(cls, config: TransformerConfig, hidden_size: int, eps: float) -> nn.RMSNorm:  # type: ignore[misc]
        return nn.RMSNorm(hidden_size, eps, dtype=config.params_dtype)


def fuse_gradients(model: nn.Module) -> None:
    """Have TransformerEngine's products add weights' gradients to the fp32 buffers themselves."""
    for module in model.modules():
        if hasattr(module, "fuse_wgrad_accumulation"):
            module.fuse_wgrad_accumulation = True  # type: ignore[assignment]


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


_NAMES = {
    "embedding_VD": "embedding.word_embeddings.weight",
    "position_TD": "embedding.position_embeddings.weight",
    "norm.gain_D": "decoder.final_layernorm.weight",
    "head_VD": "output_layer.weight",
    "qkv_RD": "self_attention.linear_qkv.weight",
    "query_gain_K": "self_attention.q_layernorm.weight",
    "key_gain_K": "self_attention.k_layernorm.weight",
    "out_DD": "self_attention.linear_proj.weight",
    # Both keep the gate's rows before the linear branch's.
    "up_FD": "mlp.linear_fc1.weight",
    "down_DF": "mlp.linear_fc2.weight",
    "attention_norm.gain_D": "input_layernorm.weight",
    "feed_forward_norm.gain_D": "pre_mlp_layernorm.weight",
}
_FUSED_NORMS = {
    "attention_norm.gain_D": "self_attention.linear_qkv.layer_norm_weight",
    "feed_forward_norm.gain_D": "mlp.linear_fc1.layer_norm_weight",
}


def as_megatron(source: TorchGPT, *, fused_norms: bool) -> Iterator[tuple[str, Tensor]]:
    """Yield Megatron-Core's name and layout of each weight of ``source``.

    Megatron-Core groups the rows of the attention's input projection by head of keys and values.
    Its word tables end with rows of 0.

    :param fused_norms: name norms after the matrix that follows, as TransformerEngine's layers do.
    """
    names = {**_NAMES, **(_FUSED_NORMS if fused_norms else {})}
    n_head, groups = source.config.n_head, source.config.kv_heads
    for name, parameter in source.named_parameters():
        weight, rest, layer = parameter.detach(), name, ""
        if name.startswith("blocks."):
            _, number, rest = name.split(".", 2)
            layer = f"decoder.layers.{number}."
        if rest == "qkv_RD":
            heads_HKD = weight.view(n_head + 2 * groups, -1, weight.shape[1])
            q_HKD, k_GKD, v_GKD = heads_HKD.split_with_sizes((n_head, groups, groups))
            q_GhKD = q_HKD.view(groups, n_head // groups, *q_HKD.shape[1:])
            by_group = torch.cat((q_GhKD, k_GKD[:, None], v_GKD[:, None]), dim=1)
            weight = by_group.reshape(weight.shape)
        elif rest in {"embedding_VD", "head_VD"}:
            weight = functional.pad(weight, (0, 0, 0, -len(weight) % DIVISIBLE_BY))
        yield layer + names[rest], weight
