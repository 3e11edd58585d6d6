"""Carry the winner's ratios to the target's shape.

Only ratios that the search changed are carried. A ratio that the winner shares with the baseline
leaves the target unchanged, so carrying the baseline gives the target's own shape. The winner's
number is carried as a factor of the target's number. The baseline has the target's numbers, except
for heads that were too wide for proxies on a CPU. The winner's kind replaces the target's kind.

The number of weights in the blocks' matrices does not change. As in the proxies, d_ff compensates
for the rounding of heads and layers (:mod:`funnel.targets.ratios`). Width and depth grow
together, by the factor that the size requires.

Numbers are carried only between configs of equal size, because a larger shape may win by its size.
"""

import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from autoresearch.errors import TargetError
from autoresearch.values import Frozen, Scalar
from autoresearch.words import scalar_text
from funnel.targets.architecture import TargetArchitecture
from funnel.targets.ratios import (
    RATIO_TOLERANCE,
    RATIOS,
    EqualSize,
    RatioName,
    matrices,
    numeric_ratios,
    unequal_sizes,
)
from funnel.targets.shape import KINDS
from trainer.schema import Config

ASPECT_LIMIT = 2.0
"""Largest factor, in either direction, by which the ratio of width to depth is carried.

Beyond it the proxies' few layers say little, and the loss rises (Kaplan et al. 2020, figure 5).
"""
D_FF_GRAIN = 128
"""Divisor of the target's d_ff, which is split over GPUs."""
TENSOR_PARALLEL = (8, 4, 2, 1)
"""Divisors to try for the number of KV heads, in order of preference."""
WIDTH_MISS = 0.05
"""Largest relative change of the width to make the KV heads a multiple of such a divisor."""
CHANGED_BY: Mapping[RatioName, float] = {
    "depth_width": 0.02,
    "head_dim": 0.02,
    "kv_group": 0.02,
    "ffn_ratio": RATIO_TOLERANCE,
}
"""Relative difference from the baseline above which a number counts as changed.

It is larger for the feed-forward ratio, which whole layers meet only approximately.
"""


class CarriedRatio(Frozen):
    """One ratio that the winner changed, and its effect on the target."""

    name: RatioName
    baseline: Scalar
    winner: Scalar
    before: Scalar
    """Value of the original target."""
    after: Scalar
    """Value of the target as launched."""
    is_carried: bool
    """Whether the change was carried to the target."""
    how: str
    """How the change was carried, or why it was not."""


class CarriedShape(Frozen):
    """The target as launched, and the winner's ratios in it."""

    target: TargetArchitecture
    ratios: tuple[CarriedRatio, ...]
    """Ratios that the winner changed."""


def carry_shape(
    winner: Config,
    target: TargetArchitecture,
    *,
    baseline: Config,
    vocab_size: int,
    left: Collection[RatioName] = (),
) -> CarriedShape:
    """Return the target at its own size with the ratios that the winner changed.

    :param baseline: config to compare the winner with.
    :param vocab_size: the proxies' vocabulary, to compare FLOPs.
    :param left: harmful ratios, which stay as in the target.
    :raises TargetError: if no shape in whole numbers has the winner's ratios at this size.
    """
    journey = _Journey(winner, baseline, target, vocab_size, frozenset(left))
    carried = {name: journey.why_left(name) is None for name in journey.changed()}
    built = journey.built(carried) if any(carried.values()) else target
    return CarriedShape(target=built, ratios=tuple(journey.rows(built, carried)))


