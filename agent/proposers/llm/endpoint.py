"""Ask one OpenAI-compatible endpoint, within time limits and without trusting its answers.

vLLM, NIM, llama.cpp's server, Ollama and the hosted services all speak ``/v1/chat/completions``.
They differ in how they can be made to answer in JSON, which is found out on the first question
rather than by name. They also differ in the length of a
question, which the server reports in its list of models or when it refuses one.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Self

from agent.proposers.llm.completions import (
    Message,
    Reply,
    ServedModel,
    chat_json,
    read_completion,
    read_models,
)
from agent.proposers.llm.failures import (
    ROLES,
    ContextError,
    EndpointError,
    RefusedError,
    RejectedError,
)
from agent.proposers.llm.tokens import MESSAGE_TOKENS, estimate_tokens
from agent.proposers.llm.wire import Json, Patience, Wire
from agent.settings.environment import Environment
from autoresearch.errors import SettingsError

__all__ = ["ContextError", "Endpoint", "EndpointError"]

TEMPERATURE = 0.7
THINKING_TOKENS = 16_384
"""Most tokens of a reply with thoughts, if the context allows; other replies get four times the
usual."""
REPLY_SHARE = 1 / 8
"""Share of the server's context that is reserved for a reply."""
QUIET: Json = {
    "chat_template_kwargs": {"enable_thinking": False, "thinking": False},
    "reasoning_effort": "none",
}
"""Request fields that turn thinking off, on one server or another."""


class SchemaMode(StrEnum):
    """Place of the schema in the request, in the order in which they are tried."""

    JSON_SCHEMA = "json_schema"
    """OpenAI's own ``response_format``."""
    JSON_OBJECT_SCHEMA = "json_object.schema"
    """llama-cpp-python and some hosted services: a schema beside ``json_object``."""
    JSON_OBJECT = "json_object"
    """Any JSON object."""
    NONE = "none"
    """Only the prompt asks for JSON."""

    def request(self, schema: Json) -> Json:
        """Return the fields that this mode adds to a chat request."""
        # Not "strict": hosted servers then require every property, and a proposal changes only some
        # knobs.
        forms: dict[SchemaMode, Json] = {
            SchemaMode.JSON_SCHEMA: {"json_schema": {"name": "reply", "schema": schema}},
            SchemaMode.JSON_OBJECT_SCHEMA: {"schema": schema},
            SchemaMode.JSON_OBJECT: {},
        }
        if self not in forms:
            return {}
        return {"response_format": {"type": self.value.removesuffix(".schema"), **forms[self]}}


@dataclass(slots=True)
class Manner:
    """How to ask a model, which its refusals and cut replies tell."""

    merges_system: bool = False
    """Whether it refuses the system role, so that the system text begins the first user message."""
    reply_tokens: int | None = None
    """Longest reply to ask for, if the usual length was too short."""
    is_quiet: bool = False
    """Whether to ask with :data:`QUIET`."""
    tokens_named: str = "max_tokens"
    """Field that limits the reply's tokens."""
    refused: set[str] = field(default_factory=set)
    """Fields that the model refuses."""

    def adapts(self, error: RejectedError) -> bool:
        """Return whether a refused question can be asked in another form, which is used from now
        on."""
        quiet = set(QUIET) - self.refused if self.is_quiet else set()
        if error.param == "max_tokens" == self.tokens_named:
            self.tokens_named = "max_completion_tokens"
        elif error.param == "temperature" and "temperature" not in self.refused:
            self.refused.add("temperature")
        elif not self.merges_system and ROLES.search(error.said):
            self.merges_system = True
        elif quiet:
            self.refused |= {name for name in quiet if name in error.said} or quiet
        else:
            return False
        return True


