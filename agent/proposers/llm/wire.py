"""Send questions to one chat endpoint with the ``openai`` package, under one deadline.

The package makes the requests. Its own retries are off, since tenacity holds the one policy. A
question with its retries is one future of a thread, so the deadline covers name lookup, connection,
TLS, headers and body. Redirects are never followed, and a job of a queued question is polled at the
same origin only, so that the key reaches no other server. A proxy from the environment is used
except for loopback addresses.
"""

import contextlib
import ipaddress
import re
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, TypeAlias
from urllib.request import getproxies, proxy_bypass

import httpx2
import tenacity
from openai import APIConnectionError, APIStatusError, Omit, OpenAI
from pydantic import AnyHttpUrl, AnyUrl, TypeAdapter, ValidationError

from agent.proposers.llm.bodies import json_documents
from agent.proposers.llm.failures import (
    EndpointError,
    RefusedError,
    refusal,
    retry_after_s,
    silence,
)
from autoresearch.errors import SettingsError
from autoresearch.safe_text import redact, sendable

Ask: TypeAlias = Callable[[OpenAI], httpx2.Response]
"""Makes one request."""

_URL, _WEB_URL = TypeAdapter(AnyUrl), TypeAdapter(AnyHttpUrl)
_SCHEME = re.compile(r"^\s*(authorization:\s*)?bearer\s+", re.IGNORECASE)
"""Beginning of a header's value that was pasted in place of the key."""
_PASTED = re.compile(
    r"(/chat/completions|/completions|/responses|/models|/embeddings)?/*$", re.IGNORECASE
)


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


@dataclass(slots=True)
class _Sent:
    """A request with all its tries."""

    http: httpx2.Client
    job: str = ""
    """Where the answer to a queued question will be."""
    told: EndpointError | None = None
    """The last failure of which the server told."""


class Wire:
    """Sends requests to one base URL, each retried as long as its failure may pass.

    :param base_url: see :func:`parsed`; credentials in it are sent and never shown.
    :param api_key: sent to this server; no error, repr, log or stored reply shows it.
    :raises SettingsError: on a base_url, key, proxy or certificates that cannot be used.
    """

    def __init__(self, base_url: str, api_key: str | None, patience: Patience) -> None:
        url = parsed(base_url)
        self.base_url = shown(url)
        """Base URL without credentials or query."""
        try:
            key = sendable(_SCHEME.sub("", api_key or ""))
        except ValueError as error:
            raise SettingsError(f"AUTORESEARCH_LLM_API_KEY {error}") from None
        self._patience = patience
        self._secrets = [secret for secret in (key, url.password) if secret]
        self._is_silent = False
        self._allowed_s = self._ends = 0.0
        self._where = f"the endpoint {self.base_url}"
        proxy = _proxy_of(url)
        # A pool that the deadline closed forgets a connection that comes up later, so each
        # connection must close itself.
        self._options: dict[str, Any] = {
            "base_url": url.copy_with(userinfo=b"", query=None),
            "default_query": dict(url.params),
            "default_headers": {
                "Connection": "close",
                "Authorization": f"Bearer {key or 'none'}",
                # The environment's are meant for OpenAI's own servers.
                "OpenAI-Organization": Omit(),
                "OpenAI-Project": Omit(),
            },
            "api_key": key or "none",
            "max_retries": 0,
        }
        try:
            self._http: dict[str, Any] = {
                "auth": (url.username, url.password) if url.userinfo else None,
                "verify": httpx2.create_ssl_context() if url.scheme == "https" else False,
                "trust_env": False,
                "proxy": proxy and str(_URL.validate_python(proxy)),
                "follow_redirects": False,
                "event_hooks": {"response": [_as_utf8]},
            }
            httpx2.Client(**self._http).close()
        except (ImportError, ValueError, OSError, httpx2.InvalidURL):
            raise SettingsError(
                f"{self._where} cannot be asked with the environment's proxy or certificates; fix "
                "or unset HTTP_PROXY, HTTPS_PROXY, ALL_PROXY, SSL_CERT_FILE and SSL_CERT_DIR, or "
                f"list {url.host} in NO_PROXY"
            ) from None
        if proxy:
            self._where += f" (through the proxy {shown(httpx2.URL(proxy))})"

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
        sent = _Sent(httpx2.Client(**self._http))

        def failure(state: tenacity.RetryCallState) -> BaseException | None:
            return state.outcome.exception() if state.outcome else None

        retrying = tenacity.Retrying(
            retry=lambda state: state.attempt_number < getattr(failure(state), "tries", 0),
            wait=lambda state: max(limit.wait(state), getattr(failure(state), "retry_after_s", 0)),
            stop=tenacity.stop_before_delay(left_s),
            reraise=True,
        )
        found: Future[httpx2.Response] = Future()

        def settle() -> None:
            try:
                with sent.http:
                    found.set_result(retrying(self._once, sent, ask))
            except BaseException as error:  # noqa: BLE001 (raised in the caller's thread)
                found.set_exception(error)

        # A daemon, so that no lookup or read that hangs holds the caller or the process's end.
        threading.Thread(target=settle, daemon=True).start()
        try:
            response = found.result(left_s)
        except (TimeoutError, EndpointError) as error:
            sent.http.close()
            last = error if isinstance(error, EndpointError) else self._silence(error)
            if sent.told and last is not sent.told:
                # The server's last answer is more informative than the silence since.
                last = EndpointError(str(sent.told))
            self._is_silent = not isinstance(last, RefusedError)
            raise last from None
        self._is_silent = False
        return response

    def _once(self, sent: _Sent, ask: Ask) -> httpx2.Response:
        """Return the response to one try: the request, or a poll if its question was queued."""
        timeout_s = min(self._patience.timeout_s, max(self._ends - time.monotonic(), 0.001))
        client = OpenAI(http_client=sent.http, timeout=timeout_s, **self._options)
        try:
            response = client.get(sent.job, cast_to=httpx2.Response) if sent.job else ask(client)
        except APIStatusError as error:
            sent.told = self.refused(error)
            raise sent.told from None
        except APIConnectionError as error:
            raise self._silence(error) from None
        if response.status_code != 202:
            return response
        sent.job = job_of(response, self._where)
        late = f"queued the question and did not answer it within {self._allowed_s:g} s"
        sent.told = EndpointError(f"{self._where} {late}; raise AUTORESEARCH_LLM_DEADLINE_S")
        sent.told.retry_after_s = retry_after_s(response)
        raise sent.told

    def _silence(self, error: Exception) -> EndpointError:
        return silence(self._where, error, self._allowed_s, self.redacted)

    def refused(self, error: APIStatusError) -> EndpointError:
        """Return the failure that a refusal means."""
        return refusal(self._where, error, self.redacted)

    def redacted(self, text: str) -> str:
        """Return the text without this wire's secrets."""
        for secret in self._secrets:
            text = text.replace(secret, "[secret]")
        return redact(text)


