"""Return a target's recipe without a search."""

from __future__ import annotations

from funnel.target.architecture import TargetArchitecture
from trainer.spec import Config, make_config

PLAIN = {
    "lr": 3e-4,
    "lr_warmup": 0,
    "lr_min_ratio": 0.1,
    "grad_clip": 1.0,
    "weight_decay": 0.1,
    "beta1": 0.9,
    "beta2": 0.95,
}
"""Recipe of Llama 2 (arXiv 2307.09288, section 2.2), except for the warm-up."""


def plain_config(target: TargetArchitecture, *, batch_size: int = 1) -> Config:
    """Return the target's plain config in bf16, with ``batch_size`` sequences per step."""
    grouped = None if target.n_kv_head == target.n_head else target.n_kv_head
    return make_config(
        {
            **PLAIN,
            "n_layer": target.n_layer,
            "n_head": target.n_head,
            "n_kv_head": grouped,
            "d_model": target.d_model,
            "d_ff": target.d_ff,
            "activation": target.activation,
            "norm": target.norm,
            "positions": target.positions,
            "tie_embeddings": target.tie_embeddings,
            "qk_norm": target.qk_norm,
            "norm_place": target.norm_place,
            "rope_base": target.rope_base,
            "batch_size": batch_size,
            "seq_len": target.seq_len,
            "precision": "bf16",
        }
    )
