"""Propose by a language model, and check everything that it says.

An iteration has one prompt and, if the rails refuse the answer, up to two further rounds in which
the model sees its own reply and the verdict. Every exchange is stored raw.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from agent.menu.rails import Rails
from agent.proposers.base import Memory, Offer, ProposerError
from agent.proposers.llm.completions import Message, Reply
from agent.proposers.llm.conversations import Conversations
from agent.proposers.llm.endpoint import ContextError, Endpoint, EndpointError
from agent.proposers.llm.prompt import Prompt, Prompter
from agent.proposers.llm.reply_form import proposal_schema
from autoresearch.values import Scalar
from trajectory.proposals import Attempt, ProposerRecord, Verdict

REPAIRS = 2
"""Rounds after the first."""
KEPT_CHARACTERS = 20_000
"""Most characters of a raw reply to store."""


class _TooLongError(Exception):
    """The prompt exceeds the server's context; the attribute holds the error to raise if retrying
    is impossible."""

    def __init__(self, error: ProposerError) -> None:
        super().__init__(str(error))
        self.error = error


class LlmProposer:
    """Asks a model behind an endpoint until the rails pass a reply."""

    def __init__(
        self,
        endpoint: Endpoint,
        rails: Rails,
        prompter: Prompter,
        conversations: Conversations | None = None,
    ) -> None:
        """Connect the parts.

        :param conversations: where prompts are stored; None: nowhere.
        """
        self._endpoint = endpoint
        self._rails = rails
        self._prompter = prompter
        self._conversations = conversations

    def propose(self, memory: Memory, suggestion: Mapping[str, Scalar] | None = None) -> Offer:
        """See :class:`~agent.proposers.base.Proposer`.

        :param suggestion: changes that the model is shown and may override.
        :raises ProposerError: if the endpoint gives no reply or no reply passes the rails; it holds
            every attempt.
        """
        try:
            return self._attempt(memory, suggestion)
        except _TooLongError:
            # The server has reported its limit: retry with a prompt of that length.
            return self._attempt(memory, suggestion, is_last=True)

    def _attempt(
        self, memory: Memory, suggestion: Mapping[str, Scalar] | None, *, is_last: bool = False
    ) -> Offer:
        prompt = self._prompter.prompt(memory, suggestion, context=self._context())
        messages = list(prompt.messages)
        try:
            return self._converse(memory, suggestion, prompt, messages)
        except _TooLongError as error:
            if is_last:
                raise error.error from error
            raise
        finally:
            if self._conversations is not None:
                self._conversations.keep(prompt.messages, messages)

    def _context(self) -> int | None:
        """Return the server's context.

        :raises ProposerError: if the server must be asked, and does not answer.
        """
        began = time.monotonic()
        try:
            return self._endpoint.context
        except EndpointError as error:
            failed = Attempt(raw="", error=str(error), latency_s=time.monotonic() - began)
            raise ProposerError(str(error), (failed,), model=self._endpoint.known_model) from error

    def _converse(
        self,
        memory: Memory,
        suggestion: Mapping[str, Scalar] | None,
        prompt: Prompt,
        messages: list[Message],
    ) -> Offer:
        """Ask until the rails pass a reply, appending the exchange to ``messages``."""
        began = time.monotonic()
        attempts: list[Attempt] = []
        schema = proposal_schema(self._rails.menu, memory.asked_changes)
        while len(attempts) <= REPAIRS:
            reply = self._ask(messages, schema, prompt, attempts)
            attempt = self._judged(reply, memory)
            attempts.append(attempt)
            if attempt.verdict is not None and attempt.verdict.allowed:
                record = ProposerRecord(
                    kind="llm",
                    model=self._endpoint.model,
                    prompt_sha256=prompt.sha256,
                    attempts=tuple(attempts),
                    latency_s=time.monotonic() - began,
                    overrode=dict(suggestion) if suggestion is not None else None,
                )
                return Offer(reply.text, record)
            messages += self._prompter.repair(
                memory, reply.text, _why(attempt), context=self._endpoint.context
            )
        raise self._error(
            f"none of {len(attempts)} replies of {self._endpoint.model} was a usable proposal, the "
            f"last because {_why(attempts[-1])}; it is asked again at its next iteration",
            prompt,
            attempts,
        )

    def _ask(
        self,
        messages: list[Message],
        schema: dict[str, Any],
        prompt: Prompt,
        attempts: list[Attempt],
    ) -> Reply:
        began = time.monotonic()
        try:
            return self._endpoint.ask(messages, schema)
        except EndpointError as error:
            failed = Attempt(raw="", error=str(error), latency_s=time.monotonic() - began)
            ended = self._error(str(error), prompt, [*attempts, failed])
            if isinstance(error, ContextError) and not attempts:
                raise _TooLongError(ended) from error
            raise ended from error

    def _judged(self, reply: Reply, memory: Memory) -> Attempt:
        verdict: Verdict | None = None
        if reply.error is None:
            verdict = self._rails.check(reply.text, memory.reference, memory.tried).verdict
        return Attempt(
            raw=reply.text[:KEPT_CHARACTERS],
            truncated=len(reply.text) > KEPT_CHARACTERS,
            mode=reply.mode,
            finish_reason=reply.finish_reason,
            verdict=verdict,
            error=reply.error,
            latency_s=reply.latency_s,
            prompt_tokens=reply.prompt_tokens,
            completion_tokens=reply.completion_tokens,
        )

    def _error(self, message: str, prompt: Prompt, attempts: list[Attempt]) -> ProposerError:
        return ProposerError(
            message,
            tuple(attempts),
            model=self._endpoint.known_model,
            prompt_sha256=prompt.sha256,
        )


def _why(attempt: Attempt) -> str:
    if attempt.verdict is not None:
        return attempt.verdict.why
    return attempt.error or "nothing came"
