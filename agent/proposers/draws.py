"""Draw proposals: choose which knobs to change, and draw until the rails allow one."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from random import Random
from typing import Self, TypeAlias

from agent.menu.rails import Rails
from agent.menu.replies import ParsedReply
from agent.proposers.base import Offer, ProposerError, SearchView
from agent.proposers.surrogate.space import anywhere
from autoresearch.domains.base import Domain
from autoresearch.values import Scalar
from trajectory.proposals import MODEL, ProposerRecord

Edit: TypeAlias = dict[str, Scalar]
"""Changed knobs of the reference."""
UNIFORM_DRAWS = 2000
"""Uniform draws after all of a search's own draws, which cluster, were refused."""


@dataclass(frozen=True, slots=True)
class Draw(ParsedReply):
    """A proposal of a search."""

    model: str | None = None
    """Language model whose idea it is, if any."""


def rng_for(who: str, view: SearchView) -> Random:
    """Return the random generator of one proposer's one iteration.

    It is seeded by name too, so that two proposers of one campaign do not draw the same numbers.
    """
    return Random(f"{who}:{view.seed}:{view.iter}")


@dataclass(frozen=True, slots=True)
class Edits:
    """Random edits of the reference: some knobs, each set uniformly over its scale."""

    domains: Mapping[str, Domain]
    """Domains of the knobs that are drawn from: code is not."""
    now: Mapping[str, Scalar]
    """Knobs of the reference."""
    few: int
    """Most knobs that a small edit changes."""
    most: int
    """Most knobs that a proposal may change."""
    settled: Callable[[Mapping[str, Scalar]], Mapping[str, Scalar]] | None = None
    """Returns values of all knobs with the default of each that does not count beside the others;
    None if all knobs always count."""
    allows: Callable[[str, Scalar], bool] = lambda _name, _value: True
    """Whether no edit of the menu forbids a knob this value; earlier configs may have it."""

    @classmethod
    def of(cls, view: SearchView) -> Self:
        menu = view.menu
        domains = {n: one for n, one in menu.open_domains.items() if n not in menu.code_knobs}
        most = min(view.max_changes, len(domains))
        now = menu.knob_values(view.reference)
        settled = menu.settled if menu.conditions else None
        return cls(domains, now, view.few_changes, most, settled, menu.allows)

    def small(self, rng: Random) -> Edit:
        """Edit one to a few knobs, each number equally likely."""
        return self.turned(rng, 1, self.few)

    def large(self, rng: Random) -> Edit:
        """Edit more than a few knobs, if a proposal may change that many."""
        return self.turned(rng, min(self.few + 1, self.most), self.most)

    def whole(self, rng: Random) -> Edit:
        """Edit as many knobs as allowed: without a limit, a draw from the whole menu that keeps
        nothing of the reference."""
        return self.turned(rng, self.most, self.most)

    def against(self, values: Mapping[str, Scalar]) -> Edit:
        """Return the allowed values that differ from the reference, once knobs that do not count
        have their defaults."""
        if self.settled is not None:
            values = self.settled({**self.now, **values})
        return {
            name: value
            for name, value in values.items()
            if value != self.now[name] and self.allows(name, value)
        }

    def turned(self, rng: Random, least: int, most: int) -> Edit:
        """Edit a number of knobs within bounds; those that keep their value do not count as
        changed."""
        names = rng.sample(list(self.domains), rng.randint(least, most))
        return self.against({name: anywhere(self.domains[name], rng) for name in names})


def uniform_draws(
    rng: Random, view: SearchView, reason: str, *, any_size: bool = False
) -> Iterator[Draw]:
    """Yield edits without end: small ones, or those of every size for what is left of a menu."""
    edits = Edits.of(view)
    while True:
        is_large = any_size and rng.random() >= 0.5
        yield Draw(edits.large(rng) if is_large else edits.small(rng), reason)


def offered(
    kind: str,
    rails: Rails,
    view: SearchView,
    draws: Callable[[Random], Iterable[Draw]],
    at_most: int,
) -> Offer:
    """Return the first of a search's ``at_most`` draws that the rails allow, else a random edit.

    :param kind: the searcher's name in its record, and the seed of its draws.
    :raises ProposerError: if the menu seems exhausted.
    """
    began = time.monotonic()
    rng = rng_for(kind, view)
    draw = first_allowed(rails, view, draws(rng), at_most)
    if draw is None:
        why = "drawn uniformly: no other draw was allowed and new"
        others = uniform_draws(rng, view, why, any_size=True)
        draw = first_allowed(rails, view, others, UNIFORM_DRAWS)
    if draw is None:
        limit = view.max_changes
        more = f" or raise max_changes above {limit}" if limit < len(view.menu.knobs) else ""
        raise ProposerError(
            f"none of {at_most + UNIFORM_DRAWS} draws was a config both allowed and untried "
            f"({len(view.evidence.configs)} were tried): the menu seems exhausted; "
            f"widen its knobs{more}"
        )
    author = MODEL if draw.model else kind
    latency_s = time.monotonic() - began
    return Offer(draw, ProposerRecord(kind=author, model=draw.model, latency_s=latency_s))


def first_allowed(
    rails: Rails, view: SearchView, draws: Iterable[Draw], at_most: int
) -> Draw | None:
    """Return the first of ``at_most`` draws that changes something and passes every rail."""
    allowed = gate(rails, view)
    return next((draw for draw in islice(draws, at_most) if allowed(draw)), None)


def gate(rails: Rails, view: SearchView) -> Callable[[Draw], bool]:
    """Return a check that a draw changes something and passes every rail."""
    tried = view.tried

    def allowed(draw: Draw) -> bool:
        if not draw.changes:
            return False
        return rails.check(draw, view.reference, tried).verdict.allowed

    return allowed


MAX_DRAWS = 500


@dataclass(frozen=True, slots=True)
class RandomProposer:
    """Changes one to ``few_changes`` knobs of the reference, each uniformly over its scale.

    Draws that the rails refuse or that were tried before are drawn again.
    """

    rails: Rails

    def propose(self, view: SearchView) -> Offer:
        """See :class:`~agent.proposers.base.Proposer`.

        :raises ProposerError: if the menu seems exhausted.
        """
        return offered(
            "random",
            self.rails,
            view,
            lambda rng: uniform_draws(rng, view, "drawn uniformly"),
            MAX_DRAWS,
        )
