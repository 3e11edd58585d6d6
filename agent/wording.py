"""Values as a person reads them."""

from __future__ import annotations

from collections.abc import Mapping

from trainer.spec import Config, Scalar


def scalar_text(value: Scalar) -> str:
    """A knob's value: floats to four significant digits, the rest as it is."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def changes_text(changes: Mapping[str, Scalar]) -> str:
    """``lr=0.003 n_layer=4``"""
    return " ".join(f"{name}={scalar_text(value)}" for name, value in changes.items())


def difference(config: Config, baseline: Config | None) -> dict[str, Scalar]:
    """The fields of a config that are not the baseline's."""
    base = baseline.canonical() if baseline else {}
    return {name: value for name, value in config.canonical().items() if value != base.get(name)}


def duration_text(seconds: float) -> str:
    """``8.1 s``, ``4 min``, ``2 h 05 min``."""
    if seconds < 99.5:
        return f"{seconds:.1f} s" if seconds < 9.95 else f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02d} min"
