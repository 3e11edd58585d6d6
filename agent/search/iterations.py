"""Iterations before their trials: proposals asked for, checked, numbered, and kept on disk.

A search answers in milliseconds, so with one lane the loop itself asks when it has nothing else to
do. A language model may think for a minute, and no lane should wait for it or for another lane. So
a thread asks for the next proposal, from a snapshot of what was known at the start.

A proposal that passed the rails is written down before its first trial, so that a resumed campaign
finishes this iteration instead of losing it.
"""

import threading
import time
from collections.abc import Callable, Iterator, Set
from dataclasses import dataclass, replace
from itertools import count, filterfalse
from pathlib import Path
from typing import TypeAlias

from pydantic import Field, ValidationError

from agent.menu.rails import Checked, Rails
from agent.proposers.base import Memory, Offer, Proposer
from agent.search.campaign import Campaign
from agent.search.race import Outcome, Race, TrialSchedule, Wanted
from autoresearch.files import replace_file, writing_to
from autoresearch.layout import (
    IN_FLIGHT_DIR,
    in_flight_files,
    in_flight_name,
)
from autoresearch.values import Frozen, NonNegative, PositiveInt
from trainer.spec import AnyConfig, PruneRule
from trajectory.proposals import Proposal, ProposerRecord, Verdict


@dataclass(frozen=True, slots=True)
class Answer:
    """A proposal and the rails' verdict on it."""

    memory: Memory
    offer: Offer
    checked: Checked
    began: float
    """By this process's clock."""


def answered(proposer: Proposer, rails: Rails, memory: Memory) -> Answer:
    """Ask a proposer, and wait for the answer.

    :raises AutoresearchError: if no proposer has one.
    """
    began = time.monotonic()
    offer = proposer.propose(memory)
    checked = rails.check(offer.raw, memory.reference, memory.tried)
    return Answer(memory, offer, checked, began)


Question: TypeAlias = Callable[[], Answer]
"""Calls :func:`answered`."""


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
        return None if question is None else question()


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
            self._found.append(question())
        except BaseException as error:  # noqa: BLE001 (raised again in the loop's own thread)
            self._found.append(error)
        self._wake()


class PendingIteration(Frozen):
    """Everything about an iteration that precedes its trials; all of it if the rails refused it."""

    iter: PositiveInt
    reference_hash: str
    proposer: ProposerRecord
    proposal: Proposal | None
    verdict: Verdict
    config: AnyConfig | None
    """Config to race; None if the rails refused the proposal."""
    wall_s: NonNegative
    """Seconds until the trials could start."""
    prune: PruneRule | None = None
    """Rule that stops its trials early, from the reference's curves when the iteration began. It is
    stored so that finished trials are recognized after the reference has gained curves."""
    until: PositiveInt | None = None
    """Number of iterations that the present loop will reach, for viewers."""
    began: float | None = Field(default=None, exclude=True)
    """By this process's clock. None if an earlier session began the iteration: its energy is then
    unknown, since only the later part was metered."""


@dataclass(frozen=True, slots=True)
class PendingFiles:
    """Directory ``in_flight/`` of a campaign, with one file per iteration."""

    directory: Path
    """The campaign's."""

    def write(self, pending: PendingIteration) -> None:
        """Write or replace an iteration's file, without fsync: after a power cut at worst a
        proposal is asked for again."""
        with writing_to(self.directory):
            (self.directory / IN_FLIGHT_DIR).mkdir(exist_ok=True)
            replace_file(self._path(pending.iter), pending.model_dump_json())

    def read(self) -> dict[int, PendingIteration]:
        """Return the readable iterations by number, the lowest first."""
        found = ((file, _legible(file)) for file in in_flight_files(self.directory))
        by_number = {
            pending.iter: pending
            for file, pending in found
            if pending is not None and file == self._path(pending.iter)
        }
        return dict(sorted(by_number.items()))

    def left(self, campaign: Campaign, rails: Rails, done: set[int]) -> list[PendingIteration]:
        """Return the iterations to resume, the lowest number first. Their proposals would pass the
        rails today, against their original reference.

        :param done: numbers of iterations that have a row.
        """
        pending, configs = self.read(), campaign.evidence.configs
        for number in sorted(pending.keys() & done):
            self.clear(number)  # killed between its row and this
        left = []
        for one in pending.values():
            reference = configs.get(one.reference_hash)
            if one.iter in done or not (one.proposal and one.config and reference):
                continue
            if rails.check(one.proposal.raw, reference.config, configs).config == one.config:
                left.append(one)
        return left

    def clear(self, iteration: int) -> None:
        """Remove the file of an iteration that is in the journal."""
        with writing_to(self.directory):
            self._path(iteration).unlink(missing_ok=True)

    def _path(self, iteration: int) -> Path:
        return self.directory / IN_FLIGHT_DIR / in_flight_name(iteration)


def _legible(file: Path) -> PendingIteration | None:
    try:
        return PendingIteration.model_validate_json(file.read_bytes())
    except (OSError, ValidationError):
        return None


@dataclass(slots=True, eq=False)
class Iteration:
    """An iteration in flight."""

    pending: PendingIteration
    schedule: TrialSchedule
    began: float
    """Start of its race in this session, by this process's clock."""
    outcome: Outcome | None = None
    """Set once its race is over."""
    then: tuple[Wanted, ...] = ()
    """Trials its race may request after the one that it waits for."""


def judged(race: Race, reference_now: Callable[[], AnyConfig]) -> TrialSchedule:
    """Return the trial schedule of a race whose reference others may replace.

    A discard is final. A candidate that beat a replaced reference is judged against the new one, on
    their common seeds and by the same rules, until it is discarded or has beaten the current
    reference.
    """
    outcome = yield from race.schedule()
    while outcome.decision.action == "keep":
        reference = reference_now()
        first = outcome.decision
        if reference.config_hash == first.reference_hash:
            break
        race = replace(race, reference=reference)  # keeping its trials
        outcome = yield from race.schedule()
        why = (
            f"{outcome.decision.explanation}; kept against {(first.reference_hash or '')[:12]} "
            f"before that was replaced ({first.explanation})"
        )
        decision = outcome.decision.model_copy(update={"explanation": why})
        outcome = Outcome(outcome.trials, decision)
    return outcome


def free_numbers(taken: Set[int]) -> Iterator[int]:
    """Yield the numbers with neither a row nor an in-flight file, the lowest first. An iteration
    that was in flight and cannot be resumed leaves a gap, which is filled first."""
    return filterfalse(taken.__contains__, count(1))