class Endpoint:
    """A chat endpoint, and what is known about it.

    :param base_url: in any of its usual forms, with ``/v1`` or without; credentials in it are sent
        and never shown.
    :param model: None or "": the first chat model that the server lists, asked once.
    :param api_key: sent to this server; no error, repr, log or stored reply shows it.
    :param max_tokens: longest reply to ask for, if the server's context allows it.
    :raises SettingsError: on an invalid base_url.
    """

    def __init__(
        self,
        base_url: str,
        model: str | None = None,
        api_key: str | None = None,
        *,
        max_tokens: int = 1024,
        patience: Patience | None = None,
    ) -> None:
        self._wire = Wire(base_url, api_key, patience or Patience())
        self._model = model or None
        self._max_tokens = max_tokens
        self._context: int | None = None
        self._mode: SchemaMode | None = None
        self._manner = Manner()
        self._listed: list[ServedModel] | None = None

    @classmethod
    def of(cls, environment: Environment, *, patience: Patience | None = None) -> Self:
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

    def ask(self, messages: Sequence[Message], schema: Json, *, warmer: float = 0.0) -> Reply:
        """Return the reply to this chat, which the caller must validate: see :attr:`Reply.error`.

        The first question is asked in every mode until one brings a completion. Later, a refusal
        means that the server cannot compile this schema, or that the question itself is wrong:
        asking without the schema tells which.

        :param warmer: added to the temperature, to get another reply than before.
        :raises ContextError: if the chat is too long for the server, which reports its limit.
        :raises EndpointError: if no reply came.
        """
        known = self._mode
        modes = list(dict.fromkeys((known, SchemaMode.NONE))) if known else list(SchemaMode)
        for mode in modes:
            try:
                reply = self._uncut(messages, mode, schema, warmer)
            except ContextError as error:
                self._context = error.context
                raise
            except RejectedError:
                if mode is SchemaMode.NONE:
                    raise
                continue
            if known or reply.is_completion:
                break
        if reply.error is None:
            self._mode = mode
        return reply

    def _served(self) -> list[ServedModel]:
        """Return the models that the server lists, asked once.

        :raises EndpointError: if it does not answer, or refuses.
        """
        if self._listed is None:
            listed = read_models(self._wire.send("GET", "/models"))
            # A model's name goes to files as it is, so one that echoes a secret is left out.
            self._listed = [each for each in listed if self._wire.redacted(each.id) == each.id]
        return self._listed

    # --- one question ---------------------------------------------------------------------------

    def _uncut(
        self, messages: Sequence[Message], mode: SchemaMode, schema: Json, warmer: float
    ) -> Reply:
        """Return the reply, asked again without thoughts and with more tokens while it is cut and
        may be longer."""
        reply = self._complete(messages, mode, schema, warmer)
        while reply.finish_reason == "length":
            manner = self._manner
            most = self._reply_tokens(messages)
            limit = THINKING_TOKENS if reply.thinks else 4 * self._max_tokens
            limit = self._room_for(messages, limit)
            if most < limit:
                manner.reply_tokens = min(2 * most, limit)
            elif manner.is_quiet or not reply.thinks:
                break
            manner.is_quiet = manner.is_quiet or reply.thinks
            reply = self._complete(messages, mode, schema, warmer)
        return reply

    def _complete(
        self, messages: Sequence[Message], mode: SchemaMode, schema: Json, warmer: float
    ) -> Reply:
        """Send one question, in another form if the server refuses its form."""
        manner = self._manner
        body = {
            "model": self.model,
            "messages": chat_json(messages, merges_system=manner.merges_system),
            **mode.request(schema),
            **(QUIET if manner.is_quiet else {}),
            "temperature": TEMPERATURE + warmer,
            manner.tokens_named: self._reply_tokens(messages),
        }
        body = {name: value for name, value in body.items() if name not in manner.refused}
        began = time.monotonic()
        try:
            raw = self._wire.send("POST", "/chat/completions", body)
        except RejectedError as error:
            if not manner.adapts(error):
                raise
            return self._complete(messages, mode, schema, warmer)
        return read_completion(raw, mode.value, time.monotonic() - began, self._wire.redacted)

    def _reply_tokens(self, messages: Sequence[Message]) -> int:
        """Return the most tokens that the reply may have."""
        if self._manner.reply_tokens is not None:
            return self._room_for(messages, self._manner.reply_tokens)
        if self._context is None:
            return self._max_tokens
        return min(self._max_tokens, max(1, int(self._context * REPLY_SHARE)))

    def _room_for(self, messages: Sequence[Message], tokens: int) -> int:
        """Return these tokens of a reply, or those that the context leaves for it, if known."""
        if self._context is None:
            return tokens
        asked = sum(estimate_tokens(message.content) + MESSAGE_TOKENS for message in messages)
        return min(tokens, max(1, int(self._context * REPLY_SHARE), self._context - asked))
