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

import openai

from agent.proposers.llm.completions import (
    Message,
    Reply,
    ServedModel,
    read_completion,
    read_models,
)
from agent.proposers.llm.patience import Patience
from agent.proposers.llm.schema_modes import ModeMemory, SchemaMode, probe
from agent.proposers.llm.wire import (
    EndpointError,
    OversizedError,
    RefusedError,
    RejectedError,
    Wire,
)
from agent.settings.environment import Environment
from autoresearch.errors import SettingsError

__all__ = ["ContextError", "Endpoint", "EndpointError"]

PROBE_TOKENS = 48
"""The longest answer to a probe, which has a dozen. A model that thinks first is given a whole
reply's."""
REPLY_SHARE = 1 / 8
"""The share of the server's context that is left for a reply."""

Json: TypeAlias = dict[str, Any]


class ContextError(EndpointError):
    """The question is longer than the server's context, which is known from now on."""


class Endpoint:
    """A chat endpoint, and what is known of it.

    :param base_url: up to and including ``/v1``; credentials in it are sent and never shown.
    :param model: None or "": the first model that the server lists, asked once.
    :param api_key: sent to this server; no error, repr, log or kept reply shows it.
    :param max_tokens: the longest reply asked for, where the server's context is not too small.
    :param modes_path: where the schema mode is remembered; None: in this object only.
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
        self._modes = ModeMemory(modes_path)
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
            listed = self._served()
            if not listed:
                raise EndpointError(
                    f"the endpoint {self.base_url} lists no model; set AUTORESEARCH_LLM_MODEL"
                )
            self._model = listed[0].id
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
        key = self._mode_key
        mode = self._modes.recall(key)
        if mode is None:
            mode = probe(self._probe_answer)
            self._modes.remember(key, mode)
        return mode

    def ask(self, messages: Sequence[Message], schema: Json) -> Reply:
        """The reply to this chat, whatever it is worth: see :attr:`Reply.error`, and validate it.

        :raises ContextError: where the chat is too long for the server, which says how long it may
            be.
        :raises EndpointError: where no reply came.
        """
        mode = self.schema_mode
        try:
            return self._complete(messages, mode, schema, failures=2)
        except RejectedError as error:
            if error.context is not None:
                self._context = error.context
                raise ContextError(str(error)) from error
            if mode is SchemaMode.NONE:
                raise
            # Either the server cannot compile this schema or the question is wrong in itself:
            # asking without the schema tells which.
            reply = self._complete(messages, SchemaMode.NONE, schema)
            # A fault inside the server may pass by tomorrow; a refusal does not.
            lasting = error.status < 500
            self._modes.remember(self._mode_key, SchemaMode.NONE, lasting=lasting)
            return reply

    # --- one question ---------------------------------------------------------------------------

    @property
    def _mode_key(self) -> str:
        return f"{self.base_url} {self.model}"

    @property
    def _reply_tokens(self) -> int:
        if self._context is None:
            return self._max_tokens
        return min(self._max_tokens, max(1, int(self._context * REPLY_SHARE)))

    def _served(self) -> list[ServedModel]:
        """The models that the server lists, asked for once.

        :raises EndpointError: where it does not answer, or refuses.
        """
        if self._listed is None:
            try:
                body = self._wire.patiently(lambda s: self._wire.get("/models", s), failures=1)
            except OversizedError:
                body = b""
            self._listed = read_models(body)
        return self._listed

    def _probe_answer(self, mode: SchemaMode, prompt: str, schema: Json) -> str | None:
        chat = [Message("user", prompt)]
        try:
            reply = self._complete(chat, mode, schema, tokens=PROBE_TOKENS, failures=1)
            if reply.finish_reason == "length" and reply.thinks:
                reply = self._complete(chat, mode, schema, failures=1)
        except RejectedError:
            if mode is SchemaMode.NONE:
                raise
            return None
        return "" if reply.error else reply.text

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
        :param tokens: the longest reply; None: what the context has room for.
        :param failures: see :meth:`Wire.patiently`; a question without a schema has no part that
            HTTP 500 could be the answer to.
        """
        body = {
            "model": self.model,
            "messages": [asdict(message) for message in messages],
            **mode.request(schema),
        }
        most = tokens or self._reply_tokens
        began = time.monotonic()
        try:
            raw = self._wire.patiently(
                lambda timeout_s: self._post_chat(body, most, timeout_s),
                failures=None if mode is SchemaMode.NONE else failures,
            )
        except OversizedError as error:
            return Reply("", mode.value, time.monotonic() - began, str(error))
        return read_completion(raw, mode.value, time.monotonic() - began, self._wire.redacted)

    def _post_chat(self, body: Json, most: int, timeout_s: float) -> bytes:
        whole = {**body, **self._parameters, self._tokens_named: most}
        try:
            return self._wire.post("/chat/completions", whole, timeout_s)
        except openai.BadRequestError as error:
            # Some hosted models refuse these two by name and want another, or none.
            if error.param == "max_tokens" and self._tokens_named == "max_tokens":
                self._tokens_named = "max_completion_tokens"
            elif error.param in self._parameters:
                del self._parameters[error.param]
            else:
                raise
            return self._post_chat(body, most, timeout_s)
