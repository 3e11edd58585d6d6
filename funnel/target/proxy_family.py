"""Define the proxies of a target: the smaller models that keep its shape.

A proxy has the target's head_dim, heads per KV head, d_ff / d_model and n_layer / d_model, so its
width determines everything else. Heads and d_ff must be whole, so the width is a multiple of one
unit. Layers are rounded. A width is allowed only if its n_layer / d_model is within
:data:`~funnel.target.shape.DEPTH_TOLERANCE` of the target's.
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
    """Allowed sizes of proxies, and the menu that provides their hyperparameter knobs."""

    low_params: int
    high_params: int
    default_params: int
    menu: str
    tokenizer: str
    max_above_asked: float
    """Largest ratio of a proxy's parameters to the requested parameters."""
    is_cpu: bool
    """Whether the proxies train on a CPU.

    If so, head_dim may differ from the target's, and the requested size is only a preference,
    because few shapes are small enough to train in seconds.
    """


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
    """One proxy of a family; it is an :class:`~funnel.target.shape.Architecture`."""

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
        """Return the proxy of this width, which must be a multiple of :func:`width_unit`."""
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
    """The proxies of one target for one requested size and one vocabulary."""

    target: TargetArchitecture
    scale: Scale
    asked_params: int
    """Requested parameters, clipped to the scale."""
    tokenizer: str
    vocab_size: int
    seq_len: int
    """Longest sequence that will be trained, and so the rows of a learned table of positions."""
    shape: Shape
    """Shape of the proxies: the target's, possibly with smaller heads."""
    proxies: tuple[Proxy, ...]
    """Proxies, narrowest first; at least one."""

    @property
    def default(self) -> Proxy:
        """The proxy nearest to the requested size, by ratio."""
        return min(
            self.proxies,
            key=lambda proxy: abs(math.log(self.params(proxy) / self.asked_params)),
        )

    def params(self, proxy: Proxy) -> int:
        """Return all parameters of a proxy, the vocabulary's tables included."""
        return ParameterCount.of(proxy, self.vocab_size).total

    def given_up(self) -> Sequence[str]:
        """Return the differences between the proxies' shape and the target's, in words."""
        return tuple(self.shape.departures(Shape.of(self.target)))


def width_unit(shape: Shape) -> int:
    """Return the narrowest width with whole heads, whole KV heads and a whole d_ff.

    Its multiples have these too.
    """
    return math.lcm(shape.head_dim * shape.group, shape.ffn_ratio.denominator)
