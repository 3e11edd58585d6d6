"""Find the proxy of a target: a smaller model that keeps its shape.

A proxy has the target's head_dim, heads per KV head, d_ff / d_model and n_layer / d_model, so its
width determines everything else. Heads and d_ff must be whole, so the width is a multiple of one
unit. Layers are rounded. A width is allowed only if its n_layer / d_model is within
:data:`~funnel.targets.shape.DEPTH_TOLERANCE` of the target's.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from random import Random

from agent.menu.files import ProxyMenu, load_menu
from autoresearch.errors import SpecError, TargetError
from funnel.targets.architecture import TargetArchitecture
from funnel.targets.shape import DEPTH_TOLERANCE, ParameterCount, Shape, depth_error, size_text
from trainer.corpus.prepare import vocabulary_of
from trainer.schema import Config, gpt


@dataclass(frozen=True, slots=True)
class Scale:
    """Allowed sizes of proxies, and the menu that provides their hyperparameter knobs."""

    low_params: int
    high_params: int
    default_params: int
    menu: str
    tokenizer: str
    is_cpu: bool
    """Whether the proxies train on a CPU.

    If so, head_dim may differ from the target's, and the requested size is only a preference,
    because few shapes are small enough to train in seconds.
    """

    @property
    def base_menu(self) -> ProxyMenu:
        """The menu that provides the hyperparameter knobs."""
        return load_menu(self.menu)

    @property
    def longest_seq_len(self) -> int:
        """The longest sequence that the scale's menu trains on, in tokens."""
        return max(int(value) for value in self.base_menu.domains["seq_len"].ends)


GPU = Scale(
    low_params=50_000_000,
    high_params=500_000_000,
    default_params=200_000_000,
    menu="spark-354m",
    tokenizer="bpe:50257",
    is_cpu=False,
)
CPU = Scale(
    low_params=300_000,
    high_params=6_000_000,
    default_params=2_000_000,
    menu="cpu-tiny",
    tokenizer="bpe:1024",
    is_cpu=True,
)


@dataclass(frozen=True, slots=True)
class ProxyBase:
    """The proxy of a target that keeps its shape, for one requested size and one vocabulary."""

    target: TargetArchitecture
    scale: Scale
    asked_params: int
    """Requested parameters, clipped to the scale."""
    tokenizer: str
    vocab_size: int
    shape: Shape
    """Shape of the proxy: the target's, possibly with smaller heads."""
    proxy: Config
    """The proxy nearest to the requested size, by ratio."""

    def given_up(self) -> tuple[str, ...]:
        """Return the differences between the proxy's shape and the target's, in words."""
        return tuple(self.shape.departures(Shape.of(self.target)))


NEAR_ASKED = 2.0
"""Largest ratio, in either direction, of the proxy's parameters to those requested."""
SMALLEST_HEAD_DIM = 8


def find_proxy(
    target: TargetArchitecture, *, scale: Scale, params: int, tokenizer: str
) -> ProxyBase:
    """Find the proxy with about ``params`` parameters.

    On a CPU its heads are the widest that allow several widths, if any do. A learned table of
    positions has a row for each token of the longest sequence.

    :raises TargetError: if no proxy keeps the shape; the message names what prevents it.
    :raises CorpusError: if there is no such tokenizer.
    """
    low, high = scale.low_params, scale.high_params
    if not scale.is_cpu and not low <= params <= high:
        raise TargetError(
            f"a proxy of {size_text(params)} parameters is outside the {_span(scale)} that "
            "proxies have; ask for a size within, or --tiny for a CPU"
        )
    asked, vocab_size = min(max(params, low), high), vocabulary_of(tokenizer)
    found: list[tuple[Shape, dict[Config, int]]] = []
    for shape in _shapes(target) if scale.is_cpu else [Shape.of(target)]:
        wide = {
            proxy: count
            for proxy in _by_width(shape, target.d_model, scale)
            if low <= (count := ParameterCount.of(proxy, vocab_size).total) <= high
            and abs(depth_error(Shape.of(proxy).depth_ratio, shape.depth_ratio)) <= DEPTH_TOLERANCE
        }
        if wide:
            found.append((shape, wide))
    if not found:
        raise _no_proxy(target, shape, scale)
    shape, sizes = next((one for one in found if len(one[1]) > 1), found[0])
    proxy = min(sizes, key=lambda proxy: abs(math.log(sizes[proxy] / asked)))
    if not scale.is_cpu and not 1 / NEAR_ASKED <= sizes[proxy] / asked <= NEAR_ASKED:
        known = ", ".join(f"d_model {p.d_model} with {size_text(n)}" for p, n in sizes.items())
        raise TargetError(
            f"no proxy of about {size_text(asked)} parameters keeps the shape of {target.name}: "
            f"those that do are {known}; ask for --params {size_text(sizes[proxy])} or choose "
            "another --tokenizer"
        )
    return ProxyBase(
        target=target,
        scale=scale,
        asked_params=asked,
        tokenizer=tokenizer,
        vocab_size=vocab_size,
        shape=shape,
        proxy=proxy,
    )


