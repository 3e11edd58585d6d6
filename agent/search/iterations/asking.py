"""Asking for proposals: one after another, at once or beside the work.

Where one trial runs at a time a proposal is asked for when the loop has nothing else to do, and by
the loop itself. Where several run a model may think for a minute, and no lane is to wait for it: so
the next proposal is asked for in a thread of its own, which sees what was known when it began.
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
    """A proposal, and what the rails say of it."""

    memory: Memory
    offer: Offer
    checked: Checked
    began: float
    """By this process's clock."""
    wall_s: float


@dataclass(frozen=True, slots=True)
class Question:
    """What a proposer is asked, with who checks what it says."""

    proposer: Proposer
    rails: Rails
    memory: Memory

    def answered(self) -> Answer:
        """Ask, and wait for the answer.

        :raises AutoresearchError: where none can be had.
        """
        began = time.monotonic()
        offer = self.proposer.propose(self.memory)
        checked = self.rails.check(offer.raw, self.memory.reference, self.memory.tried)
        return Answer(self.memory, offer, checked, began, time.monotonic() - began)


class Asking(Protocol):
    """Whoever asks. There is one question at a time."""

    @property
    def busy(self) -> bool:
        """Whether something was asked whose answer was not taken yet."""
        ...

    def ask(self, question: Question) -> None:
        """Ask for the next."""
        ...

    def answer(self) -> Answer | None:
        """What came of it, once; None while nothing did.

        :raises AutoresearchError: where no proposal can be had.
        """
        ...


class AskedNow:
    """Who asks waits."""

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


class AskedAside:
    """A thread waits. It is a daemon: a person who stops the campaign waits for no model."""

    def __init__(self, wake: Callable[[], None]) -> None:
        """
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
        """In the thread. Whatever goes wrong there is raised where the answer is taken."""
        try:
            self._found.append(question.answered())
        except AutoresearchError as error:
            self._found.append(error)
        except BaseException as bug:  # noqa: BLE001 (raised again in the loop's own thread)
            self._found.append(bug)
        self._wake()
