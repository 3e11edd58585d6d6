"""One OpenAI-compatible endpoint: asked politely, believed in nothing, never waited for too long.

vLLM, NIM, llama.cpp's server, Ollama and the hosted services all speak ``/v1/chat/completions``;
they differ in how they can be made to answer in JSON, so that is found out by asking
(:mod:`agent.proposers.schema_modes`) rather than by name.

Every body is bounded in bytes and in seconds: one that only grows white space ends at
:data:`MAX_BODY_BYTES`, one that drips ends at the timeout.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Self, TypeAlias

import httpx2
import openai
import tenacity

from agent.errors import SettingsError
from agent.proposers.base import ProposerError
from agent.proposers.completions import Message, Reply, read_completion, read_models
from agent.proposers.patience import AsToldOr, Patience, may_pass
from agent.proposers.schema_modes import ModeMemory, SchemaMode, probe
from agent.settings import Environment

MAX_BODY_BYTES = 1 << 20
"""Of one HTTP response; a proposal is a few hundred."""

Json: TypeAlias = dict[str, Any]


class EndpointError(ProposerError):
    """The endpoint gave no reply: unreachable, refusing, failing, or silent past its deadline."""


class _RejectedError(EndpointError):
    """The server will not serve this question as it is put (HTTP 400 or 422)."""


class _OversizedError(openai.OpenAIError):
    """A body that is too long or compressed. No transport error, so it is not retried."""


class Endpoint:
    """A chat endpoint and the one retry policy towards it.

    Transport errors, 429 and 5xx are tried again with jittered exponential back-off (or after the
    server's Retry-After) until the deadline; any other refusal is final.

    :param base_url: up to and including ``/v1``; credentials in it are sent and never shown.
    :param model: None or "": the first model that the server lists, asked once.
    :param api_key: sent to this server; no error, repr, log or kept reply shows it.
    :param max_tokens: the longest reply asked for.
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
        url = _parsed(base_url)
        self.base_url = str(url.copy_with(userinfo=b"", query=None, fragment=None)).rstrip("/")
        """Without credentials or query."""
        self.patience = patience or Patience()
        self._secrets = [secret for secret in (api_key, url.password) if secret]
        self._model = model or None
        self._parameters: Json = {"max_tokens": max_tokens, "temperature": temperature}
        self._modes = ModeMemory(modes_path)
        self._on_probation = False
        self._try_ends = 0.0
        http = httpx2.Client(
            auth=(url.username, url.password) if url.userinfo else None,
            headers={"Accept-Encoding": "identity"},
            follow_redirects=True,
            # Minutes lie between two questions: a connection kept that long is mostly a dead one.
            limits=httpx2.Limits(max_keepalive_connections=0),
            event_hooks={"response": [self._bound_body]},
        )
        self._client = openai.OpenAI(
            base_url=url.copy_with(userinfo=b""),
            api_key=api_key or "none",
            http_client=http,
            max_retries=0,
        )
        # The client fills these from variables that are meant for OpenAI's own servers.
        self._client.organization = self._client.project = None

    @classmethod
    def of(
        cls,
        environment: Environment,
        *,
        patience: Patience | None = None,
        modes_path: Path | None = None,
    ) -> Self:
        """The endpoint that the environment names.

        :param patience: None: the environment's.
        :raises SettingsError: where it names none, or one that is none.
        """
        if not environment.llm_base_url:
            raise SettingsError("AUTORESEARCH_LLM_BASE_URL is not set")
        key = environment.llm_api_key
        return cls(
            environment.llm_base_url,
            environment.llm_model,
            key.get_secret_value() if key else None,
            patience=patience
            or Patience(timeout_s=environment.llm_timeout_s, deadline_s=environment.llm_deadline_s),
            modes_path=modes_path,
        )

    def __repr__(self) -> str:
        return f"Endpoint({self.base_url!r}, model={self._model!r})"

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
            try:
                listed = read_models(self._patiently(self._get_models))
            except _OversizedError:
                listed = []
            if not listed:
                raise EndpointError(
                    f"the endpoint {self.base_url} lists no model; set AUTORESEARCH_LLM_MODEL"
                )
            self._model = listed[0]
        return self._model

    @property
    def schema_mode(self) -> SchemaMode:
        """How this server is made to answer in JSON; probed where that is not known yet.

        :raises EndpointError: where it does not answer.
        """
        key = f"{self.base_url} {self.model}"
        mode = self._modes.recall(key)
        if mode is None:
            mode = probe(self._probe_answer)
            self._modes.remember(key, mode)
        return mode

    def ask(self, messages: Sequence[Message], schema: Json) -> Reply:
        """The reply to this chat, whatever it is worth: see :attr:`Reply.error`, and validate it.

        :raises EndpointError: where no reply came.
        """
        mode = self.schema_mode
        try:
            return self._complete(messages, mode, schema)
        except _RejectedError:
            if mode is SchemaMode.NONE:
                raise
            # Either the server cannot compile this schema or the question is wrong in itself:
            # asking without the schema tells which.
            reply = self._complete(messages, SchemaMode.NONE, schema)
            self._modes.remember(f"{self.base_url} {self.model}", SchemaMode.NONE)
            return reply

    # --- one question ---------------------------------------------------------------------------

    def _probe_answer(self, mode: SchemaMode, prompt: str, schema: Json) -> str | None:
        try:
            reply = self._complete([Message("user", prompt)], mode, schema)
        except _RejectedError:
            return None
        return None if reply.error else reply.text

    def _complete(self, messages: Sequence[Message], mode: SchemaMode, schema: Json) -> Reply:
        body = {
            "model": self.model,
            "messages": [asdict(message) for message in messages],
            **mode.request(schema),
        }
        began = time.monotonic()
        try:
            raw = self._patiently(lambda timeout_s: self._post_chat(body, timeout_s))
        except _OversizedError as error:
            return Reply("", mode.value, time.monotonic() - began, str(error))
        return read_completion(raw, mode.value, time.monotonic() - began, self._redacted)

    def _patiently(self, request: Callable[[float], bytes]) -> bytes:
        """The retry policy. ``request`` takes the seconds it may last."""
        patience, on_probation = self.patience, self._on_probation
        allowed_s = patience.probation_s if on_probation else patience.deadline_s
        ends = time.monotonic() + allowed_s

        def once() -> bytes:
            left_s = max(ends - time.monotonic(), 0.001)
            timeout_s = left_s if on_probation else min(patience.timeout_s, left_s)
            self._try_ends = time.monotonic() + timeout_s
            return request(timeout_s)

        retrying = tenacity.Retrying(
            retry=tenacity.retry_if_exception(may_pass),
            wait=AsToldOr(patience.wait),
            stop=tenacity.stop_after_attempt(1)
            if on_probation
            else tenacity.stop_before_delay(allowed_s),
            reraise=True,
        )
        self._on_probation = True
        try:
            body = retrying(once)
        except openai.APIStatusError as error:
            self._on_probation = may_pass(error)
            raise self._refusal(error) from None
        except openai.APIConnectionError as error:
            raise self._silence(error, allowed_s) from None
        except _OversizedError:
            self._on_probation = False
            raise
        self._on_probation = False
        return body

    def _post_chat(self, body: Json, timeout_s: float) -> bytes:
        try:
            return self._post({**body, **self._parameters}, timeout_s)
        except openai.BadRequestError as error:
            # Some hosted models refuse these two by name and want another, or none.
            if error.param not in self._parameters:
                raise
            value = self._parameters.pop(error.param)
            if error.param == "max_tokens":
                self._parameters["max_completion_tokens"] = value
            return self._post_chat(body, timeout_s)

    def _post(self, body: Json, timeout_s: float) -> bytes:
        return self._client.post(
            "/chat/completions",
            body=body,
            cast_to=httpx2.Response,
            options={"timeout": timeout_s},
        ).content

    def _get_models(self, timeout_s: float) -> bytes:
        return self._client.get(
            "/models", cast_to=httpx2.Response, options={"timeout": timeout_s}
        ).content

    def _bound_body(self, response: httpx2.Response) -> None:
        encoding = response.headers.get("content-encoding", "identity")
        if encoding != "identity":
            # A megabyte of gzip is a gigabyte of white space.
            raise _OversizedError(f"the reply is compressed ({encoding!r:.40}), unasked")
        if isinstance(response.stream, httpx2.SyncByteStream):
            response.stream = _Bounded(response.stream, self._try_ends)

    # --- what to say when it goes wrong ---------------------------------------------------------

    def _refusal(self, error: openai.APIStatusError) -> EndpointError:
        status = error.status_code
        mend = "it is tried again at the next turn"
        if status in {401, 403}:
            mend = "check AUTORESEARCH_LLM_API_KEY"
        elif status == 404:
            mend = "check that AUTORESEARCH_LLM_BASE_URL ends in /v1 and that the model exists"
        elif status < 500 and status != 429:
            mend = "check AUTORESEARCH_LLM_MODEL and its context length"
        kind = _RejectedError if status in {400, 415, 422, 501} else EndpointError
        said = self._redacted(" ".join(error.message.split()))
        return kind(f"the endpoint {self.base_url} answered HTTP {status} ({said:.200}); {mend}")

    def _silence(self, error: openai.APIConnectionError, allowed_s: float) -> EndpointError:
        if isinstance(error, openai.APITimeoutError):
            return EndpointError(
                f"the endpoint {self.base_url} did not answer within {allowed_s:g} s; "
                "check that it is not overloaded"
            )
        cause = self._redacted(str(error.__cause__ or error))
        return EndpointError(
            f"the endpoint {self.base_url} cannot be reached ({cause:.200}); "
            "check that it is running"
        )

    def _redacted(self, text: str) -> str:
        for secret in self._secrets:
            text = text.replace(secret, "[secret]")
        return text


class _Bounded(httpx2.SyncByteStream):
    """A response body that ends with an error at too many bytes or too late an hour."""

    def __init__(self, stream: httpx2.SyncByteStream, ends: float) -> None:
        self._stream = stream
        self._ends = ends

    def __iter__(self) -> Iterator[bytes]:
        size = 0
        for chunk in self._stream:
            size += len(chunk)
            if size > MAX_BODY_BYTES:
                raise _OversizedError(f"the reply is longer than {MAX_BODY_BYTES:,} bytes")
            if time.monotonic() > self._ends:
                raise httpx2.ReadTimeout("the reply was still coming when its time was up")
            yield chunk

    def close(self) -> None:
        self._stream.close()


def _parsed(base_url: str) -> httpx2.URL:
    try:
        url = httpx2.URL(base_url)
    except httpx2.InvalidURL as error:
        raise SettingsError(
            f"AUTORESEARCH_LLM_BASE_URL is no URL ({error}); give one like http://localhost:8000/v1"
        ) from None
    if url.scheme not in {"http", "https"} or not url.host:
        raise SettingsError(
            f"AUTORESEARCH_LLM_BASE_URL has no http:// and host "
            f"({str(url.copy_with(userinfo=b''))!r:.80}); give one like http://localhost:8000/v1"
        )
    return url
