"""Send questions to one chat endpoint with the ``openai`` package, under one deadline.

The package makes the requests. Its own retries are off, since tenacity holds the one policy. A
question with its retries is one future of a thread, so the deadline covers name lookup, connection,
TLS, headers and body. Redirects are never followed, and a queued question's job is polled at the
same address, so that the key reaches no other server. A proxy from the environment is used except
for loopback addresses.
"""

import re
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import httpx2
import tenacity
from openai import APITimeoutError, Omit, OpenAI
from pydantic import AnyHttpUrl, TypeAdapter, ValidationError

from agent.proposers.llm.failures import EndpointError, RefusedError, failure
from autoresearch.errors import SettingsError
from autoresearch.safe_text import redact

Ask: TypeAlias = Callable[[OpenAI], httpx2.Response]
"""Makes one request."""

_WEB_URL = TypeAdapter(AnyHttpUrl)
_SCHEME = re.compile(r"^\s*(authorization:\s*)?bearer\s+", re.IGNORECASE)
"""Beginning of a header's value that was pasted in place of the key."""
_PASTED = re.compile(
    r"(/chat/completions|/completions|/responses|/models|/embeddings)?/*$", re.IGNORECASE
)
_PRIVATE = re.compile(
    r"(localhost|\[::1\]|[\w-]+(?=:\d)|(127|10|192\.168|172\.(1[6-9]|2\d|3[01]))(\.\d+){2,3})"
    r"(:\d+)?(/|$)",
    re.IGNORECASE,
)
"""Addresses without a scheme that are certainly of this machine or a private network."""
_LOOPBACK = re.compile(r"(.+\.)?localhost|127\.\d+\.\d+\.\d+|::1")


@dataclass(frozen=True, slots=True)
class Patience:
    """Time limits for an endpoint."""

    timeout_s: float = 60.0
    """Longest silence of the server within one request. It is also the deadline after a question
    that got no answer, so that a dead endpoint costs an iteration no more."""
    deadline_s: float = 120.0
    """Limit of all requests of one question, waits included."""
    wait: Callable[[tenacity.RetryCallState], float] = field(
        default_factory=lambda: tenacity.wait_exponential_jitter(multiplier=0.5, max=20, jitter=1)
    )
    """Seconds between tries; a server's Retry-After can only increase them."""


