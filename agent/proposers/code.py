"""Propose functions for code knobs: published ideas, and a model's own.

``autoresearch/library.toml`` holds published functions with their sources. An idea is tried alone
against the present reference, those least often tried first, so that every idea has had its turn
before one is tried again from a better reference.

Iterations are divided between code knobs and numbers. Each draws from the posterior of what turns
of either kind have earned lately (:func:`trajectory.track_record.earned`; Thompson 1933), and the
higher draw has the turn. A language model gets every other turn for code, and those for which the
library has nothing new.
"""

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import TypeAlias

from agent.menu.rails import Rails
from agent.proposers.base import Offer, Proposer, SearchView
from agent.proposers.draws import Draw, first_allowed, rng_for
from agent.proposers.hybrid import first_of
from autoresearch.ideas import Idea, ideas
from autoresearch.values import Scalar
from trainer.code import normalize, slot_of
from trajectory.proposals import LIBRARY, ProposerRecord
from trajectory.track_record import CODE, NUMBERS, Credit


@dataclass(frozen=True, slots=True)
class LibraryProposer:
    """Proposes one published idea at a time; another proposer follows once all are tried."""

    rails: Rails
    then: Proposer

    def propose(self, view: SearchView) -> Offer:
        """See :class:`~agent.proposers.base.Proposer`.

        :raises ProposerError: if no idea is left, and the other proposer has none.
        """
        began = time.monotonic()
        rng = rng_for(LIBRARY, view)
        known = view.menu.code_knobs if view.menu.trainer is None else {}
        found = [idea for idea in ideas() if slot_of(idea.slot).key in known]
        times = Counter(
            entry.config.value(key) for entry in view.evidence.configs.values() for key in known
        )
        found.sort(key=lambda one: (times[_normal(one)], rng.random()))
        draws = (Draw(changes_for(idea, view), str(idea)) for idea in found)
        draw = first_allowed(self.rails, view, draws, len(ideas()))
        if draw is None:
            return self.then.propose(view)
        record = ProposerRecord(kind=LIBRARY, latency_s=time.monotonic() - began)
        return Offer(draw, record)


def changes_for(idea: Idea, view: SearchView) -> dict[str, Scalar]:
    """Return the changes that try an idea from the reference.

    If the slot is unused there, such as a gate with an activation that has none, the field that
    chooses it changes too, and functions that this leaves without use are removed.
    """
    slot, menu, reference = slot_of(idea.slot), view.menu, view.reference
    changes: dict[str, Scalar] = {slot.key: _normal(idea)}
    chooser = slot.chosen_by
    if not chooser or slot.body(reference.value(chooser)) is not None or chooser not in menu.knobs:
        return changes
    domain = menu.open_domains.get(chooser)
    fitting = [one for one in domain.ends if slot.body(one) is not None] if domain else []
    own = (key for key in menu.code_knobs if reference.value(key))
    unused = [key for key in own if slot_of(key).chosen_by == chooser]
    return {**dict.fromkeys(unused, ""), **changes, chooser: fitting[0]} if fitting else changes


@cache
def _normal(idea: Idea) -> str:
    return normalize(slot_of(idea.slot), idea.code)


WRITER_SHARE = 0.5
"""Share of the turns for code that a language model gets while the library has new ideas."""


Write: TypeAlias = Callable[[SearchView, str], Offer]
"""Offers a language model's function for one code knob, by its name in the menu. It raises
ProposerError if the model gives none."""


@dataclass(frozen=True, slots=True)
class CodeSplit:
    """Gives a turn to code or to numbers."""

    numbers: Proposer
    library: Proposer
    """Proposes code, or whatever is left to try."""
    write: Write | None
    """Asks a language model; None: the library has all turns for code."""

    def propose(self, view: SearchView) -> Offer:
        """See :class:`~agent.proposers.base.Proposer`.

        :raises ProposerError: if no other proposer has one.
        """
        rng, known = rng_for("kind", view), view.evidence.earnings
        code, numbers = (
            rng.gauss(*known.get(kind, Credit()).posterior()) for kind in (CODE, NUMBERS)
        )
        knobs = view.menu.code_knobs
        if not knobs or code < numbers:
            return self.numbers.propose(view)
        used = [name for name, knob in knobs.items() if knob.built_in(view.reference) is not None]
        write = self.write if used else None
        # The library is asked only if its offer may be used: the rails run every function.
        if write is None or rng.random() >= WRITER_SHARE:
            offer = self.library.propose(view)
            if offer.record.kind == LIBRARY:
                return _for_code(offer)
            if write is None:
                return offer
        return _for_code(
            first_of(
                lambda: write(view, rng.choice(used)),
                lambda: self.library.propose(view),
            )
        )


def _for_code(offer: Offer) -> Offer:
    return replace(offer, record=offer.record.model_copy(update={"arm": CODE}))
