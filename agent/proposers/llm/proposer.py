"""Propose by a language model, and check everything that it says.

An iteration has one prompt and, if the rails refuse the answer, up to two further rounds in which
the model sees the verdict. Every exchange is stored raw.
"""

import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from agent.menu.rails import Rails
from agent.menu.replies import OWN, ParsedReply, read_code_reply, read_reply, read_slate_reply
from agent.menu.reply_objects import ReplyError
from agent.proposers.base import Offer, ProposerError, SearchView
from agent.proposers.hybrid import Slate
from agent.proposers.llm.completions import Conversations, Json, Message, Reply
from agent.proposers.llm.facts import code_example, tried_values
from agent.proposers.llm.failures import ContextError, EndpointError
from agent.proposers.llm.prompt import REFUSED_REPLY, Prompt, Prompter
from agent.proposers.llm.reply_form import code_schema, proposal_schema, slate_schema
from autoresearch.values import Scalar
from trajectory.proposals import MODEL, Arm, Attempt, Proposal, ProposerRecord, Verdict

REPAIRS = 2
"""Rounds after the first."""
WARMER = 0.3
"""Added to the temperature in each further round."""
SHOWN_CHARACTERS = 4_000
"""Most characters of a refused function to repeat to its author."""
KEPT_CHARACTERS = 20_000
"""Most characters of a raw reply to store."""


@dataclass(frozen=True, slots=True)
class _Answer:
    """A reply as the rails check it."""

    reply: ParsedReply | None
    """None if it could not be read."""
    arm: Arm | None = None
    expected: float | None = None
    """Difference of objectives that the model expects."""
    proposal: Proposal | None = None
    """Set once the rails have passed it."""
    ideas: tuple[Mapping[str, Scalar], ...] = ()


@dataclass(frozen=True, slots=True)
class _Task:
    """A question to the model: to choose from a slate, or to propose by itself."""

    view: SearchView
    slate: Slate | None = None
    arms: tuple[Arm, ...] = ()

    @property
    def schema(self) -> dict[str, Any]:
        if self.slate is None:
            return proposal_schema(self.view)
        return slate_schema(self.view, self.slate.names, self.arms)

    def read(self, text: str) -> _Answer:
        """Return a reply's proposal for the rails.

        :raises ReplyError: if there is none in it.
        """
        if self.slate is None:
            return _Answer(read_reply(text))
        said = read_slate_reply(text, [*self.slate.names, *((OWN,) if "own" in self.arms else ())])
        measure, expected = self.view.menu.measure, said.expected
        if expected is not None:
            expected = measure.objective(expected) / measure.parts
        proposal = said.proposal
        if said.pick is not None:
            candidate = self.slate.candidates[self.slate.names.index(said.pick)]
            proposal = replace(proposal, changes=dict(candidate.changes))
        arm: Arm = "own" if said.pick is None else "pick"
        return _Answer(proposal, arm, expected, ideas=said.ideas)

    def prompt(self, prompter: Prompter, context: int | None) -> Prompt:
        return prompter.prompt(self.view, self.slate, self.arms, context=context)

    def repair(self, prompter: Prompter, why: str, said: str) -> tuple[Message, Message]:
        example = prompter.example(self.view, self.slate)
        return prompter.repair(self.view, why, REFUSED_REPLY, example)

    def record(self, answer: _Answer) -> dict[str, Any]:
        """Return what a row stores of an answer that passed the rails."""
        assert answer.proposal is not None
        if self.slate is None:
            return {}
        changes = answer.proposal.changes
        return {
            "overrode": dict(self.slate.candidates[0].changes),
            "arm": answer.arm if self.slate.at(changes) is None else "pick",
            "expected": answer.expected,
            "prediction": self.slate.prediction(changes),
            "ideas": answer.ideas,
        }


@dataclass(frozen=True, slots=True)
class _Writing:
    """A request for a function for one code knob."""

    view: SearchView
    name: str

    schema: dict[str, Any] = field(default_factory=code_schema)

    def read(self, text: str) -> _Answer:
        """Return a reply's function as a proposal for the rails.

        :raises ReplyError: if there is none in it.
        """
        code, reason = read_code_reply(text)
        return _Answer(ParsedReply({self.name: code}, reason))

    def prompt(self, prompter: Prompter, context: int | None) -> Prompt:
        return prompter.code_prompt(self.view, self.name, context=context)

    def repair(self, prompter: Prompter, why: str, said: str) -> tuple[Message, Message]:
        example = code_example(self.view, self.name)
        return prompter.repair(self.view, why, said[:SHOWN_CHARACTERS], example)

    def record(self, answer: _Answer) -> dict[str, Any]:
        return {}


class ChatModel(Protocol):
    """A language model, behind an endpoint or a command."""

    @property
    def known_model(self) -> str | None:
        """Its name, if known without asking."""

    @property
    def model(self) -> str:
        """Its name.

        :raises EndpointError: if it must be asked for, and does not come.
        """

    @property
    def context(self) -> int | None:
        """Most tokens of a question and its reply together; None if unknown.

        :raises EndpointError: if it must be asked for, and does not come.
        """

    def ask(self, messages: Sequence[Message], schema: Json, *, warmer: float = 0.0) -> Reply:
        """Return the reply to a chat.

        :raises EndpointError: if no reply came.
        :raises ProposerError: if the model may not be asked.
        """


