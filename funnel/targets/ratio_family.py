"""Find proxies of one size and many shapes: which values of each ratio a search may try.

The baseline is the proxy that keeps the target's shape (:mod:`funnel.targets.proxies`), and all
other shapes have its size. Layers, heads and widths are whole numbers, which limits the possible
ratios. A width is allowed if some whole number of layers leaves the feed-forward block its ratio
within :data:`~funnel.targets.ratios.RATIO_TOLERANCE`. Whole numbers must be able to distinguish
neighboring ratios.
"""

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

from autoresearch.errors import TargetError
from funnel.targets.architecture import TargetArchitecture
from funnel.targets.proxies import ProxyBase
from funnel.targets.ratios import RATIO_TOLERANCE, RATIOS, Equal, EqualSize, RatioName
from funnel.targets.shape import ParameterCount
from trainer.schema import Config, gpt

N = TypeVar("N", int, float)

RATIO_STEP = 1.32
"""Least factor between neighboring ratios; it exceeds the tolerance, so they stay distinct."""
MOST_RATIOS, MOST_WIDTHS = 5, 7
WIDTH_STEP = 1.1
"""Least factor between neighboring widths."""
LEAST_LAYERS = 2
"""Fewest layers: a single layer attends only to the embedded text."""
FFN_RANGE = 3.0
"""Largest factor, in either direction, between a feed-forward ratio and the target's.

The loss is flat in this range (Kaplan et al. 2020, figure 5).
"""
ASPECT_RANGE = {False: 4.0, True: 8.0}
"""Largest factor, in either direction, between a width-to-depth ratio and the baseline's.

The key says whether the proxies are for a CPU, where they have few layers.
"""
KV_GROUPS = (1, 2, 4, 8)
HEAD_FACTORS = (0.5, 1.0, 2.0)
SMALLEST_HEAD = 8
HEADS_ACROSS = 4
"""Number of KV heads that the width should hold on a CPU; heads are narrowed to reach it."""
GRAIN = {False: 16, True: 4}
"""Divisor of d_ff, by whether the proxies are for a CPU; reduced if the baseline's d_ff requires.

Tensor cores need multiples of 16.
"""
WIDTH_GRAIN = {False: 128, True: 32}


