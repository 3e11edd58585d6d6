"""The proxies that can stand in for a target: of all widths, those that keep its shape.

A proxy has the target's head_dim, heads to a KV head, d_ff / d_model and n_layer / d_model, so its
width decides everything else. Heads and d_ff must be whole, which leaves the multiples of one
width, and layers are rounded, so that of those only the widths remain where n_layer / d_model is
within :data:`~funnel.target.shape.DEPTH_TOLERANCE` of the target's.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from funnel.target.architecture import TargetArchitecture
from funnel.target.shape import ParameterCount, Shape


@dataclass(frozen=True, slots=True)
class Scale:
    """How large proxies may be, and the menu whose hyperparameter knobs they take over."""

    low_params: int
    high_params: int
    default_params: int
    menu: str
    tokenizer: str
    max_above_asked: float
    """The largest proxy, in parameters, against the size asked for."""
    is_cpu: bool
    """Then head_dim may be given up, and the size asked for is a wish: what can be kept at a size
    that trains in seconds comes first."""


GPU = Scale(
    low_params=50_000_000,
    high_params=500_000_000,
    default_params=200_000_000,
    menu="spark-354m",
    tokenizer="bpe:50257",
    max_above_asked=2.5,
    is_cpu=False,
)
CPU = Scale(
    low_params=300_000,
    high_params=6_000_000,
    default_params=2_000_000,
    menu="cpu-tiny",
    tokenizer="bpe:1024",
    max_above_asked=math.inf,
    is_cpu=True,
)


@dataclass(frozen=True, slots=True)
class Proxy:
    """One member: an :class:`~funnel.target.shape.Architecture`."""

    d_model: int
    n_layer: int
    n_head: int
    kv_heads: int
    d_ff: int
    activation: str
    norm: str
    positions: str
    tie_embeddings: bool
    qk_norm: bool
    norm_place: str
    rope_base: float
    seq_len: int

    @classmethod
    def of(cls, shape: Shape, d_model: int, seq_len: int) -> Proxy:
        """The proxy of this width, which must be a multiple of :func:`width_unit`."""
        return cls(
            d_model=d_model,
            n_layer=max(1, math.floor(d_model * shape.depth_ratio + Fraction(1, 2))),
            n_head=d_model // shape.head_dim,
            kv_heads=d_model // (shape.head_dim * shape.group),
            d_ff=int(d_model * shape.ffn_ratio),
            activation=shape.activation,
            norm=shape.norm,
            positions=shape.positions,
            tie_embeddings=shape.tie_embeddings,
            qk_norm=shape.qk_norm,
            norm_place=shape.norm_place,
            rope_base=shape.rope_base,
            seq_len=seq_len,
        )

    @property
    def depth_ratio(self) -> Fraction:
        return Fraction(self.n_layer, self.d_model)


@dataclass(frozen=True, slots=True)
class ProxyFamily:
    """The proxies of one target, one size asked for, and one vocabulary."""

    target: TargetArchitecture
    scale: Scale
    asked_params: int
    """Within the scale."""
    tokenizer: str
    vocab_size: int
    seq_len: int
    """The longest that will be trained: a learned table of positions has as many rows."""
    shape: Shape
    """The target's, but for what was given up."""
    proxies: tuple[Proxy, ...]
    """At least one, the narrowest first."""

    @property
    def default(self) -> Proxy:
        """The proxy nearest to the size asked for, by ratio."""
        return min(
            self.proxies,
            key=lambda proxy: abs(math.log(self.params(proxy) / self.asked_params)),
        )

    def params(self, proxy: Proxy) -> int:
        """All its parameters, the vocabulary's tables included."""
        return ParameterCount.of(proxy, self.vocab_size).total

    def given_up(self) -> Sequence[str]:
        """In words, what of the target's shape these proxies do not keep."""
        return tuple(self.shape.departures(Shape.of(self.target)))


def width_unit(shape: Shape) -> int:
    """The narrowest width with whole heads, whole KV heads and a whole d_ff; its multiples have
    them too."""
    return math.lcm(shape.head_dim * shape.group, shape.ffn_ratio.denominator)
