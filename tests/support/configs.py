"""Provide a config to start from, with any field changed."""

from typing import Any

from trainer.schema import Config, make_config

CHOICES: tuple[dict[str, Any], ...] = tuple(
    {"activation": activation, "norm": norm, "positions": positions, "tie_embeddings": tied}
    for activation, norm, positions, tied in (
        ("gelu", "layernorm", "learned", True),
        ("gelu", "rmsnorm", "rotary", False),
        ("swiglu", "layernorm", "rotary", False),
        ("swiglu", "rmsnorm", "learned", False),
        ("swiglu", "rmsnorm", "rotary", True),
    )
)
"""Changes to a config in which each pair of choices occurs."""


def config(**changes: Any) -> Config:
    """Return a config of about a million parameters, like the embedded default's baseline."""
    return make_config(
        {
            "n_layer": 4,
            "n_head": 4,
            "d_model": 128,
            "d_ff": 512,
            "activation": "gelu",
            "norm": "layernorm",
            "positions": "learned",
            "tie_embeddings": True,
            "lr": 1e-3,
            "lr_warmup": 10,
            "lr_min_ratio": 0.1,
            "grad_clip": 1.0,
            "weight_decay": 0.1,
            "beta1": 0.9,
            "beta2": 0.95,
            "batch_size": 8,
            "seq_len": 128,
            "precision": "bf16",
            **changes,
        }
    )
