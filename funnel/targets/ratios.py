"""List the ratios that a search may change, and compute a shape's whole numbers from them.

Ratios are the parts of an architecture that do not set its size. Each states, with its source, why
a result from a small model should hold for a large one. Such a reason is not a proof: of twenty
changes published as gains, two were still gains at 1.2 B parameters (Zhao et al. 2026, arXiv
2605.20798). So each carried change is measured again by itself (:mod:`funnel.attribution`).

A shape has width D, L layers, and heads of width h with g of them per KV head. Its feed-forward
block has K matrices of width F (3 if it is gated, else 2). The matrices of its blocks have

    L D (2 D + 2 D / g + K F)

weights. Shapes of equal ``params`` have equal numbers of these weights. Shapes of equal ``flops``
need equal FLOPs per token in training. Divided by 6, these are the weights above, V D of the head
and, for sequences of T, 2 L D T (Chowdhery et al. 2022, arXiv 2204.02311, appendix B). The weights
exclude tables, as in Kaplan et al. 2020, because their share is different at the target.

The width is chosen freely, so a wider model has fewer layers, and so does a wider feed-forward
block. For a ratio f of F to D, L is the rounded number of layers with the baseline's
A = 2 + 2 / g and K. F then takes the rest, which compensates for rounding L, for shared KV heads
and for another activation. Llama 2 did so for its grouped heads, and Shazeer 2020 for the third
matrix. F is a multiple of a few units, so sizes are equal up to that. A config's ratio f is
therefore nominal: the F / D that it would have with the baseline's heads and activation.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, Self, TypeAlias

from autoresearch.values import Frozen
from trainer.machine.flops import DecoderShape
from trainer.schema import Config

RatioName: TypeAlias = Literal[
    "depth_width",
    "head_dim",
    "kv_group",
    "ffn_ratio",
    "activation",
    "norm",
    "norm_place",
    "qk_norm",
    "positions",
    "rope_base",
    "tie_embeddings",
    "init_scale",
]


class Ratio(Frozen):
    """One property of an architecture that does not depend on its size."""

    name: RatioName
    """Name of the ratio in a target's ``fixed``."""
    knob: str
    """Name of its knob in a menu."""
    what: str
    """Description in one clause."""
    why: str
    """Reason why its effect transfers, in one clause."""
    source: str

    @property
    def doc(self) -> str:
        """Description of the ratio in a menu."""
        return f"{self.what}; transfers: {self.why} ({self.source})"