@dataclass(frozen=True)
class _Journey:
    """Work of :func:`carry_shape`: decides which ratios to carry, and builds the shape."""

    winner: Config
    baseline: Config
    target: TargetArchitecture
    vocab_size: int
    left: frozenset[RatioName]

    @cached_property
    def own(self) -> dict[RatioName, float]:
        """The winner's numeric ratios."""
        return numeric_ratios(self.winner, self.baseline)

    @cached_property
    def base(self) -> dict[RatioName, float]:
        """The baseline's numeric ratios."""
        return numeric_ratios(self.baseline, self.baseline)

    def changed(self) -> Iterator[RatioName]:
        """Yield the ratios in which the winner differs from the baseline."""
        winner, baseline = self.winner, self.baseline
        same_layers = (winner.d_model, winner.n_layer) == (baseline.d_model, baseline.n_layer)
        for name in RATIOS:
            if name in CHANGED_BY:
                if name == "ffn_ratio" and same_layers:
                    continue  # d_ff differs only by the change of heads or activation
                factor = self.own[name] / self.base[name]
                if max(factor, 1 / factor) > 1 + CHANGED_BY[name]:
                    yield name
            elif name in KINDS and getattr(winner, name) != getattr(baseline, name):
                yield name

    def why_left(self, name: RatioName) -> str | None:
        """Return why a change is not carried; None if it is carried."""
        if name in self.target.fixed:
            return "dropped: the target fixes it"
        # A wider feed-forward block that is left behind also leaves the layers that paid for it.
        paid = self.winner.d_model == self.baseline.d_model and "ffn_ratio" in self.left
        if name in self.left or (paid and name == "depth_width"):
            return "dropped: undoing it alone improved the score"
        unequal = unequal_sizes(self.winner, self.baseline, self.vocab_size)
        if name in CHANGED_BY and unequal is not None:
            return f"dropped: the winner has {unequal}, and may have won by size"
        if name in KINDS and getattr(self.winner, name) == getattr(self.target, name):
            return "the target has it already"
        return None

    def factor(self, name: RatioName) -> float:
        """Return the factor by which to multiply a number of the target."""
        factor = self.own[name] / self.base[name]
        if name == "depth_width":
            return min(max(factor, 1 / ASPECT_LIMIT), ASPECT_LIMIT)
        return factor

    def built(self, carried: Mapping[RatioName, bool]) -> TargetArchitecture:
        """Return the target at its own size with the winner's ratios that are carried.

        :raises TargetError: if no shape in whole numbers has these ratios.
        """
        target = self.target
        factors = {name: self.factor(name) if carried.get(name) else 1.0 for name in CHANGED_BY}
        kinds: dict[str, Any] = {
            name: getattr(self.winner, name)
            for name, does in carried.items()
            if does and name not in CHANGED_BY
        }
        if "rope_base" in kinds:
            kinds["rope_base"] = target.rope_base * kinds["rope_base"] / self.baseline.rope_base
        head_dim = target.head_dim
        if carried.get("head_dim"):
            head_dim = max(2, 2 * round(head_dim * factors["head_dim"] / 2))
        group = max(1, round(target.n_head // target.n_kv_head * factors["kv_group"]))
        grain = math.gcd(D_FF_GRAIN, target.d_ff)
        size = EqualSize.of(target, equal="params", vocab_size=0, seq_len=1, unit=grain)
        d_model, n_layer = target.d_model, target.n_layer
        if carried.get("depth_width") or carried.get("ffn_ratio"):
            ratio = target.ffn_ratio * factors["ffn_ratio"]
            aspect = d_model / n_layer * factors["depth_width"]
            d_model = _width(
                (size.amount * aspect / (size.attention + size.k * ratio)) ** (1 / 3),
                head_dim * group,
            )
            layers = size.layers(d_model, ratio)
            # A pipeline can split an even number of layers.
            n_layer = max(1, 2 * round(layers / 2) if layers >= 8 else round(layers))
        if d_model % (head_dim * group):
            raise TargetError(
                f"{target.name} with d_model {d_model} has no whole heads of {head_dim} with "
                f"{group} to a KV head, as the winner would have it; fix head_dim or kv_group in "
                "the target"
            )
        k = matrices(str(kinds.get("activation", target.activation)))
        d_ff = _rest(size, d_model, n_layer, group, k)
        whole = {
            "d_model": d_model,
            "n_layer": n_layer,
            "n_head": d_model // head_dim,
            "n_kv_head": d_model // head_dim // group,
            "head_dim": head_dim,
            "ffn_ratio": d_ff / d_model,
        }
        return target.reshaped(kinds | whole)

    def rows(
        self, built: TargetArchitecture, carried: Mapping[RatioName, bool]
    ) -> Iterator[CarriedRatio]:
        """Yield each change and its effect on the target."""
        for name, is_carried in carried.items():
            yield CarriedRatio(
                name=name,
                baseline=_said(name, self.baseline, self.base),
                winner=_said(name, self.winner, self.own),
                before=_said(name, self.target, numeric_ratios(self.target, self.target)),
                after=_said(name, built, numeric_ratios(built, self.target)),
                is_carried=is_carried,
                how=self.why_left(name) or self._how(name),
            )

    def _how(self, name: RatioName) -> str:
        if name in CHANGED_BY:
            factor, full = self.factor(name), self.own[name] / self.base[name]
            said = f"the target's times {factor:.3g}, to whole heads and layers at its own size"
            return said if factor == full else f"{said}; the winner's {full:.3g} is held to that"
        if name == "rope_base" and self.winner.seq_len != self.target.seq_len:
            return (
                f"the target's times the winner's factor; its sequences are "
                f"{self.target.seq_len / self.winner.seq_len:.3g} times longer"
            )
        return "as the winner has it"


def _said(name: RatioName, shape: Any, numbers: Mapping[RatioName, float]) -> Scalar:
    if name == "depth_width":
        return f"{numbers[name]:.4g} ({shape.d_model} / {shape.n_layer})"
    if name in numbers:
        return float(f"{numbers[name]:.4g}")
    value: Scalar = getattr(shape, name)
    return scalar_text(value) if isinstance(value, float) else value


def _rest(size: EqualSize, d_model: int, n_layer: int, group: int, k: int) -> int:
    """Return the d_ff of ``k`` matrices that the size leaves for this width and depth.

    :raises TargetError: if nothing is left.
    """
    left = size.amount / n_layer / d_model - 2 * d_model - 2 * d_model / group
    d_ff = size.unit * round(left / k / size.unit)
    if d_ff < 1:
        raise TargetError(
            f"a d_model of {d_model} with {n_layer} layers leaves the feed-forward block nothing "
            "at the target's size; fix depth_width or ffn_ratio in the target"
        )
    return d_ff


def _width(wanted: float, unit: int) -> int:
    """Return a nearby width with whole heads that the most GPUs can split."""
    for parallel in TENSOR_PARALLEL:
        step = unit * parallel
        width = step * max(1, round(wanted / step))
        if abs(width / wanted - 1) <= WIDTH_MISS:
            return width
    return unit * max(1, round(wanted / unit))