class Wire:
    """Sends requests to one base URL, each retried as long as its failure may pass.

    :param base_url: see :func:`parsed`; credentials in it are sent and never shown.
    :param api_key: sent to this server; no error, repr, log or stored reply shows it.
    :raises SettingsError: on a base_url, key, proxy or certificates that cannot be used.
    """

    def __init__(self, base_url: str, api_key: str | None, patience: Patience) -> None:
        url = parsed(base_url)
        self.base_url = str(url.copy_with(userinfo=b"", query=None))
        """Base URL without credentials or query."""
        key = _SCHEME.sub("", api_key or "")
        self._patience = patience
        self._secrets = [secret for secret in (key, url.password) if secret]
        self._is_silent = False
        self._allowed_s = self._ends = 0.0
        # A pool that the deadline closed forgets a connection that comes up later, so each
        # connection must close itself. OpenAI's variables are meant for its own servers.
        self._options: dict[str, Any] = {
            "base_url": self.base_url,
            "default_query": dict(url.params),
            "default_headers": {
                "Connection": "close",
                "Authorization": f"Bearer {key or 'none'}",
                "OpenAI-Organization": Omit(),
                "OpenAI-Project": Omit(),
            },
            "api_key": key or "none",
            "max_retries": 0,
        }
        try:
            self._http: dict[str, Any] = {
                "auth": (url.username, url.password) if url.userinfo else None,
                "verify": url.scheme == "https" and httpx2.create_ssl_context(),
                "trust_env": not _LOOPBACK.fullmatch(url.host),
                "event_hooks": {"response": [_as_utf8]},
            }
            httpx2.Client(**self._http).close()
        except (ImportError, ValueError, OSError, httpx2.InvalidURL):
            raise SettingsError(
                f"the endpoint {self.base_url} cannot be asked with the environment's proxy or "
                "certificates; fix or unset HTTP_PROXY, HTTPS_PROXY, ALL_PROXY, SSL_CERT_FILE and "
                "SSL_CERT_DIR"
            ) from None

    def begin(self) -> None:
        """Begin a question: all its requests share the deadline that counts from now."""
        limit = self._patience
        self._allowed_s = limit.timeout_s if self._is_silent else limit.deadline_s
        self._ends = time.monotonic() + self._allowed_s

    def send(self, ask: Ask) -> httpx2.Response:
        """Return the response to a request, retried until the question's deadline.

        :raises RejectedError: if the server refuses the question.
        :raises EndpointError: if no response came for another reason.
        """
        limit, left_s = self._patience, max(self._ends - time.monotonic(), 0.001)
        http = httpx2.Client(**self._http)
        found: Future[httpx2.Response] = Future()

        def failed(state: tenacity.RetryCallState) -> Any:
            return state.outcome and state.outcome.exception()

        retrying = tenacity.Retrying(
            retry=lambda state: state.attempt_number < getattr(failed(state), "tries", 0),
            wait=lambda state: max(limit.wait(state), failed(state).retry_after_s),
            stop=tenacity.stop_before_delay(left_s),
            reraise=True,
        )

        def settle() -> None:
            try:
                with http:
                    found.set_result(retrying(self._once, http, [ask]))
            except BaseException as error:  # noqa: BLE001 (raised in the caller's thread)
                found.set_exception(error)

        # A daemon, so that no lookup or read that hangs holds the caller or the process's end.
        threading.Thread(target=settle, daemon=True).start()
        try:
            response = found.result(left_s)
        except (TimeoutError, EndpointError) as error:
            http.close()
            last = error if isinstance(error, EndpointError) else self.failure(error)
            self._is_silent = not isinstance(last, RefusedError)
            raise last from None
        self._is_silent = False
        return response

    def _once(self, http: httpx2.Client, asks: list[Ask]) -> httpx2.Response:
        """Return the response to the last of these requests; if it was queued, add the poll."""
        timeout_s = min(self._patience.timeout_s, max(self._ends - time.monotonic(), 0.001))
        try:
            response = asks[-1](OpenAI(http_client=http, timeout=timeout_s, **self._options))
        except Exception as error:  # noqa: BLE001 (whatever a server does ends no campaign)
            raise self.failure(error) from None
        if response.status_code != 202:
            return response
        job = response.headers.get("nvcf-reqid")  # as NVIDIA's cloud names it
        if job:
            asks.append(lambda client: client.get(f"/status/{job}", cast_to=httpx2.Response))
        kind = EndpointError if len(asks) > 1 else RefusedError
        raise kind(
            f"the endpoint {self.base_url} queued the question (HTTP 202, job {job}); raise "
            "AUTORESEARCH_LLM_DEADLINE_S, or use a server that answers at once"
        )

    def failure(self, error: Exception) -> EndpointError:
        """Return what an exception of a request means."""
        if isinstance(error, APITimeoutError | TimeoutError):
            error = TimeoutError(f"no answer within {self._allowed_s:g} s")
        return failure(f"the endpoint {self.base_url}", error, self.redacted)

    def redacted(self, text: str) -> str:
        """Return the text without this wire's secrets."""
        for secret in self._secrets:
            text = text.replace(secret, "[secret]")
        return redact(text)


def _as_utf8(response: httpx2.Response) -> None:
    """Read a response as UTF-8, as JSON is, whatever encoding the server names."""
    response.encoding = "utf-8"


def parsed(base_url: str) -> httpx2.URL:
    """Parse a base URL: up to ``/v1``, without it, or with the path of one of its pages.

    Without a scheme it is http on this machine and private networks, and https elsewhere.

    :raises SettingsError: if it is invalid.
    """
    given = base_url.strip().strip("\"'")
    has_scheme = "://" in given or bool(_PRIVATE.match(given))
    if "://" not in given:
        given = f"{'http' if has_scheme else 'https'}://{given}"
    try:
        url = httpx2.URL(str(_WEB_URL.validate_python(given)))
    except (ValidationError, httpx2.InvalidURL):
        url = httpx2.URL("")
    # A word without a port or dots, like "https:/host", is a misspelled scheme.
    if not url.host or not (has_scheme or {".", ":"} & {*url.host}):
        address = base_url.rpartition("@")[2].partition("?")[0]
        raise SettingsError(
            f"AUTORESEARCH_LLM_BASE_URL, {address!r:.80}, is not the URL of a web server; give one "
            "like http://localhost:8000/v1"
        )
    return url.copy_with(path=_PASTED.sub("", url.path) or "/v1", fragment=None)
