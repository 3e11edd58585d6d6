"""Map each weight of :class:`~trainer.backends.torch_gpt.TorchGPT` to its place in Megatron-Core.

The two store the same recipe differently. Megatron-Core groups the rows of the attention's input
projection by head of keys and values (its queries, its keys, its values, then those of the next).
TransformerEngine fuses a norm into the matrix that follows it, and names it after that matrix.
Megatron-Core's embedding tables are padded with rows of 0
(:mod:`trainer.backends.megatron.recipe`).

Shapes: H heads, G heads of keys and values, K head_dim, D = H × K, R = (H + 2 G) × K, F hidden
width of the feed-forward block, V vocabulary.
"""

from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.nn import functional

from trainer.backends.torch_gpt import TorchGPT

DIVISIBLE_BY = 128
"""The default of Megatron's ``--make-vocab-size-divisible-by``."""


def filled_up(vocab_size: int) -> int:
    """Return the smallest multiple of :data:`DIVISIBLE_BY` that holds ``vocab_size`` words."""
    return -(-vocab_size // DIVISIBLE_BY) * DIVISIBLE_BY


@torch.no_grad()
def load_from_torch(model: nn.Module, source: TorchGPT) -> None:
    """Give ``model``, a Megatron-Core GPTModel of the same config, the weights of ``source``.

    :raises ValueError: if the two do not have the same parameters; ``model`` is then partly loaded.
    """
    targets = dict(model.named_parameters())
    for name, weight in as_megatron(source, fused_norms=_has_fused_norms(targets)):
        target = targets.pop(name, None)
        if target is None or target.shape != weight.shape:
            found = "absent" if target is None else f"of shape {tuple(target.shape)}"
            raise ValueError(
                f"Megatron-Core's {name}, {tuple(weight.shape)} here, is {found} there"
            )
        target.copy_(weight)
    if targets:
        raise ValueError(f"nothing to load into Megatron-Core's {', '.join(sorted(targets))}")


@torch.no_grad()
def load_from_megatron(target: TorchGPT, model: nn.Module) -> None:
    """Give ``target`` the weights of ``model``, a Megatron-Core GPTModel of the same config."""
    held = dict(model.named_parameters())
    for name, parameter in target.named_parameters():
        weight: Tensor = held[_megatron_name(name, _has_fused_norms(held))]
        if name.endswith(".qkv_RD"):
            weight = _rows_by_kind(weight, target.config.n_head, target.config.kv_heads)
        parameter.copy_(weight[: parameter.shape[0]])


def as_megatron(
    source: TorchGPT, *, fused_norms: bool, gradients: bool = False
) -> Iterator[tuple[str, Tensor]]:
    """Yield Megatron-Core's name and layout of each weight of ``source``, or of its gradient.

    ``fused_norms`` names norms as TransformerEngine's layers do.
    """
    for name, parameter in source.named_parameters():
        weight = parameter.grad if gradients else parameter.detach()
        if weight is None:
            raise ValueError(f"{name} has no gradient")
        if name.endswith(".qkv_RD"):
            weight = _rows_by_group(weight, source.config.n_head, source.config.kv_heads)
        if name in _WORD_TABLES:
            words = weight.shape[0]
            weight = functional.pad(weight, (0, 0, 0, filled_up(words) - words))
        yield _megatron_name(name, fused_norms), weight


_WORD_TABLES = {"embedding_VD", "head_VD"}
_TABLES = {
    "embedding_VD": "embedding.word_embeddings.weight",
    "position_TD": "embedding.position_embeddings.weight",
    "norm.gain_D": "decoder.final_layernorm.weight",
    "head_VD": "output_layer.weight",
}
_IN_BLOCK = {
    "qkv_RD": "self_attention.linear_qkv.weight",
    "query_gain_K": "self_attention.q_layernorm.weight",
    "key_gain_K": "self_attention.k_layernorm.weight",
    "out_DD": "self_attention.linear_proj.weight",
    # Both keep the gate's rows before the linear branch's.
    "up_FD": "mlp.linear_fc1.weight",
    "down_DF": "mlp.linear_fc2.weight",
}
_NORMS = {
    "attention_norm.gain_D": "input_layernorm.weight",
    "feed_forward_norm.gain_D": "pre_mlp_layernorm.weight",
}
_FUSED_NORMS = {
    "attention_norm.gain_D": "self_attention.linear_qkv.layer_norm_weight",
    "feed_forward_norm.gain_D": "mlp.linear_fc1.layer_norm_weight",
}


def _megatron_name(name: str, fused_norms: bool) -> str:
    if name in _TABLES:
        return _TABLES[name]
    _, layer, rest = name.split(".", 2)  # blocks.<layer>.<rest>
    in_block = {**_IN_BLOCK, **(_FUSED_NORMS if fused_norms else _NORMS)}
    return f"decoder.layers.{layer}.{in_block[rest]}"


def _has_fused_norms(parameters: dict[str, nn.Parameter]) -> bool:
    return any(name.endswith(".layer_norm_weight") for name in parameters)


def _rows_by_group(qkv_RD: Tensor, n_head: int, n_kv_head: int) -> Tensor:
    """Reorder rows from (H, K), (G, K), (G, K) to (G, H / G + 2, K)."""
    width = qkv_RD.shape[1]
    heads_HKD = qkv_RD.view(n_head + 2 * n_kv_head, -1, width)
    q_HKD, k_GKD, v_GKD = heads_HKD.split_with_sizes((n_head, n_kv_head, n_kv_head))
    q_GhKD = q_HKD.view(n_kv_head, n_head // n_kv_head, -1, width)
    return torch.cat((q_GhKD, k_GKD[:, None], v_GKD[:, None]), dim=1).reshape(qkv_RD.shape)


def _rows_by_kind(qkv_RD: Tensor, n_head: int, n_kv_head: int) -> Tensor:
    """Reorder rows from (G, H / G + 2, K) to (H, K), (G, K), (G, K)."""
    heads_GhKD = qkv_RD.view(n_kv_head, n_head // n_kv_head + 2, -1, qkv_RD.shape[1])
    parts = (heads_GhKD[:, :-2], heads_GhKD[:, -2], heads_GhKD[:, -1])
    return torch.cat([part.reshape(-1, qkv_RD.shape[1]) for part in parts])
