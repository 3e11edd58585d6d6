"""The first draw of a search that the rails allow, and chance where there is none."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from random import Random

from agent.menu.rails import Rails
from agent.proposers.base import Memory, Offer
from agent.proposers.draws import Draw, exhausted, first_allowed, rng_for, uniform_draws
from trajectory.proposals import ProposerRecord

UNIFORM_DRAWS = 500


def offered(
    who: str,
    rails: Rails,
    memory: Memory,
    draws: Callable[[Random], Iterable[Draw]],
    at_most: int,
) -> Offer:
    """The first allowed of ``at_most`` draws; then a uniform edit.

    :raises ProposerError: where the menu seems exhausted.
    """
    began = time.monotonic()
    rng = rng_for(who, memory)
    draw = first_allowed(rails, memory, draws(rng), at_most)
    if draw is None:
        draw = first_allowed(rails, memory, uniform_draws(rng, memory, "chance"), UNIFORM_DRAWS)
    if draw is None:
        raise exhausted(memory, at_most + UNIFORM_DRAWS)
    return Offer(draw.raw, ProposerRecord(kind=who, latency_s=time.monotonic() - began))