def _no_proxy(target: TargetArchitecture, shape: Shape, scale: Scale) -> TargetError:
    heads = f" and {shape.group} heads to a KV head" if shape.group > 1 else ""
    return TargetError(
        f"no proxy of {_span(scale)} parameters keeps the shape of {target.name}: head_dim "
        f"{shape.head_dim}{heads} with d_ff / d_model = {shape.ffn_ratio} are kept only by "
        f"widths that are multiples of {width_unit(shape)}, and n_layer {target.n_layer} for "
        f"d_model {target.d_model} within {DEPTH_TOLERANCE:.0%}; use "
        f"{'' if scale.is_cpu else '--tiny, which makes the heads smaller, or '}another "
        "--tokenizer or target"
    )


def _span(scale: Scale) -> str:
    return f"{size_text(scale.low_params)} to {size_text(scale.high_params)}"


def width_unit(shape: Shape) -> int:
    """Return the narrowest width with whole heads, whole KV heads and a whole d_ff.

    Its multiples have these too.
    """
    return math.lcm(shape.head_dim * shape.group, shape.ffn_ratio.denominator)


def _shapes(target: TargetArchitecture) -> Iterator[Shape]:
    """Yield the target's shape, and that with its heads halved down to SMALLEST_HEAD_DIM.

    With rotary positions a head_dim stays even.
    """
    shape = Shape.of(target)
    even = 2 if shape.kinds["positions"] == "rotary" else 1
    yield shape
    while shape.head_dim % (2 * even) == 0 and shape.head_dim // 2 >= SMALLEST_HEAD_DIM:
        shape = replace(shape, head_dim=shape.head_dim // 2)
        yield shape


def _by_width(shape: Shape, widest: int, scale: Scale) -> Iterator[Config]:
    """Yield the proxies with whole heads and a whole d_ff, by width, up to the target's width."""
    base, unit = gpt(scale.base_menu.baseline), width_unit(shape)
    fixed = shape.kinds | {"seq_len": scale.longest_seq_len}
    for d_model in range(unit, max(unit, widest) + 1, unit):
        whole = {
            "d_model": d_model,
            "n_layer": max(1, math.floor(d_model * shape.depth_ratio + Fraction(1, 2))),
            "n_head": d_model // shape.head_dim,
            "n_kv_head": d_model // (shape.head_dim * shape.group),
            "d_ff": int(d_model * shape.ffn_ratio),
        }
        yield base.model_copy(update=fixed | whole)


@dataclass(frozen=True, slots=True)
class ShapeCheck:
    """Differences between a menu's shapes and the target's."""

    at_defaults: tuple[str, ...]
    """Differences between the shape of the menu's baseline and the target's, in words."""
    departing_share: float
    """Share of trainable random configs whose shape differs from the target's."""

    @classmethod
    def of(cls, menu: ProxyMenu, target: TargetArchitecture, *, draws: int = 500) -> ShapeCheck:
        """Check the menu's baseline and random configs, which are the same on every call.

        :param draws: number of random configs.
        """
        wanted = Shape.of(target)
        rng = Random(0)
        departing = trainable = 0
        for _ in range(draws):
            changes = {name: domain.draw(rng) for name, domain in menu.domains.items()}
            try:
                config = gpt(menu.apply(menu.baseline, changes))
            except SpecError:
                continue
            trainable += 1
            departing += any(Shape.of(config).departures(wanted))
        return cls(
            at_defaults=tuple(Shape.of(gpt(menu.baseline)).departures(wanted)),
            departing_share=departing / trainable if trainable else 1.0,
        )

    def warnings(self, name: str) -> list[str]:
        """Return one sentence per difference of the baseline, and one about random configs.

        :param name: the target's name.
        """
        said = [f"the defaults leave the shape of {name}: {clause}" for clause in self.at_defaults]
        if self.departing_share:
            said.append(f"{self.departing_share:.1%} of random configs leave the shape of {name}")
        return said
