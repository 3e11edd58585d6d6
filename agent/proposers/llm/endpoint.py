"""Ask one OpenAI-compatible endpoint, within time limits and without trusting its answers.

vLLM, NIM, llama.cpp's server, Ollama and the hosted services all speak ``/v1/chat/completions``.
They differ in how they can be made to answer in JSON, which is found out by probing
(:mod:`agent.proposers.llm.schema_modes`) rather than by name. They also differ in the length of a
question, which the server reports in its list of models or when it refuses one.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Self, TypeAlias

from agent.proposers.llm.completions import (
    Message,
    Reply,
    ServedModel,
    read_completion,
    read_models,
)
from agent.proposers.llm.patience import Patience
from agent.proposers.llm.schema_modes import Manner, SchemaMode, probe, recall, remember
from agent.proposers.llm.tokens import MESSAGE_TOKENS, estimate_tokens
from agent.proposers.llm.transport import EndpointError, RefusedError, UnreadableError
from agent.proposers.llm.wire import ROLES, RejectedError, Wire
from agent.settings.environment import Environment
from autoresearch.errors import SettingsError

__all__ = ["ContextError", "Endpoint", "EndpointError"]

Json: TypeAlias = dict[str, Any]

PROBE_TOKENS = 48
"""Tokens for the answer to a probe, which has about a dozen. A cut answer is retried with a whole
reply's budget."""
THINKING_TOKENS = 16_384
"""Most tokens of a reply with thoughts, if the context allows; other replies get four times the
usual."""
WITHOUT_THINKING: tuple[Json, ...] = (
    {"chat_template_kwargs": {"enable_thinking": False, "thinking": False}},
    {"reasoning_effort": "none"},
    {"reasoning_effort": "low"},
)
"""Request fields that reduce thinking, in the order in which a probe tries them."""
REPLY_SHARE = 1 / 8
"""Share of the server's context that is reserved for a reply."""


class ContextError(EndpointError):
    """The question is longer than the server's context, which is now known."""