def _as_utf8(response: httpx2.Response) -> None:
    """Read a response as UTF-8, as JSON is, whatever encoding the server names."""
    response.encoding = "utf-8"


def job_of(response: httpx2.Response, where: str) -> str:
    """Return the URL at which a queued question's answer will be.

    A server names the URL, or as NVIDIA's cloud does only the job, whose status is at
    ``/v1/status/JOB``.

    :raises RefusedError: if it names neither, or another origin, which must not get the key.
    """
    asked = response.request.url
    if response.request.method == "GET":
        return str(asked)
    told: dict[str, Any] = dict(response.headers)
    with contextlib.suppress(ValueError):
        told |= next(iter(json_documents(response.text)), {})
    url = told.get("location") or told.get("operation-location")
    job = told.get("nvcf-reqid") or told.get("requestId")
    target = asked.join(str(url)) if url else asked
    if target.origin != asked.origin or not (url or job):
        raise RefusedError(
            f"{where} queued the question and names no job at its own address to poll; use a "
            "server that answers at once"
        )
    return str(target) if url else f"/status/{job}"


def parsed(base_url: str) -> httpx2.URL:
    """Parse a base URL: up to ``/v1``, without it, or with the path of one of its pages.

    Without a scheme it is http on this machine and private networks, and https elsewhere.

    :raises SettingsError: if it is invalid.
    """
    given = base_url.strip().strip("\"'")
    address = given.rpartition("@")[2].partition("?")[0]
    has_scheme = "://" in given
    try:
        web = _WEB_URL.validate_python(given if has_scheme else f"http://{given}")
        url = httpx2.URL(str(web))
    except (ValidationError, httpx2.InvalidURL):
        url = httpx2.URL("")
    # A word without a port or dots, like "https:/host", is a misspelled scheme.
    is_host = re.match(r"[^/]*:\d|localhost\b", address, re.IGNORECASE) or {".", ":"} & {*url.host}
    if not url.host or not (has_scheme or is_host):
        raise SettingsError(
            f"AUTORESEARCH_LLM_BASE_URL, {address!r:.80}, is not the URL of a web server; give one "
            "like http://localhost:8000/v1"
        )
    if not (has_scheme or _is_private(url.host)):
        url = httpx2.URL(str(_WEB_URL.validate_python(f"https://{given}")))
    path = _PASTED.sub("", url.path) or "/v1"
    return url.copy_with(path="/v1" if path == "/V1" else path, fragment=None)


def _is_private(host: str) -> bool:
    """Return whether a host is certainly of this machine or a private network."""
    with contextlib.suppress(ValueError):
        address = ipaddress.ip_address(host)
        return (getattr(address, "ipv4_mapped", None) or address).is_private
    return "." not in host or host.endswith((".localhost", ".local", ".internal"))


def shown(url: httpx2.URL) -> str:
    """Return a URL without its possibly secret parts."""
    return str(url.copy_with(userinfo=b"", query=None, fragment=None))


def _proxy_of(url: httpx2.URL) -> str | None:
    """Return the environment's proxy for a URL; None for this machine and those in NO_PROXY."""
    host = url.host
    with contextlib.suppress(ValueError):
        host = "localhost" if ipaddress.ip_address(host).is_loopback else host
    port = f":{url.port}" if url.port else ""
    if host == "localhost" or host.endswith(".localhost") or proxy_bypass(f"{host}{port}"):
        return None
    proxy = getproxies().get(url.scheme) or getproxies().get("all")
    return proxy if not proxy or "://" in proxy else f"http://{proxy}"
