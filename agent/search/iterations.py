"""Iterations before their trials: proposals asked for, checked, numbered, and kept on disk.

A search answers in milliseconds, so with one lane the loop itself asks when it has nothing else to
do. A language model may think for a minute, and no lane should wait for it or for another lane. So
a thread asks for the next proposal, from a snapshot of what was known at the start.

A proposal that passed the rails is written down before its first trial, so that a resumed campaign
finishes this iteration instead of losing it.
"""

import threading
import time
from collections.abc import Callable, Generator
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from pydantic import Field, ValidationError

from agent.menu.rails import Checked, Rails
from agent.proposers.base import Memory, Offer, Proposer
from agent.search.campaign import Campaign
from agent.search.race import Race, Wanted
from agent.search.trial import Trial
from autoresearch.campaign_files import make_folder, read_file, remove, replace_file
from autoresearch.files import writing_to
from autoresearch.layout import IN_FLIGHT_DIR, in_flight_name, in_flight_names
from autoresearch.values import Frozen, NonNegative, PositiveInt
from autoresearch.words import timestamp
from trainer.spec import AnyConfig, PruneRule
from trajectory.proposals import Proposal, ProposerRecord, Verdict
from trajectory.rows import Decision, IterationRow, TrialRecord


@dataclass(frozen=True, slots=True)
class Answer:
    """A proposal and the rails' verdict on it."""

    memory: Memory
    offer: Offer
    checked: Checked
    began: float
    """By this process's clock."""

    @classmethod
    def to(cls, memory: Memory, propose: Callable[[Memory], Offer], rails: Rails) -> Self:
        """Ask for a proposal, and wait for it.

        :raises AutoresearchError: if there is none.
        """
        began = time.monotonic()
        offer = propose(memory)
        checked = rails.check(offer.reply, memory.reference, memory.tried)
        return cls(memory, offer, checked, began)


class Asker:
    """Asks for one proposal at a time, at once or in a daemon thread. With the thread, a person who
    stops the campaign need not wait for a model."""

    def __init__(self, wake: Callable[[], None] | None = None) -> None:
        """Create an idle asker.

        :param wake: called from the thread when there is an answer; None to ask without a thread.
        """
        self._wake = wake
        self._future: Future[Answer] | None = None

    @property
    def busy(self) -> bool:
        """Whether there is a question whose answer was not taken."""
        return self._future is not None

    def ask(self, proposer: Proposer, rails: Rails, memory: Memory) -> None:
        """Ask for the next proposal."""
        future = self._future = Future()

        def find() -> None:
            try:
                future.set_result(Answer.to(memory, proposer.propose, rails))
            except BaseException as error:  # noqa: BLE001 (raised again in the loop's own thread)
                future.set_exception(error)
            if self._wake is not None:
                self._wake()

        if self._wake is None:
            find()
        else:
            threading.Thread(target=find, name="proposer", daemon=True).start()

    def answer(self) -> Answer | None:
        """Return the answer once, or None if there is none yet.

        :raises AutoresearchError: if no proposer has one.
        """
        if self._future is None or not self._future.done():
            return None
        future, self._future = self._future, None
        return future.result()


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

    @classmethod
    def of(cls, answer: Answer, began: float, prune: PruneRule | None) -> Self:
        """Return the iteration of a new proposal; it waits for its trials since ``began``."""
        memory, checked = answer.memory, answer.checked
        return cls(
            iter=memory.iter,
            reference_hash=memory.reference.config_hash,
            proposer=answer.offer.record,
            proposal=checked.proposal,
            verdict=checked.verdict,
            config=checked.config,
            wall_s=time.monotonic() - began,
            prune=prune,
            until=memory.until,
            began=began,
        )


@dataclass(slots=True, eq=False)
class Iteration:
    """An iteration in flight."""

    pending: PendingIteration
    began: float = field(default_factory=time.monotonic)
    """Start of its race in this session, by this process's clock."""
    race: Race | None = None
    """None if the rails refused the proposal."""
    schedule: Generator[Wanted, TrialRecord, Decision] | None = None
    trial: Trial | None = None
    """Trial that its race waits for. Races that want the same trial of a reference share it."""
    decision: Decision | None = None
    """Set once its race is over."""

    def next_wanted(self, record: TrialRecord | None) -> Wanted | None:
        """Resume its race with the trial that it waited for, if it did, and return the next trial;
        None if the race is over."""
        assert self.schedule is not None, "a refused proposal is never raced"
        try:
            return next(self.schedule) if record is None else self.schedule.send(record)
        except StopIteration as ended:
            self.decision = ended.value
            return None

    def row(
        self,
        trials: tuple[TrialRecord, ...],
        *,
        race_s: float,
        energy_wh: float | None,
        lanes: int | None,
    ) -> IterationRow:
        """Return the row of an iteration that is over."""
        pending = self.pending
        assert self.decision is not None, "its race is over"
        return IterationRow(
            iter=pending.iter,
            at=timestamp(),
            proposer=pending.proposer,
            proposal=pending.proposal,
            verdict=pending.verdict,
            config=pending.config,
            config_hash=pending.config.config_hash if pending.config else None,
            trials=trials,
            decision=self.decision,
            wall_s=pending.wall_s + race_s,
            energy_wh=energy_wh,
            lanes=lanes,
        )


@dataclass(frozen=True, slots=True)
class PendingFiles:
    """Directory ``in_flight/`` of a campaign, with one file per iteration."""

    directory: Path
    """The campaign's."""

    def write(self, pending: PendingIteration) -> None:
        """Write or replace an iteration's file, without fsync: after a power cut at worst a
        proposal is asked for again."""
        with writing_to(self.directory):
            make_folder(self.directory, IN_FLIGHT_DIR)
            replace_file(self.directory, _name(pending.iter), pending.model_dump_json())

    def read(self) -> dict[int, PendingIteration]:
        """Return the readable iterations by number, the lowest first."""
        by_number = {}
        for name in in_flight_names(self.directory):
            with suppress(OSError, ValidationError):
                file = read_file(self.directory, f"{IN_FLIGHT_DIR}/{name}")
                pending = PendingIteration.model_validate_json(file)
                if name == in_flight_name(pending.iter):
                    by_number[pending.iter] = pending
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
            if rails.check(one.proposal, reference.config, configs).config == one.config:
                left.append(one)
        return left

    def clear(self, iteration: int) -> None:
        """Remove the file of an iteration that is in the journal."""
        with writing_to(self.directory):
            remove(self.directory, _name(iteration))


def _name(iteration: int) -> str:
    return f"{IN_FLIGHT_DIR}/{in_flight_name(iteration)}"
