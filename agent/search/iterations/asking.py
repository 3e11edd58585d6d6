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
from typing import Protocol

from agent.menu.rails import Checked, Rails
from agent.proposers.base import Memory, Offer, Proposer
from autoresearch.errors import AutoresearchError


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

        :raises AutoresearchError: if no proposal can be had.
        """
        began = time.monotonic()
        offer = self.proposer.propose(self.memory)
        checked = self.rails.check(offer.raw, self.memory.reference, self.memory.tried)
        return Answer(self.memory, offer, checked, began)


class Asking(Protocol):
    """Interface for asking; at most one question is open."""

    @property
    def busy(self) -> bool:
        """Return whether a question is open whose answer was not taken."""
        ...

    def ask(self, question: Question) -> None:
        """Ask for the next proposal."""
        ...

    def answer(self) -> Answer | None:
        """Return the answer once, or None if there is none yet.

        :raises AutoresearchError: if no proposal can be had.
        """
        ...


class AskedNow:
    """The caller waits for the answer."""

    def __init__(self) -> None:
        self._question: Question | None = None

    @property
    def busy(self) -> bool:
        return self._question is not None

    def ask(self, question: Question) -> None:
        """See :meth:`Asking.ask`."""
        self._question = question

    def answer(self) -> Answer | None:
        """See :meth:`Asking.answer`."""
        question, self._question = self._question, None
        return None if question is None else question.answered()


class AskedInThread:
    """A daemon thread waits, so that a person who stops the campaign need not wait for a model."""

    def __init__(self, wake: Callable[[], None]) -> None:
        """Create an idle asker.

        :param wake: called from the thread when there is an answer.
        """
        self._wake = wake
        self._found: list[Answer | BaseException] = []
        self.busy = False

    def ask(self, question: Question) -> None:
        """See :meth:`Asking.ask`."""
        self.busy = True
        threading.Thread(
            target=self._wait_for, args=(question,), name="proposer", daemon=True
        ).start()

    def answer(self) -> Answer | None:
        """See :meth:`Asking.answer`."""
        if not self._found:
            return None
        found = self._found.pop()
        self.busy = False
        if isinstance(found, Answer):
            return found
        raise found

    def _wait_for(self, question: Question) -> None:
        """Ask in the thread; its errors are raised where the answer is taken."""
        try:
            self._found.append(question.answered())
        except AutoresearchError as error:
            self._found.append(error)
        except BaseException as bug:  # noqa: BLE001 (raised again in the loop's own thread)
            self._found.append(bug)
        self._wake()
