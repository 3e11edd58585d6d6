"""Format a ladder's sizes and shapes."""

from __future__ import annotations

from trainer.spec import Config


def amount(number: float) -> str:
    """Format parameters or tokens to three digits: ``87.5 k``, ``1.84 M``, ``2.1 B``."""
    for unit, name in ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "k")):
        if number >= unit:
            return f"{number / unit:.3g} {name}"
    return f"{number:.3g}"


def shape_text(config: Config) -> str:
    """Format a shape: ``96 wide, 3 deep, 3 heads, ff 384``."""
    heads = "head" if config.n_head == 1 else "heads"
    return (
        f"{config.d_model} wide, {config.n_layer} deep, {config.n_head} {heads}, ff {config.d_ff}"
    )