RATIOS: dict[RatioName, Ratio] = {
    ratio.name: ratio
    for ratio in (
        Ratio(
            name="depth_width",
            knob="d_model",
            what="width against depth: at equal size, the wider the fewer layers",
            why="a 40-fold range of width to depth moves the loss by a few percent, at 1.5 B too",
            source="Kaplan et al. 2020, arXiv 2001.08361, figure 5",
        ),
        Ratio(
            name="head_dim",
            knob="head_dim",
            what="width of a head; the heads follow",
            why="it is held while width grows, so that attention scores keep their scale",
            source="Yang et al. 2022, arXiv 2203.03466; Kaplan et al. 2020, figure 5",
        ),
        Ratio(
            name="kv_group",
            knob="kv_group",
            what="heads of queries to one of keys and values; d_ff takes what they save",
            why="shared heads kept the quality of full ones at 11 B and at 30 B",
            source="Ainslie et al. 2023, arXiv 2305.13245; Llama 2, arXiv 2307.09288, table 18",
        ),
        Ratio(
            name="ffn_ratio",
            knob="ffn_ratio",
            what="d_ff / d_model, paid for in layers (nominal: heads and activation shift d_ff)",
            why="the loss is flat about the best ratio, so little is lost where that moves",
            source="Kaplan et al. 2020, arXiv 2001.08361, figure 5",
        ),
        Ratio(
            name="activation",
            knob="activation",
            what="nonlinearity of the feed-forward block, at equal weights",
            why="gated units and squared ReLU kept their gain as size grew, at equal weights",
            source="Shazeer 2020, arXiv 2002.05202; So et al. 2021, arXiv 2109.08668",
        ),
        Ratio(
            name="norm",
            knob="norm",
            what="kind of normalisation",
            why="its gain held across code bases and tasks; it acts on each token alone",
            source="Narang et al. 2021, arXiv 2102.11972",
        ),
        Ratio(
            name="norm_place",
            knob="norm_place",
            what="where a half of a block is normalised: its input, its output or both",
            why="it sets how the residual stream grows over layers; both are used at 13 B or more",
            source="OLMo 2, arXiv 2501.00656; Gemma 2, arXiv 2408.00118",
        ),
        Ratio(
            name="qk_norm",
            knob="qk_norm",
            what="whether each head's queries and keys are normalised",
            why="the instability it prevents shows in small models at high rates, as in 22 B ones",
            source="Wortsman et al. 2023, arXiv 2309.14322; Dehghani et al. 2023, 2302.05442",
        ),
        Ratio(
            name="positions",
            knob="positions",
            what="how positions enter",
            why="what rotation gained in small models held at 20 B",
            source="Su et al. 2021, arXiv 2104.09864; GPT-NeoX, arXiv 2204.06745",
        ),
        Ratio(
            name="rope_base",
            knob="rope_base",
            what="base of rotary wavelengths",
            why="the least base is set by the length of sequences and by no other size",
            source="Men et al. 2024, arXiv 2405.14591, figure 1",
        ),
        Ratio(
            name="tie_embeddings",
            knob="tie_embeddings",
            what="whether the head shares the embedding's table",
            why="what sharing costs is the vocabulary's, and its tables weigh less at size",
            source="Press and Wolf 2017, arXiv 1608.05859",
        ),
        Ratio(
            name="init_scale",
            knob="init_scale",
            what="multiplies the deviation at the start of the blocks' matrices",
            why="a multiple of the start is carried unchanged by the maximal update",
            source="Yang et al. 2022, arXiv 2203.03466, table 2",
        ),
    )
}
"""The ratios by name, in the order of a menu."""


Equal: TypeAlias = Literal["params", "flops"]
"""Quantity that is held equal."""
EQUAL_TOLERANCE = 0.02
"""Largest relative difference of two sizes that count as equal."""
RATIO_TOLERANCE = 0.15
"""Largest relative difference between a nominal ratio and the ratio that whole layers allow."""
GATED = ("swiglu", "geglu")
"""Activations whose feed-forward block has a third matrix."""


def matrices(activation: str) -> int:
    """Return the number of matrices of a feed-forward block."""
    return 3 if activation in GATED else 2


