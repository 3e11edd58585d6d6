"""Divide a campaign's thousand seeds among the kinds of work."""

from __future__ import annotations

from typing import Literal, TypeAlias

Block: TypeAlias = Literal["search", "calibration", "confirm", "stress", "ladder", "attribution"]

_PER_CAMPAIGN = 1000
_BLOCKS: dict[Block, range] = {
    "search": range(700),
    "calibration": range(700, 800),
    "confirm": range(800, 900),
    "stress": range(900, _PER_CAMPAIGN),
    "ladder": range(900, _PER_CAMPAIGN),
    "attribution": range(_PER_CAMPAIGN - 1, 899, -1),
}
"""Seed offsets, in the order in which they are assigned. Long runs share a block: ladders begin
after the seeds of the stress test, and attributions at the other end."""


def seeds_of(campaign_seed: int, block: Block) -> range:
    """Return the seeds of one kind of work, in the campaign with this seed."""
    offsets, first = _BLOCKS[block], _PER_CAMPAIGN * campaign_seed
    return range(first + offsets.start, first + offsets.stop, offsets.step)