@dataclass(frozen=True)
class RatioFamily:
    """Values that a search over one target's ratios may try, found around one baseline.

    :raises TargetError: if the target's fixed ratios allow no family.
    """

    base: ProxyBase
    """The proxy that keeps the target's shape."""
    equal: Equal

    def __post_init__(self) -> None:
        if "depth_width" in self.target.fixed and "ffn_ratio" not in self.target.fixed:
            raise TargetError(
                f"{self.target.name} fixes depth_width and leaves ffn_ratio free, but at equal "
                "size layers pay for a wider feed-forward block; fix both or free both"
            )

    @property
    def target(self) -> TargetArchitecture:
        return self.base.target

    @cached_property
    def proxy(self) -> Config:
        """The baseline, which has the target's shape; on a CPU with heads narrow enough to allow
        other widths."""
        proxy, group = self.base.proxy, self.base.shape.group
        if not self.base.scale.is_cpu:
            return proxy
        even = 2 if proxy.positions == "rotary" else 1
        head_dim = proxy.d_model // proxy.n_head
        while (
            proxy.d_model < HEADS_ACROSS * head_dim * group
            and head_dim % (2 * even) == 0
            and head_dim // 2 >= SMALLEST_HEAD
        ):
            head_dim //= 2
        heads = proxy.d_model // head_dim
        return proxy.model_copy(update={"n_head": heads, "n_kv_head": heads // group})

    @cached_property
    def seq_len(self) -> int:
        """Length of the search's sequences, at which FLOPs are counted."""
        return gpt(self.base.scale.base_menu.baseline).seq_len

    @cached_property
    def size(self) -> EqualSize:
        """The size of every config."""
        return EqualSize.of(
            self.proxy,
            equal=self.equal,
            vocab_size=self.base.vocab_size,
            seq_len=self.seq_len,
            unit=math.gcd(GRAIN[self.base.scale.is_cpu], self.proxy.d_ff),
        )

    @property
    def ffn_ratio(self) -> float:
        """The baseline's d_ff / d_model, which is also the target's."""
        return self.proxy.d_ff / self.proxy.d_model

    @property
    def head_dim(self) -> int:
        return self.proxy.d_model // self.proxy.n_head

    @property
    def kv_group(self) -> int:
        return self.proxy.n_head // self.proxy.kv_heads

    @cached_property
    def widths(self) -> tuple[int, ...]:
        """Widths nearest to the baseline's whose layers allow the target's ratio, in ascending
        order; the baseline's alone if ``depth_width`` is fixed."""
        own = self.proxy.d_model
        if "depth_width" in self.target.fixed:
            return (own,)
        grain = math.gcd(WIDTH_GRAIN[self.base.scale.is_cpu], own)
        sides = [
            [width for width in self._outwards(sign * grain) if self._fits(width, self.ffn_ratio)]
            for sign in (-1, 1)
        ]
        return _spaced(own, sides, WIDTH_STEP, MOST_WIDTHS)

    def _outwards(self, step: int) -> Iterator[int]:
        """Yield widths from the baseline's outward while width to depth stays in its range."""
        own = self.proxy.d_model
        for d_model in itertools.count(own + step, step):
            layers = self.size.layers(d_model, self.ffn_ratio) if d_model > 0 else 0
            if layers < LEAST_LAYERS - 0.5:
                return
            off = d_model / max(1, round(layers)) / (own / self.proxy.n_layer)
            if max(off, 1 / off) > ASPECT_RANGE[self.base.scale.is_cpu] * (1 + 1e-9):
                return
            yield d_model

    def _fits(self, d_model: int, ratio: float) -> bool:
        layers = math.floor(self.size.layers(d_model, ratio) + 0.5)
        if layers < LEAST_LAYERS:
            return False
        left = self.size.ratio(d_model, layers)
        return left > 0 and abs(math.log(left / ratio)) <= math.log1p(RATIO_TOLERANCE)

    @cached_property
    def ffn_ratios(self) -> tuple[float, ...]:
        """The target's ratio, and nearby ratios that whole layers allow at its width."""
        own = self.ffn_ratio
        if "ffn_ratio" in self.target.fixed:
            return (own,)
        # Multiples of a quarter, from the ratio outward to the ends of the range.
        below = range(math.ceil(own * 4 - 1), math.ceil(own / FFN_RANGE * 4) - 1, -1)
        above = range(math.floor(own * 4 + 1), math.floor(own * FFN_RANGE * 4) + 1)
        sides = [
            [n / 4 for n in side if n > 0 and self._fits(self.proxy.d_model, n / 4)]
            for side in (below, above)
        ]
        return _spaced(own, sides, RATIO_STEP, MOST_RATIOS)

    @cached_property
    def head_dims(self) -> tuple[int, ...]:
        """Widths of a head that divide the baseline's width."""
        wanted = {int(self.head_dim * factor) for factor in HEAD_FACTORS}
        whole = {
            head_dim
            for head_dim in wanted
            if head_dim >= SMALLEST_HEAD
            and head_dim % 2 == 0
            and self.proxy.d_model % head_dim == 0
        }
        free = set() if "head_dim" in self.target.fixed else whole
        return tuple(sorted(free | {self.head_dim}))

    @cached_property
    def kv_groups(self) -> tuple[int, ...]:
        """Heads of queries to a KV head that divide the baseline's heads."""
        whole = {group for group in KV_GROUPS if self.proxy.n_head % group == 0}
        free = set() if "kv_group" in self.target.fixed else whole
        return tuple(sorted(free | {self.kv_group}))

    def is_free(self, name: RatioName) -> bool:
        """Return whether the search may change a ratio: it is not fixed and has several values."""
        if name in self.target.fixed:
            return False
        ladder = {
            "depth_width": self.widths,
            "ffn_ratio": self.ffn_ratios,
            "head_dim": self.head_dims,
            "kv_group": self.kv_groups,
        }.get(name)
        return ladder is None or len(ladder) > 1

    @property
    def free(self) -> tuple[RatioName, ...]:
        """Ratios that the search may change."""
        return tuple(name for name in RATIOS if self.is_free(name))

    @property
    def params(self) -> int:
        """All parameters of the baseline, its tables included."""
        return ParameterCount.of(self.proxy, self.base.vocab_size).total


def _spaced(own: N, sides: Sequence[Sequence[N]], step: float, most: int) -> tuple[N, ...]:
    """Return the values nearest to ``own``, with at least the factor ``step`` between neighbors.

    :param sides: values below and above it, from it outward.
    """
    found = [own]
    for side in sides:
        last = own
        for value in side:
            if max(value, last) >= step * min(value, last):
                found.append(value)
                last = value
    found.sort(key=lambda value: abs(math.log(value / own)))
    return tuple(sorted(found[:most]))