@dataclass(frozen=True, slots=True)
class EqualSize:
    """The size of one shape, which other shapes must match."""

    equal: Equal
    amount: int
    """Weights of the blocks' matrices, or FLOPs per token divided by 6."""
    attention: float
    """A of the baseline: 2 + 2 / g."""
    k: int
    """Number of matrices in the baseline's feed-forward block."""
    head: int
    """Weights of the head per unit of width: V at equal FLOPs, else 0."""
    scores: int
    """Cost of one layer's attention scores per unit of width: 2 T at equal FLOPs, else 0."""
    unit: int
    """Number that d_ff is a multiple of."""

    @classmethod
    def of(
        cls, shape: DecoderShape, *, equal: Equal, vocab_size: int, seq_len: int, unit: int
    ) -> Self:
        """Return the size of this shape.

        :param unit: a divisor of the shape's d_ff, so that the shape itself has exactly this size.
        """
        size = cls(
            equal=equal,
            amount=0,
            attention=2 + 2 * shape.kv_heads / shape.n_head,
            k=matrices(shape.activation),
            head=vocab_size if equal == "flops" else 0,
            scores=2 * seq_len if equal == "flops" else 0,
            unit=unit,
        )
        return replace(size, amount=size.amount_of(shape))

    def amount_of(self, shape: DecoderShape) -> int:
        """Return another shape's weights or FLOPs, comparable with ``amount``."""
        d = shape.d_model
        keys = d * shape.kv_heads // shape.n_head
        block = d * (2 * d + 2 * keys + matrices(shape.activation) * shape.d_ff)
        return shape.n_layer * (block + self.scores * d) + self.head * d

    def layers(self, d_model: int, ffn_ratio: float) -> float:
        """Return the unrounded number of layers for this width and nominal ratio."""
        per_layer = d_model**2 * (self.attention + self.k * ffn_ratio) + self.scores * d_model
        return (self.amount - self.head * d_model) / per_layer

    def ratio(self, d_model: int, n_layer: int) -> float:
        """Return the nominal ratio for this width and number of layers."""
        per_layer = (self.amount - self.head * d_model) / n_layer - self.scores * d_model
        return (per_layer / d_model**2 - self.attention) / self.k

    # --- formulas of a menu ---------------------------------------------------------------------

    @property
    def _room(self) -> str:
        """Formula of the amount that the layers share."""
        return f"({self.amount} - {self.head} * d_model)" if self.head else str(self.amount)

    def layers_formula(self, ffn_ratio: str) -> str:
        """Return the formula of ``n_layer`` from the width and the ratio."""
        scores = f" + {self.scores} * d_model" if self.scores else ""
        weights = f"d_model ** 2 * ({self.attention:.15g} + {self.k} * {ffn_ratio})"
        return f"({self._room} / ({weights}{scores}) + 0.5) // 1"

    def ratio_formula(self) -> str:
        """Return the formula of the nominal ratio from the width and the layers."""
        scores = f" - {self.scores} * d_model" if self.scores else ""
        room = f"({self._room} / n_layer{scores})"
        return f"({room} / d_model ** 2 - {self.attention:.15g}) / {self.k}"

    def d_ff_formula(self, kv_group: str, activation: str | None) -> str:
        """Return the formula of ``d_ff``, which takes the rest of the size.

        :param kv_group: name of a knob, or a number: heads per KV head.
        :param activation: activation of all configs; None: it is a knob.
        """
        k = str(matrices(activation)) if activation else f"(3 if activation in {GATED!r} else 2)"
        scores = f" - {self.scores}" if self.scores else ""
        heads = f"2 * d_model - 2 * d_model / {kv_group}"
        left = f"({self._room} / n_layer / d_model{scores} - {heads})"
        return f"({left} / {k} / {self.unit} + 0.5) // 1 * {self.unit}"


def numeric_ratios(shape: DecoderShape, reference: DecoderShape) -> dict[RatioName, float]:
    """Return the numeric ratios of a shape by name.

    :param reference: shape with whose heads and activation the feed-forward ratio is nominal.
    """
    size = EqualSize.of(shape, equal="params", vocab_size=0, seq_len=1, unit=1)
    like = EqualSize.of(reference, equal="params", vocab_size=0, seq_len=1, unit=1)
    per_block = size.amount / shape.n_layer / shape.d_model**2
    return {
        "depth_width": shape.d_model / shape.n_layer,
        "head_dim": shape.d_model / shape.n_head,
        "kv_group": shape.n_head / shape.kv_heads,
        "ffn_ratio": (per_block - like.attention) / like.k,
    }


def unequal_sizes(winner: Config, baseline: Config, vocab_size: int) -> str | None:
    """Return how two sizes differ, in words; None if their parameters or FLOPs are equal."""
    off = []
    kinds: tuple[Equal, ...] = ("params", "flops")
    for equal in kinds:
        size = EqualSize.of(
            baseline, equal=equal, vocab_size=vocab_size, seq_len=baseline.seq_len, unit=1
        )
        factor = size.amount_of(winner) / size.amount
        if abs(factor - 1) <= EQUAL_TOLERANCE:
            return None
        off.append(f"{factor:.3g} times the baseline's {equal}")
    return " and ".join(off)
