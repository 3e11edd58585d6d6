"""Find the proxies of a target: smaller models that keep its shape, or the ratio that prevents it.

A proxy has the target's head_dim, heads per KV head, d_ff / d_model and n_layer / d_model, so its
width determines everything else. Heads and d_ff must be whole, so the width is a multiple of one
unit. Layers are rounded. A width is allowed only if its n_layer / d_model is within
:data:`~funnel.target.shape.DEPTH_TOLERANCE` of the target's.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from autoresearch.errors import TargetError
from funnel.target.architecture import TargetArchitecture
from funnel.target.shape import DEPTH_TOLERANCE, ParameterCount, Shape, depth_error, size_text
from trainer.envelope.random_corpus import vocabulary_of


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

    def given_up(self) -> tuple[str, ...]:
        """Return the differences between the proxies' shape and the target's, in words."""
        return tuple(self.shape.departures(Shape.of(self.target)))


def width_unit(shape: Shape) -> int:
    """Return the narrowest width with whole heads, whole KV heads and a whole d_ff.

    Its multiples have these too.
    """
    return math.lcm(shape.head_dim * shape.group, shape.ffn_ratio.denominator)


NEAR_ASKED = 2.0
"""Largest ratio, in either direction, of the default proxy's parameters to those requested."""
SMALLEST_HEAD_DIM = 8


def find_proxies(
    target: TargetArchitecture, *, scale: Scale, params: int, tokenizer: str, seq_len: int
) -> ProxyFamily:
    """Find every proxy with ``params`` parameters, fewer, or up to a few times more.

    :param seq_len: longest sequence that will be trained.
    :raises TargetError: if no proxy keeps the shape; the message names the ratio that prevents it.
    :raises CorpusError: if there is no such tokenizer.
    """
    if not scale.is_cpu and not scale.low_params <= params <= scale.high_params:
        raise TargetError(
            f"a proxy of {size_text(params)} parameters is outside the {_range_text(scale)} that "
            "proxies have; ask for a size within, or --tiny for a CPU"
        )
    wanted = ProxyFamily(
        target=target,
        scale=scale,
        asked_params=min(max(params, scale.low_params), scale.high_params),
        tokenizer=tokenizer,
        vocab_size=vocabulary_of(tokenizer),
        seq_len=seq_len,
        shape=Shape.of(target),
        proxies=(),
    )
    return _Search(wanted).with_smaller_heads() if scale.is_cpu else _Search(wanted).family()


@dataclass(frozen=True, slots=True)
class _Search:
    """Search for the proxies of a family that keep its shape."""

    wanted: ProxyFamily
    """The family, without its proxies."""

    def family(self) -> ProxyFamily:
        """Return the proxies of exactly this shape.

        :raises TargetError: if there are none.
        """
        wanted, scale = self.wanted, self.wanted.scale
        sized = [
            proxy
            for proxy in self._by_width()
            if scale.low_params <= wanted.params(proxy) <= scale.high_params
        ]
        if not sized:
            raise TargetError(self._why_no_size())
        kept = [proxy for proxy in sized if abs(self._depth_error(proxy)) <= DEPTH_TOLERANCE]
        if not kept:
            target = wanted.target
            best = min(sized, key=lambda proxy: abs(self._depth_error(proxy)))
            layers = float(best.d_model * wanted.shape.depth_ratio)
            raise TargetError(
                f"no proxy of {_range_text(scale)} parameters keeps the depth of {target.name}, "
                f"n_layer {target.n_layer} for d_model {target.d_model}, within "
                f"{DEPTH_TOLERANCE:.0%}: the nearest, d_model {best.d_model}, would need "
                f"{layers:.2f} layers; use another target"
            )
        ceiling = scale.max_above_asked * wanted.asked_params
        near = [proxy for proxy in kept if wanted.params(proxy) <= ceiling] or kept[:1]
        found = replace(wanted, proxies=tuple(near))
        off = found.params(found.default) / found.asked_params
        if not scale.is_cpu and not 1 / NEAR_ASKED <= off <= NEAR_ASKED:
            nearest = replace(wanted, proxies=tuple(kept)).default
            raise TargetError(
                f"no proxy of about {size_text(wanted.asked_params)} parameters keeps the shape of "
                f"{wanted.target.name}: those that do are {', '.join(self._size_texts(kept))}; ask "
                f"for --params {size_text(wanted.params(nearest))} or choose another --tokenizer"
            )
        return found

    def with_smaller_heads(self) -> ProxyFamily:
        """Return the proxies with the widest heads that allow several widths, else one width.

        :raises TargetError: if no head width allows any proxy.
        """
        found: list[ProxyFamily] = []
        refused: list[TargetError] = []
        for head_dim in self._head_dims():
            shape = replace(self.wanted.shape, head_dim=head_dim)
            try:
                family = _Search(replace(self.wanted, shape=shape)).family()
            except TargetError as error:
                refused.append(error)
                continue
            if len(family.proxies) > 1:
                return family
            found.append(family)
        if not found:
            raise refused[-1]
        return found[0]

    def _head_dims(self) -> Iterator[int]:
        """Yield the target's head_dim and its halves, down to SMALLEST_HEAD_DIM.

        With rotary positions a head_dim stays even.
        """
        even = 2 if self.wanted.shape.positions == "rotary" else 1
        head_dim = self.wanted.shape.head_dim
        yield head_dim
        while head_dim % (2 * even) == 0 and head_dim // 2 >= SMALLEST_HEAD_DIM:
            head_dim //= 2
            yield head_dim

    def _by_width(self) -> Iterator[Proxy]:
        """Yield the proxies with whole heads and a whole d_ff, by width; at least one.

        They end at the target's own width, or with the first that is larger than the scale allows.
        """
        wanted = self.wanted
        unit = width_unit(wanted.shape)
        for d_model in range(unit, max(unit, wanted.target.d_model) + 1, unit):
            proxy = Proxy.of(wanted.shape, d_model, wanted.seq_len)
            yield proxy
            if wanted.params(proxy) > wanted.scale.high_params:
                return

    def _depth_error(self, proxy: Proxy) -> float:
        return depth_error(proxy.depth_ratio, self.wanted.shape.depth_ratio)

    def _why_no_size(self) -> str:
        shape, target, scale = self.wanted.shape, self.wanted.target, self.wanted.scale
        unit = width_unit(shape)
        narrowed = shape.head_dim != target.head_dim
        parts = [f"{'even a ' if narrowed else ''}head_dim {shape.head_dim}"]
        if shape.group > 1:
            parts.append(f"{shape.group} heads to a KV head")
        if unit != shape.head_dim * shape.group:
            parts.append(f"d_ff / d_model = {shape.ffn_ratio}")
        sizes = ", ".join(self._size_texts(list(self._by_width())[-2:]))
        smaller_heads = "" if scale.is_cpu else "--tiny, which makes the heads smaller, or "
        return (
            f"no proxy of {_range_text(scale)} parameters keeps the shape of "
            f"{target.name}: {' and '.join(parts)} are kept only by widths that are multiples "
            f"of {unit} ({sizes}); use {smaller_heads}another --tokenizer or target"
        )

    def _size_texts(self, proxies: Sequence[Proxy]) -> list[str]:
        return [f"d_model {p.d_model} with {size_text(self.wanted.params(p))}" for p in proxies]


def _range_text(scale: Scale) -> str:
    return f"{size_text(scale.low_params)} to {size_text(scale.high_params)}"
