"""Provide recipes with rare parts, each alone and together with the parts it interacts with."""

from typing import Any

PARTS: tuple[dict[str, Any], ...] = (
    {"activation": "geglu"},
    {"activation": "relu2", "norm": "rmsnorm"},
    {"qk_norm": True},
    {"qk_norm": True, "positions": "rotary", "n_kv_head": 2, "norm": "rmsnorm"},
    {"norm_place": "output"},
    {"norm_place": "output", "norm": "rmsnorm", "qk_norm": True, "positions": "rotary"},
    {"norm_place": "sandwich", "activation": "geglu", "tie_embeddings": False},
    {"positions": "rotary", "rope_base": 500.0},
    {"mup_base_width": 16},
    {"mup_base_width": 16, "tie_embeddings": False, "activation": "swiglu"},
    {"mup_base_depth": 1, "norm_place": "sandwich"},
    {"mup_base_depth": 1, "mup_base_width": 64},
)
"""Changes to a config of 2 layers, 4 heads and width 32."""
