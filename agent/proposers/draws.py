"""What the drawing proposers share: which knobs to turn, and drawing until the rails allow it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from random import Random

from agent.menu.rails import Rails
from agent.proposers.base import Memory, ProposerError
from autoresearch.values import Scalar


@dataclass(frozen=True, slots=True)
class Draw:
    """A proposal before it is text."""

    changes: dict[str, Scalar]
    reason: str

    @property
    def raw(self) -> str:
        return json.dumps({"changes": self.changes, "reason": self.reason})


def rng_for(who: str, memory: Memory) -> Random:
    """All the chance there is in one proposer's one iteration.

    Named, so that two proposers of one campaign do not draw the same numbers.
    """
    return Random(f"{who}:{memory.seed}:{memory.iter}")


def some_knobs(rng: Random, memory: Memory) -> list[str]:
    """Between one knob and ``max_changes`` of them, every number as likely as another."""
    names = list(memory.menu.knobs)
    most = min(memory.max_changes, len(names))
    return rng.sample(names, rng.randint(1, most))


def against_reference(memory: Memory, values: dict[str, Scalar]) -> dict[str, Scalar]:
    """Those of the values that are a change."""
    now = memory.menu.knob_values(memory.reference)
    return {name: value for name, value in values.items() if value != now[name]}


def uniform_draws(rng: Random, memory: Memory, reason: str) -> Iterator[Draw]:
    """Without end: some knobs of the reference, each set uniformly over its scale."""
    while True:
        domains = {name: memory.menu.knobs[name].domain for name in some_knobs(rng, memory)}
        values = {name: domain.rounded(domain.draw(rng)) for name, domain in domains.items()}
        yield Draw(against_reference(memory, values), reason)


def first_allowed(rails: Rails, memory: Memory, draws: Iterable[Draw], at_most: int) -> Draw | None:
    """The first of ``at_most`` draws that changes something and passes every rail."""
    tried = memory.tried
    for draw in islice(draws, at_most):
        if draw.changes and rails.check(draw.raw, memory.reference, tried).verdict.allowed:
            return draw
    return None


def exhausted(memory: Memory, draws: int) -> ProposerError:
    """What to raise when no draw was allowed."""
    return ProposerError(
        f"none of {draws} draws was a config both allowed and untried "
        f"({len(memory.evidence.configs)} were tried): the menu seems exhausted; "
        f"widen its knobs or raise --max-changes above {memory.max_changes}"
    )
