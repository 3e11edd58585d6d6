"""One OpenAI-compatible endpoint: asked politely, believed in nothing, never waited for too long.

vLLM, NIM, llama.cpp's server, Ollama and the hosted services all speak ``/v1/chat/completions``;
they differ in how they can be made to answer in JSON and in how long a question may be, so the one
is found out by asking (:mod:`agent.proposers.llm.schema_modes`) rather than by name, and the other
from what the server says of itself, in its list of models or in refusing what is too long."""

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
from agent.proposers.llm.tokens import TURN_TOKENS, estimate_tokens
from agent.proposers.llm.transport import EndpointError, RefusedError, UnreadableError
from agent.proposers.llm.wire import ROLES, RejectedError, Wire
from agent.settings.environment import Environment
from autoresearch.errors import SettingsError

__all__ = ["ContextError", "Endpoint", "EndpointError"]

Json: TypeAlias = dict[str, Any]

PROBE_TOKENS = 48
"""The longest answer to a probe, which has a dozen. One that is cut is given a whole reply's."""
THINKING_TOKENS = 16_384
"""The longest reply of a model that thinks, where its context has room; of others four times the
usual."""
WITHOUT_THINKING: tuple[Json, ...] = (
    {"chat_template_kwargs": {"enable_thinking": False, "thinking": False}},
    {"reasoning_effort": "none"},
    {"reasoning_effort": "low"},
)
"""How servers can be asked to think less, in the order in which a probe tries them."""
REPLY_SHARE = 1 / 8
"""The share of the server's context that is left for a reply."""


class ContextError(EndpointError):
    """The question is longer than the server's context, which is known from now on."""


class Endpoint:
    """A chat endpoint, and what is known of it.

    :param base_url: in any of its usual forms, with ``/v1`` or without; credentials in it are sent
        and never shown.
    :param model: None or "": the first model for chat that the server lists, asked once.
    :param api_key: sent to this server; no error, repr, log or kept reply shows it.
    :param max_tokens: the longest reply asked for, where the server's context is not too small.
    :param modes_path: where the manner of asking is remembered; None: in this object only.
    :raises SettingsError: on a base_url that is none.
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
        self._parameters: Json = {"temperature": temperature}
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
        """The endpoint that the environment names.

        :param patience: None: the environment's; a deadline shorter than one request's is as long.
        :raises SettingsError: where it names none, or one that is none.
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
        """Without credentials or query."""
        return self._wire.base_url

    @property
    def known_model(self) -> str | None:
        """The model asked, as far as it is known without asking the server."""
        return self._model

    @property
    def model(self) -> str:
        """The model asked.

        :raises EndpointError: where the server must be asked which it has, and does not say.
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
        """How many tokens a question and its reply may be together; None: the server has not said.

        :raises EndpointError: where it must be asked, and does not answer at all.
        """
        model = self.model
        if self._context is None:
            try:
                served = self._served()
            except RefusedError:
                served = self._listed = []
            # Where there is only one, whatever it is called: some servers take any name for it.
            ours = [each for each in served if each.id == model] or served[:1] * (len(served) == 1)
            self._context = ours[0].context if ours else None
        return self._context

    @property
    def schema_mode(self) -> SchemaMode:
        """How this server is made to answer in JSON; probed where that is not known yet.

        :raises EndpointError: where it does not answer, or serves no question in any mode.
        """
        mode = self._passing_mode or self._known.mode
        if mode is None:
            mode, lasting = probe(self._probe_answer)
            self._use(mode, lasting=lasting)
        return mode

    def ask(self, messages: Sequence[Message], schema: Json) -> Reply:
        """The reply to this chat, whatever it is worth: see :attr:`Reply.error`, and validate it.

        :raises ContextError: where the chat is too long for the server, which says how long it may
            be.
        :raises EndpointError: where no reply came.
        """
        mode = self.schema_mode
        try:
            return self._uncut(messages, mode, schema, failures=2)
        except RejectedError as error:
            if error.context is not None:
                self._context = error.context
                raise ContextError(str(error)) from error
            if mode is SchemaMode.NONE:
                raise
            # Either the server cannot compile this schema or the question is wrong in itself:
            # asking without the schema tells which.
            reply = self._uncut(messages, SchemaMode.NONE, schema)
            # A fault inside the server may pass by tomorrow; a refusal does not.
            self._use(SchemaMode.NONE, lasting=error.status < 500)
            return reply

    # --- what is known of it --------------------------------------------------------------------

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
        """
        :param lasting: False: in this object only, so that the next session probes again.
        """
        if lasting:
            self._known.mode = mode
            self._remember()
        else:
            self._passing_mode = mode

    def _adapts(self, error: RejectedError) -> bool:
        """Whether the same question can be put in another way, which is used from now on."""
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
        """Tokens that the context has left for the reply; None where it is not known."""
        if self._context is None:
            return None
        asked = sum(estimate_tokens(message.content) + TURN_TOKENS for message in messages)
        return max(1, int(self._context * REPLY_SHARE), self._context - asked)

    def _most(self, messages: Sequence[Message]) -> int:
        """Tokens that the reply may have."""
        raised, room = self._known.reply_tokens, self._room(messages)
        if raised is not None:
            return min(raised, room or raised)
        share = None if self._context is None else max(1, int(self._context * REPLY_SHARE))
        return min(self._max_tokens, share or self._max_tokens)

    def _raises_reply_tokens(self, messages: Sequence[Message], cut: Reply) -> bool:
        """Whether the next reply may be longer than the one that was cut."""
        most, room = self._most(messages), self._room(messages)
        limit = THINKING_TOKENS if cut.thinks else 4 * self._max_tokens
        limit = min(limit, room or limit)
        if most >= limit:
            return False
        self._known.reply_tokens = min(2 * most, limit)
        self._remember()
        return True

    def _served(self) -> list[ServedModel]:
        """The models that the server lists, asked for once.

        :raises EndpointError: where it does not answer, or refuses.
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
        """The reply to a probe of a model that stops thinking where it is asked to; None where it
        does not. What stops it is used from now on."""
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
        """The reply, asked for again with more tokens as long as it is cut and may be longer."""
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
        """
        :param tokens: the longest reply; None: what is known to be enough.
        :param failures: see :meth:`Wire.patiently`; a question without a schema has no part that
            HTTP 500 could be the answer to.
        """
        manner = self._known
        body = {
            "model": self.model,
            "messages": _without_system(messages) if manner.merges_system else _table(messages),
            **mode.request(schema),
            **manner.extra,
            **self._parameters,
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
    """The chat with what the system says at the head of the first user message."""
    system = [message.content for message in messages if message.role == "system"]
    rest = [message for message in messages if message.role != "system"]
    merged = "\n\n".join([*system, rest[0].content])
    return _table([Message("user", merged), *rest[1:]])
