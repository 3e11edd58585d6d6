"""Ask one OpenAI-compatible endpoint, within time limits and without trusting its answers.

vLLM, NIM, llama.cpp's server, Ollama and the hosted services all speak ``/v1/chat/completions``; a
server without it is asked at ``/v1/responses``. They differ in how they can be made to answer in
JSON, which is found out on the first question rather than by name. They also differ in the length
of a question, which the server reports in its list of models or when it refuses one. If it refuses
one without a number, the next is half as long.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Self

import httpx2
from openai import BadRequestError, OpenAI

from agent.proposers.llm.bodies import (
    ServedModel,
    error_text,
    json_documents,
    quoted,
    read_completion,
    read_models,
    reply_of,
)
from agent.proposers.llm.completions import Json, Message, Reply, chat_json
from agent.proposers.llm.failures import (
    ROLES,
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

    def request(self, schema: Json, *, as_response: bool = False) -> Json:
        """Return the fields that this mode adds to a chat request, or to one for a response."""
        # Not "strict": hosted servers then require every property, and a proposal changes only some
        # knobs.
        named = {"name": "reply", "schema": schema}
        forms: dict[SchemaMode, Json] = {
            SchemaMode.JSON_SCHEMA: named if as_response else {"json_schema": named},
            SchemaMode.JSON_OBJECT_SCHEMA: {"schema": schema},
            SchemaMode.JSON_OBJECT: {},
        }
        if self not in forms:
            return {}
        form = {"type": self.value.removesuffix(".schema"), **forms[self]}
        return {"text": {"format": form}} if as_response else {"response_format": form}


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
    as_response: bool = False
    """Whether to ask at ``/v1/responses``, since the server has no ``/v1/chat/completions``."""

    def adapts(self, error: RefusedError) -> bool:
        """Return whether a refused question can be asked in another form, which is used from now
        on."""
        if error.lacks_chat:
            self.as_response = not self.as_response
            return self.as_response
        if not isinstance(error, RejectedError):
            return False
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
        self._model = (model or "").strip() or None
        self._max_tokens = max_tokens
        self._context: int | None = None
        self._mode: SchemaMode | None = None
        self._manner = Manner()
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

    def __repr__(self) -> str:
        return f"Endpoint({self.base_url!r}, model={self._model!r})"

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
        known = self._mode
        modes = list(dict.fromkeys((known, SchemaMode.NONE))) if known else list(SchemaMode)
        for mode in modes:
            try:
                reply = self._uncut(messages, mode, schema, warmer)
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
            self._wire.begin()
            body = self._wire.send(
                lambda client: client.models.with_raw_response.list().http_response
            )
            # A model's name goes to files as it is, so one that echoes a secret is left out.
            listed = read_models(body.text)
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
        manner, model = self._manner, self.model
        chat: Any = chat_json(messages, merges_system=manner.merges_system)
        limit = "max_output_tokens" if manner.as_response else manner.tokens_named
        fields = {
            **mode.request(schema, as_response=manner.as_response),
            **(QUIET if manner.is_quiet else {}),
            "temperature": TEMPERATURE + warmer,
            limit: self._reply_tokens(messages),
        }
        extra = {name: value for name, value in fields.items() if name not in manner.refused}

        def ask(client: OpenAI) -> httpx2.Response:
            if manner.as_response:
                responses = client.responses.with_raw_response
                return responses.create(model=model, input=chat, extra_body=extra).http_response
            completions = client.chat.completions.with_raw_response
            return completions.create(model=model, messages=chat, extra_body=extra).http_response

        began = time.monotonic()
        try:
            response = self._wire.send(ask)
        except RefusedError as error:
            if not manner.adapts(error):
                raise
            return self._complete(messages, mode, schema, warmer)
        return self._read(response, mode.value, time.monotonic() - began)

    def _read(self, response: httpx2.Response, mode: str, latency_s: float) -> Reply:
        """Return the reply in a response, or why there is none.

        :raises ContextError: if the response is a success that says that the chat is too long.
        :raises EndedError: if it is one that says that no question can succeed.
        """
        shown = self._wire.redacted(response.text)
        why = f"the reply is not a chat completion: {quoted(shown) or '(nothing)'}"
        try:
            completion = read_completion(response.text)
            if completion is not None:
                return reply_of(completion, mode, latency_s, self._wire.redacted)
            failed = next(
                (each["error"] for each in json_documents(shown) if each.get("error")), None
            )
            if failed is not None:
                refused = BadRequestError("", response=response, body=failed)
                failure = self._wire.refused(refused)
                if isinstance(failure, ContextError | EndedError):
                    raise failure
                why = f"the server answered with an error: {quoted(error_text(failed))}"
        except ValueError as error:
            if shown.lstrip("\ufeff \r\n").startswith(("{", "[", "data:")):
                why = f"the reply is broken JSON ({error}): {quoted(shown)}"
        return Reply(shown, mode, latency_s, why, is_completion=False)

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
        left = self._context - self._length(messages)
        return min(tokens, max(1, int(self._context * REPLY_SHARE), left))

    def _length(self, messages: Sequence[Message]) -> int:
        """Return the estimated tokens of a question."""
        return sum(estimate_tokens(message.content) + MESSAGE_TOKENS for message in messages)
