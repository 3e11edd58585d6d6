"""Return a target's recipe without a search: a plain one, or one read from a launch plan."""

from __future__ import annotations

import json
from pathlib import Path

from autoresearch.errors import SpecError, TargetError
from autoresearch.files import read_given
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


def recipe_config(path: Path) -> Config:
    """Read the target's config from a launch plan's recipe.json, or from a file with one config.

    :raises TargetError: if the file cannot be read or holds no valid config.
    """
    try:
        document = json.loads(read_given(path).decode("utf-8"))
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else f"not JSON: {error}"
        raise TargetError(
            f"the recipe {path} cannot be read ({reason}); make one with: autoresearch handoff"
        ) from error
    for key in ("projection", "config"):  # a recipe.json has the config under both keys
        if isinstance(document, dict) and key in document:
            document = document[key]
    try:
        return make_config(document)
    except SpecError as error:
        raise TargetError(f"{path} is not a recipe: {error}") from error
