"""A campaign's thousand seeds, and who takes which: no two kinds of work share one."""

from __future__ import annotations

from typing import Literal, TypeAlias

Block: TypeAlias = Literal["search", "calibration", "confirmation", "long runs"]

_PER_CAMPAIGN = 1000
_BLOCKS: dict[Block, range] = {
    "search": range(700),
    "calibration": range(700, 800),
    "confirmation": range(800, 900),
    "long runs": range(900, _PER_CAMPAIGN),
}


def seeds_of(campaign_seed: int, block: Block) -> range:
    """The seeds of one kind of work in the campaign whose own seed this is.

    Races take theirs from the first on; stress tests and ladders from the first of the long runs',
    attributions from the last.
    """
    offsets, first = _BLOCKS[block], _PER_CAMPAIGN * campaign_seed
    return range(first + offsets.start, first + offsets.stop)
