"""The wire to a chat endpoint: one client, one retry policy, bounded bodies, no secret shown.

Every body is bounded in bytes and in seconds: one that only grows white space ends at
:data:`MAX_BODY_BYTES`, one that drips ends at the timeout.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import httpx2
import openai
import tenacity

from agent.proposers.base import ProposerError
from agent.proposers.llm.patience import AsToldOr, Patience, Standing, may_pass
from autoresearch.errors import SettingsError
from autoresearch.redaction import redact

MAX_BODY_BYTES = 1 << 20
"""The longest HTTP response that is read; a proposal has a few hundred bytes."""
SAID_CHARACTERS = 240
"""The most that is repeated of what a server says with a refusal."""

Json: TypeAlias = dict[str, Any]

_CONTEXT = re.compile(
    r"(?:context length (?:is|of)|context size|context window (?:is|of))\D{0,12}(\d{3,8})",
    re.IGNORECASE,
)


class EndpointError(ProposerError):
    """The endpoint gave no reply: unreachable, refusing, failing, or silent past its deadline."""


class RefusedError(EndpointError):
    """The server answered no, and will tomorrow."""


class RejectedError(RefusedError):
    """The server will not serve this question as it is put.

    :ivar status: the HTTP status.
    :ivar context: the tokens that the server says its context holds, where it says so.
    """

    def __init__(self, message: str, status: int, context: int | None) -> None:
        super().__init__(message)
        self.status = status
        self.context = context


class OversizedError(openai.OpenAIError):
    """A body that is too long or compressed. No transport error, so it is not retried."""


class Wire:
    """Requests to one base URL, each tried as long as patience and the endpoint's record allow.

    Transport errors, 429 and 5xx are tried again with jittered exponential back-off (or after the
    server's Retry-After) until the deadline; any other refusal is final.

    :param base_url: up to and including ``/v1``; credentials in it are sent and never shown.
    :param api_key: sent to this server; no error, repr, log or kept reply shows it.
    :raises SettingsError: on a base_url that is none.
    """

    def __init__(self, base_url: str, api_key: str | None, patience: Patience) -> None:
        url = _parsed(base_url)
        self.base_url = str(url.copy_with(userinfo=b"", query=None, fragment=None)).rstrip("/")
        """Without credentials or query."""
        self.patience = patience
        self._secrets = [secret for secret in (api_key, url.password) if secret]
        self._standing = Standing()
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

    def post(self, path: str, body: Json, timeout_s: float) -> bytes:
        """One try.

        :raises openai.OpenAIError: where it brings no body.
        """
        return self._client.post(
            path, body=body, cast_to=httpx2.Response, options={"timeout": timeout_s}
        ).content

    def get(self, path: str, timeout_s: float) -> bytes:
        """One try.

        :raises openai.OpenAIError: where it brings no body.
        """
        return self._client.get(
            path, cast_to=httpx2.Response, options={"timeout": timeout_s}
        ).content

    def patiently(self, request: Callable[[float], bytes], *, failures: int | None = None) -> bytes:
        """The body of a request that is tried as long as it may be.

        :param request: takes the seconds it may last.
        :param failures: how many times HTTP 500 is a fault that may pass; after so many it is the
            server's answer to this very question. None: as long as the deadline allows.
        :raises RejectedError: where the server will not serve it.
        :raises EndpointError: where no body came for another reason.
        :raises OversizedError: where it is too long.
        """
        allowance = self._standing.allowance(self.patience, self._is_well)
        ends = time.monotonic() + allowance.deadline_s

        def once() -> bytes:
            timeout_s = min(allowance.timeout_s, max(ends - time.monotonic(), 0.001))
            return self._timed(request, timeout_s)

        retrying = tenacity.Retrying(
            retry=_may_be_tried_again(failures),
            wait=AsToldOr(self.patience.wait),
            stop=tenacity.stop_before_delay(allowance.deadline_s)
            if allowance.retries
            else tenacity.stop_after_attempt(1),
            reraise=True,
        )
        self._standing.asked()
        try:
            body = retrying(once)
        except openai.APIStatusError as error:
            is_answer = failures is not None and error.status_code == 500
            if is_answer or not may_pass(error):
                self._standing.answered()
            raise self._refusal(error, is_answer=is_answer) from None
        except openai.APIConnectionError as error:
            raise self._silence(error, allowance.deadline_s) from None
        except OversizedError:
            self._standing.answered()
            raise
        self._standing.answered()
        return body

    def redacted(self, text: str) -> str:
        """The text without this wire's secrets."""
        for secret in self._secrets:
            text = text.replace(secret, "[secret]")
        return redact(text)

    def _timed(self, request: Callable[[float], bytes], timeout_s: float) -> bytes:
        began = time.monotonic()
        self._try_ends = began + timeout_s
        body = request(timeout_s)
        self._standing.took(time.monotonic() - began)
        return body

    def _is_well(self) -> bool:
        """A look, between two turns, at what answers without computing anything: the list of
        models, and where there is one (NIM) the word whether the model is loaded."""
        for path in ("/models", "/health/ready"):
            timeout_s = self.patience.look_s
            self._try_ends = time.monotonic() + timeout_s
            try:
                self.get(path, timeout_s)
            except openai.APIStatusError as error:
                if error.status_code >= 500 or error.status_code == 429:
                    return False
            except (openai.APIConnectionError, OversizedError):
                return False
        return True

    def _bound_body(self, response: httpx2.Response) -> None:
        encoding = response.headers.get("content-encoding", "identity")
        if encoding != "identity":
            # A megabyte of gzip is a gigabyte of white space.
            raise OversizedError(f"the reply is compressed ({encoding!r:.40}), unasked")
        if isinstance(response.stream, httpx2.SyncByteStream):
            response.stream = _Bounded(response.stream, self._try_ends)

    # --- what to say when it goes wrong ---------------------------------------------------------

    def _refusal(self, error: openai.APIStatusError, *, is_answer: bool) -> EndpointError:
        status = error.status_code
        said = self.redacted(" ".join(said_with(error).split()))[:SAID_CHARACTERS]
        context = _context_said(error.body, said)
        mend = "it is tried again at the next turn"
        if status in {401, 403}:
            mend = "check AUTORESEARCH_LLM_API_KEY"
        elif status == 404:
            mend = "check that AUTORESEARCH_LLM_BASE_URL ends in /v1 and that the model exists"
        elif context is not None:
            mend = "lower --prompt-tokens, or start the server with a longer context"
        elif status < 500 and status != 429:
            mend = "check AUTORESEARCH_LLM_MODEL, and lower --prompt-tokens if the prompt is longer"
            mend += " than its context"
        message = f"the endpoint {self.base_url} answered HTTP {status} ({said}); {mend}"
        if is_answer or status in {400, 413, 415, 422, 501}:
            return RejectedError(message, status, context)
        return EndpointError(message) if may_pass(error) else RefusedError(message)

    def _silence(self, error: openai.APIConnectionError, allowed_s: float) -> EndpointError:
        if isinstance(error, openai.APITimeoutError):
            return EndpointError(
                f"the endpoint {self.base_url} did not answer within {allowed_s:g} s; "
                "check that it is not overloaded, or raise AUTORESEARCH_LLM_TIMEOUT_S"
            )
        cause = self.redacted(str(error.__cause__ or error))
        return EndpointError(
            f"the endpoint {self.base_url} cannot be reached ({cause:.200}); "
            "check that it is running"
        )


def said_with(error: openai.APIStatusError) -> str:
    """What a server says with a refusal, in whichever of the usual places it says it.

    OpenAI's form is ``{"error": {"message": …}}``; FastAPI's, and so many a local server's, is
    ``{"detail": …}`` with a sentence or a list of what is wrong where.
    """
    body = error.body
    if isinstance(body, str) and body:
        return body
    if not isinstance(body, dict):
        return error.message
    said = body.get("message") or body.get("detail") or body.get("error")
    if isinstance(said, list):
        said = "; ".join(_problem(item) for item in said)
    return said if isinstance(said, str) and said else error.message


def _problem(item: object) -> str:
    if not isinstance(item, dict):
        return str(item)
    place = ".".join(str(part) for part in item.get("loc", ()) if part != "body")
    return f"{place}: {item.get('msg', item)}" if place else str(item.get("msg", item))


def _context_said(body: object, said: str) -> int | None:
    """How many tokens the context holds, from a refusal of a question that is too long."""
    told = body.get("n_ctx") if isinstance(body, dict) else None
    if isinstance(told, int) and told > 0:
        return told
    found = _CONTEXT.search(said)
    return int(found[1]) if found else None


def _may_be_tried_again(failures: int | None) -> Callable[[tenacity.RetryCallState], bool]:
    """Whether a try failed in a way that may pass."""
    failed = 0

    def judge(state: tenacity.RetryCallState) -> bool:
        nonlocal failed
        error = state.outcome.exception() if state.outcome else None
        if error is None or not may_pass(error):
            return False
        if isinstance(error, openai.APIStatusError) and error.status_code == 500:
            failed += 1
            return failures is None or failed < failures
        return True

    return judge


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
                raise OversizedError(f"the reply is longer than {MAX_BODY_BYTES:,} bytes")
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
