"""Ask one OpenAI-compatible endpoint, within time limits and without trusting its answers.

vLLM, NIM, llama.cpp's server, Ollama and the hosted services all speak ``/v1/chat/completions``.
They differ in how they can be made to answer in JSON, which is found out on the first question
rather than by name. They also differ in the length of a question, which the server reports in its
list of models or when it refuses one. If it refuses one without a number, the next is half as long.
"""

import re
import time
from collections.abc import Sequence
from enum import StrEnum
from typing import Any, Self

from openai import BadRequestError

from agent.proposers.llm.bodies import ServedModel, read_models, reply_of
from agent.proposers.llm.completions import Json, Message, Reply, chat_json
from agent.proposers.llm.failures import (
    ContextError,
    EndedError,
    EndpointError,
    RefusedError,
    RejectedError,
)
from agent.proposers.llm.prompt import PROMPT_SHARE
from agent.proposers.llm.tokens import MESSAGE_TOKENS, estimate_tokens
from agent.proposers.llm.wire import Patience, Wire
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


_NAMED = {
    "max_tokens": "max_tokens",
    "temperature": "temperature",
    **{name: name for name in QUIET},
    "system": r"\bsystem\b.*\b(role|message|prompt)|\broles?\b",
}
"""Fields, and "system" for that role, with words by which servers refuse them."""


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
        """Return the ``response_format`` of a request."""
        # Not "strict": hosted servers then require every property, and a proposal changes only some
        # knobs.
        named = {"name": "reply", "schema": schema}
        forms: dict[SchemaMode, Json] = {
            SchemaMode.JSON_SCHEMA: {"type": "json_schema", "json_schema": named},
            SchemaMode.JSON_OBJECT_SCHEMA: {"type": "json_object", "schema": schema},
            SchemaMode.JSON_OBJECT: {"type": "json_object"},
        }
        return forms.get(self, {})


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
        self._model = (model or "").strip() or None
        self._max_tokens = self._reply_tokens = max_tokens
        self._context: int | None = None
        self._mode: SchemaMode | None = None
        self._refused: set[str] = set()
        """Fields that the model refuses, and "system" for that role."""
        self._is_quiet = False
        """Whether to ask with :data:`QUIET`."""
        self._listed: list[ServedModel] | None = None
        self._ended: str | None = None
        """Why no further question is asked."""

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

    @property
    def base_url(self) -> str:
        """Base URL without credentials or query."""
        return self._wire.base_url

    where = base_url
    """Name of the endpoint in messages."""

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
            self._model = next((each.id for each in served if each.chats), None)
            if self._model is None:
                listed = ", ".join(each.id for each in served[:10]) or "none"
                raise EndpointError(
                    f"the endpoint {self.base_url} lists no model for chat ({listed}); set "
                    "AUTORESEARCH_LLM_MODEL"
                )
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
            named = [each for each in served if each.id == model]
            # If only one is listed, it is meant by any name: some servers accept any for it.
            ours = named if len(served) != 1 else served
            self._context = ours[0].context if ours else None
        return self._context

    def ask(self, messages: Sequence[Message], schema: Json, *, warmer: float = 0.0) -> Reply:
        """Return the reply to this chat, which the caller must validate: see :attr:`Reply.error`.

        The first question is asked in every mode until one brings a completion. Later, a refusal
        means that the server cannot compile this schema, or that the question itself is wrong:
        asking without the schema tells which.

        :param warmer: added to the temperature, to get another reply than before.
        :raises ContextError: if the chat is too long for the server; :attr:`context` is what fits.
        :raises EndedError: if no question can succeed, from now on without asking.
        :raises EndpointError: if no reply came.
        """
        if self._ended is not None:
            raise EndedError(self._ended)
        self._wire.begin()
        try:
            return self._ask(messages, schema, warmer)
        except ContextError as error:
            known = self._context
            if not error.context or (known is not None and error.context >= known):
                error.context = int(self._length(messages) / 2 / PROMPT_SHARE)
            self._context = error.context
            raise
        except EndedError as error:
            self._ended = str(error)
            raise

    def _ask(self, messages: Sequence[Message], schema: Json, warmer: float) -> Reply:
        modes = dict.fromkeys((self._mode, SchemaMode.NONE)) if self._mode else [*SchemaMode]
        for mode in modes:
            try:
                reply = self._complete(messages, mode, schema, warmer)
                break
            except RejectedError:
                if mode is SchemaMode.NONE:
                    raise
        if reply.error is None:
            self._mode = mode
        return reply

    def _served(self) -> list[ServedModel]:
        """Return the models that the server lists, asked once.

        :raises EndpointError: if it does not answer, or refuses.
        """
        if self._listed is None:
            self._wire.begin()
            body = self._wire.send(
                lambda client: client.models.with_raw_response.list().http_response
            )
            self._listed = read_models(self._wire.redacted(body.text))
        return self._listed

    # --- one question ---------------------------------------------------------------------------

    def _complete(
        self, messages: Sequence[Message], mode: SchemaMode, schema: Json, warmer: float
    ) -> Reply:
        """Return the reply to one question. It is asked again in another form, from now on, if the
        server refuses its form or cuts the reply."""
        model, most, is_quiet = self.model, self._room_for(messages), self._is_quiet
        fields = {
            "response_format": mode.request(schema),
            **(QUIET if is_quiet else {}),
            "temperature": TEMPERATURE + warmer,
            "max_tokens": most,
        }
        extra = {name: fields[name] for name in fields.keys() - self._refused if fields[name]}
        if "max_tokens" in self._refused:
            extra["max_completion_tokens"] = most
        chat: Any = chat_json(messages, merges_system="system" in self._refused)
        began = time.monotonic()
        try:
            response = self._wire.send(
                lambda client: (
                    client.chat.completions.with_raw_response.create(
                        model=model, messages=chat, extra_body=extra
                    ).http_response
                )
            )
            latency_s = time.monotonic() - began
            reply = reply_of(response.text, mode.value, latency_s, self._wire.redacted)
        except RejectedError as error:
            if not self._adapts(error.words):
                raise
            return self._complete(messages, mode, schema, warmer)
        except ValueError as error:
            failed = BadRequestError("", response=response, body=str(error))
            raise self._wire.failure(failed) from None
        if reply.finish_reason == "length":
            longer = THINKING_TOKENS if reply.thinks else 4 * self._max_tokens
            self._reply_tokens = max(self._reply_tokens, longer)
            self._is_quiet = is_quiet or reply.thinks
            if (most, is_quiet) != (self._room_for(messages), self._is_quiet):
                return self._complete(messages, mode, schema, warmer)
        return reply

    def _adapts(self, words: str) -> bool:
        """Return whether a refusal names what can be left out, which it is from now on."""
        flags = re.IGNORECASE | re.DOTALL
        named = {name for name, pattern in _NAMED.items() if re.search(pattern, words, flags)}
        new = named - self._refused
        if not new and self._is_quiet:
            new = set(QUIET) - self._refused
        self._refused |= new
        return bool(new)

    def _room_for(self, messages: Sequence[Message]) -> int:
        """Return the most tokens that the reply may have."""
        if self._context is None:
            return self._reply_tokens
        left = self._context - self._length(messages)
        return min(self._reply_tokens, max(1, int(self._context * REPLY_SHARE), left))

    def _length(self, messages: Sequence[Message]) -> int:
        """Return the estimated tokens of a question."""
        return sum(estimate_tokens(message.content) + MESSAGE_TOKENS for message in messages)
