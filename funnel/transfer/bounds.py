"""Bound a carried recipe by published practice.

A search on runs of a minute may choose values that no long run has been trained with. The launch
plan takes the nearest published value instead, and says so.
"""

from collections.abc import Iterator
from typing import NamedTuple

from funnel.transfer.carry import Carried

WARMUP_STEPS, WARMUP_SHARE = 2000, 0.01
WARMUP_SOURCE = (
    "Llama 2 took 2,000 steps (arXiv 2307.09288, section 2.2), Pythia 1 % of them (arXiv "
    "2304.01373), GPT-3 0.1 % of its tokens (arXiv 2005.14165, appendix B)"
)


class Bound(NamedTuple):
    """The published range of one value."""

    low: float
    high: float
    source: str


BOUNDS = {
    "weight_decay": Bound(
        0.0,
        0.3,
        "0.1 in GPT-3, Llama 2 and DeepSeek-V3 (arXiv 2412.19437, section 4.2), at most 0.3 in ViT "
        "(arXiv 2010.11929, table 3); it applies to the embedding tables too",
    ),
    "grad_clip": Bound(
        0.3,
        1.0,
        "1.0 in GPT-3, Llama 2 and DeepSeek-V3, lowered to 0.3 by OPT (arXiv 2205.01068, section "
        "2.5)",
    ),
}


class Bounded(NamedTuple):
    """A carried value that lay outside its published range."""

    name: str
    carried: float
    taken: float
    source: str

    @property
    def words(self) -> str:
        return (
            f"{self.name} of {self.carried:.4g} is beyond published practice, so {self.taken:.4g} "
            f"is taken: {self.source}"
        )


def out_of_bounds(carried: Carried) -> Iterator[Bounded]:
    """Yield the values that lie outside their published ranges."""
    for name, bound in BOUNDS.items():
        value = float(getattr(carried.config, name))
        taken = min(max(value, bound.low), bound.high)
        if taken != value:
            yield Bounded(name, value, taken, bound.source)
    most = max(WARMUP_STEPS, round(WARMUP_SHARE * carried.steps))
    if carried.config.lr_warmup > most:
        yield Bounded("lr_warmup", carried.config.lr_warmup, most, WARMUP_SOURCE)