class LlmProposer:
    """Asks a language model until the rails pass a reply.

    :param conversations: where prompts are stored; None: nowhere.
    """

    def __init__(
        self,
        endpoint: ChatModel,
        rails: Rails,
        prompter: Prompter,
        conversations: Conversations | None = None,
    ) -> None:
        self._endpoint = endpoint
        self._rails = rails
        self._prompter = prompter
        self._conversations = conversations

    def propose(self, view: SearchView) -> Offer:
        """See :class:`~agent.proposers.base.Proposer`.

        :raises ProposerError: if the endpoint gives no reply or no reply passes the rails; it holds
            every attempt.
        """
        return self._answer(_Task(view))

    def choose(self, view: SearchView, slate: Slate, arms: Collection[Arm]) -> Offer:
        """Offer one of the slate's candidates, or changes of its own.

        :raises ProposerError: as for :meth:`propose`.
        """
        return self._answer(_Task(view, slate, tuple(arms)))

    def write(self, view: SearchView, name: str) -> Offer:
        """Offer a function for one code knob, by its name in the menu.

        :raises ProposerError: as for :meth:`propose`.
        """
        return self._answer(_Writing(view, name))

    def _answer(self, task: _Task | _Writing) -> Offer:
        try:
            return self._attempt(task)
        except ProposerError as error:
            if not isinstance(error.__cause__, ContextError) or len(error.attempts) > 1:
                raise
        # The server has reported its limit: retry with a prompt of that length.
        return self._attempt(task)

    def _attempt(self, task: _Task | _Writing) -> Offer:
        with self._attempted([], None):
            context = self._endpoint.context
        prompt = task.prompt(self._prompter, context)
        messages = list(prompt.messages)
        began = time.monotonic()
        attempts: list[Attempt] = []
        try:
            while len(attempts) <= REPAIRS:
                with self._attempted(attempts, prompt):
                    warmer = WARMER * len(attempts)
                    reply = self._endpoint.ask(messages, task.schema, warmer=warmer)
                attempt, answer, why = self._judged(reply, task)
                attempts.append(attempt)
                if answer.reply is not None and answer.proposal is not None:
                    record = ProposerRecord(
                        kind=MODEL,
                        model=self._endpoint.model,
                        prompt_sha256=prompt.sha256,
                        attempts=tuple(attempts),
                        latency_s=time.monotonic() - began,
                        **task.record(answer),
                    )
                    return Offer(answer.reply, record)
                messages += task.repair(self._prompter, why, attempt.raw)
            raise self._error(
                f"none of {len(attempts)} replies of {self._endpoint.model} was a usable proposal, "
                f"the last because {_why(attempts[-1])}; it is asked again at its next iteration",
                attempts,
                prompt,
            )
        finally:
            if self._conversations is not None:
                self._conversations.keep(prompt.messages, messages)

    @contextmanager
    def _attempted(self, attempts: list[Attempt], prompt: Prompt | None) -> Iterator[None]:
        """Count it as an attempt without a reply if the endpoint fails within.

        :raises ProposerError: then, with that attempt and those before.
        """
        began = time.monotonic()
        try:
            yield
        except EndpointError as error:
            failed = Attempt(
                raw="",
                error=str(error),
                latency_s=time.monotonic() - began,
                cost_usd=error.cost_usd,
            )
            raise self._error(str(error), [*attempts, failed], prompt) from error
        except ProposerError as error:  # it was not asked
            raise self._error(str(error), attempts, prompt) from error

    def _error(self, message: str, attempts: list[Attempt], prompt: Prompt | None) -> ProposerError:
        return ProposerError(
            message,
            tuple(attempts),
            model=self._endpoint.known_model,
            prompt_sha256=None if prompt is None else prompt.sha256,
        )

    def _judged(self, reply: Reply, task: _Task | _Writing) -> tuple[Attempt, _Answer, str]:
        """Return the record of a reply, its content, and what the model should know about its
        refusal."""
        view = task.view
        verdict, answer, used = None, _Answer(None), ""
        if reply.error is None:
            try:
                answer = task.read(reply.text)
                assert answer.reply is not None
                checked = self._rails.check(answer.reply, view.reference, view.tried)
                verdict = checked.verdict
                if verdict.allowed:
                    ideas = []
                    for changes in answer.ideas:
                        said = ParsedReply(dict(changes), "")
                        idea = self._rails.check(said, view.reference, view.tried)
                        if idea.config is not None and idea.proposal is not None:
                            ideas.append(idea.proposal.changes)
                    answer = replace(answer, proposal=checked.proposal, ideas=tuple(ideas))
                elif verdict.rail == "novelty" and checked.proposal and isinstance(task, _Task):
                    used = "; ".join(tried_values(view, checked.proposal.changes))
            except ReplyError as error:
                verdict = Verdict(allowed=False, rail="schema", why=str(error))
        attempt = Attempt(
            raw=reply.text[:KEPT_CHARACTERS],
            truncated=len(reply.text) > KEPT_CHARACTERS,
            mode=reply.mode,
            finish_reason=reply.finish_reason,
            verdict=verdict,
            error=reply.error,
            latency_s=reply.latency_s,
            prompt_tokens=reply.prompt_tokens,
            completion_tokens=reply.completion_tokens,
            cost_usd=reply.cost_usd,
        )
        return attempt, answer, "; ".join(filter(None, (_why(attempt), used)))


def _why(attempt: Attempt) -> str:
    if attempt.verdict is not None:
        return attempt.verdict.why
    return attempt.error or "nothing came"
