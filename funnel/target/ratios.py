"""List the ratios that a search may change: the parts of an architecture that do not set its size.

Each ratio states, with its source, why a result from a small model should hold for a large one.
Such a reason is not a proof: of twenty changes published as gains, two were still gains at 1.2 B
parameters (Zhao et al. 2026, arXiv 2605.20798). So each carried change is measured again by itself
(:mod:`funnel.attribution`).
"""

from typing import Literal, TypeAlias

from autoresearch.values import Frozen

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
