"""Ask for proposals one after another, in the loop or in a thread beside it.

A search answers in milliseconds, so with one lane the loop itself asks when it has nothing else to
do. A language model may think for a minute, and no lane should wait for it or for another lane. So
a thread asks for the next proposal, from a snapshot of what was known at the start.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from agent.menu.rails import Checked, Rails
from agent.proposers.base import Memory, Offer, Proposer


@dataclass(frozen=True, slots=True)
class Answer:
    """A proposal and the rails' verdict on it."""

    memory: Memory
    offer: Offer
    checked: Checked
    began: float
    """By this process's clock."""


@dataclass(frozen=True, slots=True)
class Question:
    """Input of a proposer, and the rails that check its proposal."""

    proposer: Proposer
    rails: Rails
    memory: Memory

    def answered(self) -> Answer:
        """Ask, and wait for the answer.

        :raises AutoresearchError: if no proposer has one.
        """
        began = time.monotonic()
        offer = self.proposer.propose(self.memory)
        checked = self.rails.check(offer.raw, self.memory.reference, self.memory.tried)
        return Answer(self.memory, offer, checked, began)


class AskedNow:
    """Asks for one proposal at a time; the caller waits for the answer."""

    def __init__(self) -> None:
        self._question: Question | None = None

    @property
    def busy(self) -> bool:
        """Whether a question is open whose answer was not taken."""
        return self._question is not None

    def ask(self, question: Question) -> None:
        """Ask for the next proposal."""
        self._question = question

    def answer(self) -> Answer | None:
        """Return the answer once, or None if there is none yet.

        :raises AutoresearchError: if no proposer has one.
        """
        question, self._question = self._question, None
        return None if question is None else question.answered()


class AskedInThread(AskedNow):
    """Waits in a daemon thread, so that a person who stops the campaign need not wait for a
    model."""

    def __init__(self, wake: Callable[[], None]) -> None:
        """Create an idle asker.

        :param wake: called from the thread when there is an answer.
        """
        super().__init__()
        self._wake = wake
        self._found: list[Answer | BaseException] = []

    def ask(self, question: Question) -> None:
        """Ask, and return at once."""
        super().ask(question)
        threading.Thread(
            target=self._wait_for, args=(question,), name="proposer", daemon=True
        ).start()

    def answer(self) -> Answer | None:
        """See :meth:`AskedNow.answer`."""
        if not self._found:
            return None
        found, self._question = self._found.pop(), None
        if isinstance(found, Answer):
            return found
        raise found

    def _wait_for(self, question: Question) -> None:
        """Ask in the thread; its errors are raised where the answer is taken."""
        try:
            self._found.append(question.answered())
        except BaseException as error:  # noqa: BLE001 (raised again in the loop's own thread)
            self._found.append(error)
        self._wake()
