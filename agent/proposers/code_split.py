"""Divide iterations between code knobs and numbers, and code between a model and the library.

Each iteration draws from the posterior of what turns of either kind have earned lately
(:func:`trajectory.track_record.earned`; Thompson 1933), and the higher draw has the turn. A
language model gets every other turn for code, and those for which the library has nothing new.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Protocol

from agent.proposers.base import Memory, Offer, Proposer
from agent.proposers.draws import rng_for
from agent.proposers.hybrid import standing_in
from autoresearch.errors import MachineryError
from trajectory.proposals import LIBRARY
from trajectory.track_record import CODE, NUMBERS, Credit

WRITER_SHARE = 0.5
"""Share of the turns for code that a language model gets while the library has new ideas."""


class Writer(Protocol):
    """A language model that writes functions."""

    def write(self, memory: Memory, name: str) -> Offer:
        """Offer a function for one code knob, by its name in the menu.

        :raises ProposerError: if the model gives none.
        """
        ...


class CodeSplit:
    """Gives a turn to code or to numbers.

    :param library: proposes code, or whatever is left to try.
    :param writer: None: the library has all turns for code.
    """

    def __init__(self, numbers: Proposer, library: Proposer, writer: Writer | None = None) -> None:
        self._numbers = numbers
        self._library = library
        self._writer = writer

    def propose(self, memory: Memory) -> Offer:
        """See :class:`~agent.proposers.base.Proposer`.

        :raises ProposerError: if no other proposer has one.
        """
        rng, known = rng_for("kind", memory), memory.evidence.tally.earnings
        code, numbers = (
            rng.gauss(*known.get(kind, Credit()).posterior()) for kind in (CODE, NUMBERS)
        )
        knobs = memory.menu.code_knobs
        if not knobs or code < numbers:
            return self._numbers.propose(memory)
        used = [name for name, knob in knobs.items() if knob.built_in(memory.reference) is not None]
        writer = self._writer if used else None
        # The library is asked only if its offer may be used: the rails run every function.
        if writer is None or rng.random() >= WRITER_SHARE:
            offer = self._library.propose(memory)
            if offer.record.kind == LIBRARY:
                return _for_code(offer)
            if writer is None:
                return offer
        try:
            return _for_code(writer.write(memory, rng.choice(used)))
        except MachineryError:
            raise
        except Exception as error:  # noqa: BLE001 (a proposer's bug costs only its iteration)
            return _for_code(standing_in(self._library.propose(memory), error))


def _for_code(offer: Offer) -> Offer:
    return replace(offer, record=offer.record.model_copy(update={"arm": CODE}))
