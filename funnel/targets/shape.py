"""Define an architecture's shape: the parts that do not depend on its size.

A proxy must share them with its target. They are the width of a head, the heads of queries per head
of keys and values, and the kinds of the architecture's parts. The ratios of the feed-forward
block's width and of the depth to the model's width belong to them too.

This module also parses and formats counts of parameters and tokens such as ``200M`` or ``1.24B``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Protocol

from autoresearch.errors import AutoresearchError
from autoresearch.values import Scalar
from autoresearch.words import scalar_text
from trainer.machine.flops import DecoderShape, block_gains, block_weights

_UNITS = {"": 1, "K": 10**3, "M": 10**6, "B": 10**9, "T": 10**12}
_SIZE = re.compile(r"(\d{1,15}(?:\.\d{1,9})?)([KMBT]?)", re.ASCII)


def parse_size(text: str) -> int:
    """Return the positive whole number that a text such as ``200M`` or ``1.5B`` denotes.

    :raises AutoresearchError: if the text is not such a size.
    """
    match = _SIZE.fullmatch(text.strip().upper().replace(",", "").replace("_", ""))
    size = round(float(match[1]) * _UNITS[match[2]]) if match else 0
    if size < 1:
        raise AutoresearchError(
            f"a size of {text[:40]!r} cannot be read; write it like 200M, 1.5B or 200000000"
        )
    return size


def size_text(count: int) -> str:
    """Return a count with three significant digits and a unit, such as ``212M``."""
    digits, exponent = f"{count:.2e}".split("e")
    unit, power = max(
        ((unit, power) for unit, power in _UNITS.items() if power <= 10 ** int(exponent)),
        key=lambda pair: pair[1],
    )
    return f"{float(digits) * 10 ** int(exponent) / power:.15g}{unit}"


KINDS = (
    "activation",
    "norm",
    "positions",
    "tie_embeddings",
    "qk_norm",
    "norm_place",
    "rope_base",
)
"""Fields of an architecture that are not numbers of its size, in the order of messages."""
DEPTH_TOLERANCE = 0.10
"""Largest relative difference of n_layer / d_model from the target's, since layers are whole."""


class Architecture(DecoderShape, Protocol):
    """The fields of a decoder-only transformer that determine its parameters.

    :class:`~trainer.schema.Config` and
    :class:`~funnel.targets.architecture.TargetArchitecture` have them.
    """

    @property
    def norm(self) -> str: ...
    @property
    def positions(self) -> str: ...
    @property
    def tie_embeddings(self) -> bool: ...
    @property
    def rope_base(self) -> float: ...
    @property
    def seq_len(self) -> int: ...


@dataclass(frozen=True, slots=True)
class ParameterCount:
    """Number of parameters of a GPT without biases and with one gain per norm.

    Every backend builds such a GPT.
    """

    embeddings: int
    """Parameters in the tables of tokens, of learned positions, and of an untied head."""
    blocks: int
    """All other parameters: matrices and gains."""

    @property
    def total(self) -> int:
        return self.embeddings + self.blocks

    @classmethod
    def of(cls, shape: Architecture, vocab_size: int) -> ParameterCount:
        rows = vocab_size * (1 if shape.tie_embeddings else 2)
        if shape.positions == "learned":
            rows += shape.seq_len
        in_blocks = shape.n_layer * (block_weights(shape) + block_gains(shape))
        return cls(embeddings=rows * shape.d_model, blocks=in_blocks + shape.d_model)


@dataclass(frozen=True, slots=True)
class Shape:
    """The parts of an architecture that do not depend on its size."""

    head_dim: int
    group: int
    """Heads of queries per head of keys and values; 1 is multi-head attention."""
    ffn_ratio: Fraction
    """d_ff / d_model."""
    depth_ratio: Fraction
    """n_layer / d_model."""
    kinds: dict[str, Scalar]
    """Every other part by name, see :data:`KINDS`."""

    @classmethod
    def of(cls, architecture: Architecture) -> Shape:
        return cls(
            head_dim=architecture.d_model // architecture.n_head,
            group=architecture.n_head // architecture.kv_heads,
            ffn_ratio=Fraction(architecture.d_ff, architecture.d_model),
            depth_ratio=Fraction(architecture.n_layer, architecture.d_model),
            kinds={name: getattr(architecture, name) for name in KINDS},
        )

    def departures(self, target: Shape) -> Iterator[str]:
        """Yield each difference between this shape and the target's, in words."""
        for what, own, wanted in (
            ("head_dim", self.head_dim, target.head_dim),
            ("heads to a KV head", self.group, target.group),
            ("d_ff / d_model", float(self.ffn_ratio), float(target.ffn_ratio)),
            *((name, own, target.kinds[name]) for name, own in self.kinds.items()),
        ):
            if own != wanted:
                yield f"{what} is {scalar_text(own)}, the target's {scalar_text(wanted)}"
        off = depth_error(self.depth_ratio, target.depth_ratio)
        if abs(off) > DEPTH_TOLERANCE:
            yield (
                f"n_layer / d_model is 1 / {float(1 / self.depth_ratio):.4g}, the target's "
                f"1 / {float(1 / target.depth_ratio):.4g} ({off:+.0%})"
            )


def depth_error(ratio: Fraction, target: Fraction) -> float:
    """Return the relative difference of a depth-to-width ratio from the target's."""
    return float(ratio / target - 1)