class Endpoint:
    """A chat endpoint, and what is known about it.

    :param base_url: in any of its usual forms, with ``/v1`` or without; credentials in it are sent
        and never shown.
    :param model: None or "": the first chat model that the server lists, asked once.
    :param api_key: sent to this server; no error, repr, log or stored reply shows it.
    :param max_tokens: longest reply to ask for, if the server's context allows it.
    :param modes_path: file that stores how to ask this server; None: only this object does.
    :raises SettingsError: on an invalid base_url.
    """

    def __init__(
        self,
        base_url: str,
        model: str | None = None,
        api_key: str | None = None,
        *,
        max_tokens: int = 1024,
        temperature: float = 0.7,
        patience: Patience | None = None,
        modes_path: Path | None = None,
    ) -> None:
        self._wire = Wire(base_url, api_key, patience or Patience())
        self._model = model or None
        self._max_tokens = max_tokens
        self._tokens_named = "max_tokens"
        self._parameters = {"temperature": temperature}
        self._warmer = 0.0
        self._modes_path = modes_path
        self._manner: Manner | None = None
        self._passing_mode: SchemaMode | None = None
        self._has_tried_not_to_think = False
        self._listed: list[ServedModel] | None = None
        self._context: int | None = None

    @classmethod
    def of(
        cls,
        environment: Environment,
        *,
        patience: Patience | None = None,
        modes_path: Path | None = None,
    ) -> Self:
        """Return the endpoint that the environment names.

        :param patience: None: the environment's; the deadline is at least one request's timeout.
        :raises SettingsError: if it names none, or an invalid one.
        """
        if not environment.llm_base_url:
            raise SettingsError("AUTORESEARCH_LLM_BASE_URL is not set")
        key = environment.llm_api_key
        timeout_s = environment.llm_timeout_s
        return cls(
            environment.llm_base_url,
            environment.llm_model,
            key.get_secret_value() if key else None,
            patience=patience
            or Patience(timeout_s=timeout_s, deadline_s=max(environment.llm_deadline_s, timeout_s)),
            modes_path=modes_path,
        )

    def __repr__(self) -> str:
        return f"Endpoint({self.base_url!r}, model={self._model!r})"

    @property
    def base_url(self) -> str:
        """Base URL without credentials or query."""
        return self._wire.base_url

    @property
    def known_model(self) -> str | None:
        """Model to ask, if known without asking the server."""
        return self._model

    @property
    def model(self) -> str:
        """Model to ask.

        :raises EndpointError: if the server must be asked for its models and does not say.
        """
        if self._model is None:
            served = self._served()
            chatting = [each.id for each in served if each.chats]
            if not chatting:
                listed = ", ".join(each.id for each in served[:10])
                raise EndpointError(
                    f"the endpoint {self.base_url} lists no model for chat ({listed or 'none'}); "
                    "set AUTORESEARCH_LLM_MODEL"
                )
            self._model = chatting[0]
        return self._model

    @property
    def context(self) -> int | None:
        """Most tokens of a question and its reply together; None if the server does not report it.

        :raises EndpointError: if it must be asked, and does not answer.
        """
        model = self.model
        if self._context is None:
            try:
                served = self._served()
            except RefusedError:
                served = self._listed = []
            # If only one is listed, use it whatever its name: some servers accept any name for it.
            ours = [each for each in served if each.id == model] or served[:1] * (len(served) == 1)
            self._context = ours[0].context if ours else None
        return self._context

    @property
    def schema_mode(self) -> SchemaMode:
        """How this server is made to answer in JSON; probed if unknown.

        :raises EndpointError: if it does not answer, or serves no question in any mode.
        """
        mode = self._passing_mode or self._known.mode
        if mode is None:
            mode, lasting = probe(self._probe_answer)
            self._use(mode, lasting=lasting)
        return mode

    def ask(self, messages: Sequence[Message], schema: Json, *, warmer: float = 0.0) -> Reply:
        """Return the reply to this chat, which the caller must validate: see :attr:`Reply.error`.

        :param warmer: added to the temperature, to get another reply than before.
        :raises ContextError: if the chat is too long for the server, which reports its limit.
        :raises EndpointError: if no reply came.
        """
        self._warmer = warmer
        mode = self.schema_mode
        try:
            return self._uncut(messages, mode, schema, failures=2)
        except RejectedError as error:
            if error.context is not None:
                self._context = error.context
                raise ContextError(str(error)) from error
            if mode is SchemaMode.NONE:
                raise
            # Either the server cannot compile this schema or the question itself is wrong: asking
            # without the schema tells which.
            reply = self._uncut(messages, SchemaMode.NONE, schema)
            # A server fault may have passed by tomorrow; a refusal has not.
            self._use(SchemaMode.NONE, lasting=error.status < 500)
            return reply

    # --- what is known about it -------------------------------------------------------------------

    @property
    def _known(self) -> Manner:
        if self._manner is None:
            self._manner = recall(self._modes_path).get(self._key, Manner())
        return self._manner

    @property
    def _key(self) -> str:
        return f"{self.base_url} {self.model}"

    def _remember(self) -> None:
        remember(self._modes_path, self._key, self._known)

    def _use(self, mode: SchemaMode, *, lasting: bool) -> None:
        """Use a mode from now on.

        :param lasting: False: only in this object, so that the next session probes again.
        """
        if lasting:
            self._known.mode = mode
            self._remember()
        else:
            self._passing_mode = mode

    def _adapts(self, error: RejectedError) -> bool:
        """Return whether the question can be asked in another form, which is used from now on."""
        manner, is_400 = self._known, error.status == 400
        if error.context is not None:
            return False
        if is_400 and error.param == "max_tokens" and self._tokens_named == "max_tokens":
            self._tokens_named = "max_completion_tokens"
        elif is_400 and error.param in self._parameters:
            del self._parameters[str(error.param)]
        elif any(name in error.said for name in manner.extra):
            manner.extra = {}
        elif not manner.merges_system and ROLES.search(error.said):
            manner.merges_system = True
            self._remember()
        else:
            return False
        return True

    # --- one question ---------------------------------------------------------------------------

    def _room(self, messages: Sequence[Message]) -> int | None:
        """Return the tokens that the context leaves for the reply; None if unknown."""
        if self._context is None:
            return None
        asked = sum(estimate_tokens(message.content) + MESSAGE_TOKENS for message in messages)
        return max(1, int(self._context * REPLY_SHARE), self._context - asked)

    def _most(self, messages: Sequence[Message]) -> int:
        """Return the most tokens that the reply may have."""
        raised, room = self._known.reply_tokens, self._room(messages)
        if raised is not None:
            return min(raised, room or raised)
        share = None if self._context is None else max(1, int(self._context * REPLY_SHARE))
        return min(self._max_tokens, share or self._max_tokens)

    def _raises_reply_tokens(self, messages: Sequence[Message], cut: Reply) -> bool:
        """Return whether the next reply may be longer than the one that was cut."""
        most, room = self._most(messages), self._room(messages)
        limit = THINKING_TOKENS if cut.thinks else 4 * self._max_tokens
        limit = min(limit, room or limit)
        if most >= limit:
            return False
        self._known.reply_tokens = min(2 * most, limit)
        self._remember()
        return True

    def _served(self) -> list[ServedModel]:
        """Return the models that the server lists, asked once.

        :raises EndpointError: if it does not answer, or refuses.
        """
        if self._listed is None:
            try:
                body = self._wire.patiently("GET", "/models", failures=1)
            except UnreadableError:
                body = b""
            self._listed = read_models(body)
        return self._listed

    def _probe_answer(self, mode: SchemaMode, prompt: str, schema: Json) -> str | None:
        chat = [Message("user", prompt)]
        try:
            reply = self._complete(chat, mode, schema, tokens=PROBE_TOKENS, failures=1)
            if reply.finish_reason == "length" or (reply.is_completion and not reply.text.strip()):
                reply = self._thoughtless(chat, mode, schema) or self._uncut(
                    chat, mode, schema, failures=1
                )
        except RejectedError:
            if mode is SchemaMode.NONE:
                raise
            return None
        if not reply.is_completion:
            if mode is SchemaMode.NONE:
                raise EndpointError(f"{reply.error}; check AUTORESEARCH_LLM_BASE_URL")
            return None
        return "" if reply.error else reply.text

    def _thoughtless(self, chat: list[Message], mode: SchemaMode, schema: Json) -> Reply | None:
        """Return the reply to a probe of a model that stops thinking when asked; None if it does
        not. The field that stops it is used from now on."""
        if self._has_tried_not_to_think:
            return None
        self._has_tried_not_to_think = True
        for extra in WITHOUT_THINKING:
            self._known.extra = extra
            try:
                reply = self._complete(chat, mode, schema, tokens=PROBE_TOKENS, failures=1)
            except RejectedError:
                continue
            if reply.error is None and self._known.extra:
                return reply
        self._known.extra = {}
        return None

    def _uncut(
        self, messages: Sequence[Message], mode: SchemaMode, schema: Json, *, failures: int = 1
    ) -> Reply:
        """Return the reply, asked again with more tokens while it is cut and may be longer."""
        reply = self._complete(messages, mode, schema, failures=failures)
        while reply.finish_reason == "length" and self._raises_reply_tokens(messages, reply):
            reply = self._complete(messages, mode, schema, failures=failures)
        return reply

    def _complete(
        self,
        messages: Sequence[Message],
        mode: SchemaMode,
        schema: Json,
        *,
        tokens: int | None = None,
        failures: int = 1,
    ) -> Reply:
        """Send one question.

        :param tokens: longest reply; None: the known sufficient length.
        :param failures: see :meth:`Wire.patiently`; without a schema, HTTP 500 cannot be an answer
            to one.
        """
        manner = self._known
        body = {
            "model": self.model,
            "messages": _without_system(messages) if manner.merges_system else _table(messages),
            **mode.request(schema),
            **manner.extra,
            **{name: value + self._warmer for name, value in self._parameters.items()},
            self._tokens_named: tokens or self._most(messages),
        }
        began = time.monotonic()
        try:
            raw = self._wire.patiently(
                "POST",
                "/chat/completions",
                body,
                failures=None if mode is SchemaMode.NONE else failures,
            )
        except UnreadableError as error:
            return Reply("", mode.value, time.monotonic() - began, str(error), is_completion=False)
        except RejectedError as error:
            if not self._adapts(error):
                raise
            return self._complete(messages, mode, schema, tokens=tokens, failures=failures)
        return read_completion(raw, mode.value, time.monotonic() - began, self._wire.redacted)


def _table(messages: Sequence[Message]) -> list[Json]:
    return [asdict(message) for message in messages]


def _without_system(messages: Sequence[Message]) -> list[Json]:
    """Return the chat with the system message merged into the first user message."""
    system = [message.content for message in messages if message.role == "system"]
    rest = [message for message in messages if message.role != "system"]
    merged = "\n\n".join([*system, rest[0].content])
    return _table([Message("user", merged), *rest[1:]])
