"""Send requests to one chat endpoint, bounded in time and bytes, retried by one policy.

A deadline covers name lookup, connection, TLS, headers (however slow, and however many ``100
Continue``) and body. Redirects are never followed. A proxy from the environment is used except for
loopback addresses. No error, log or stored reply shows a secret.
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
from pydantic import AnyHttpUrl, AnyUrl, TypeAdapter, ValidationError

from agent.proposers.llm.failures import EndpointError, RefusedError, refusal, silence
from autoresearch.errors import SettingsError
from autoresearch.safe_text import redact, sendable

Json: TypeAlias = dict[str, Any]

MAX_BODY_BYTES = 4 << 20
"""Longest body to read. A proposal has a few hundred bytes, a long list of models 1 MB."""
_URL, _WEB_URL = TypeAdapter(AnyUrl), TypeAdapter(AnyHttpUrl)
_SCHEME = re.compile(r"^\s*(authorization:\s*)?bearer\s+", re.IGNORECASE)
"""Beginning of a header's value that was pasted in place of the key."""
_PASTED = re.compile(r"(/chat/completions|/completions|/models|/embeddings)?/*$", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Patience:
    """Time limits for an endpoint."""

    timeout_s: float = 60.0
    """Limit of one request, from sending it to the last byte of its reply. It is also the deadline
    after a question that got no answer, so that a dead endpoint costs an iteration no more."""
    deadline_s: float = 120.0
    """Limit of all tries of one question, waits included."""
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
        self.base_url = shown(url)
        """Base URL without credentials or query."""
        try:
            key = sendable(_SCHEME.sub("", api_key or ""))
        except ValueError as error:
            raise SettingsError(f"AUTORESEARCH_LLM_API_KEY {error}") from None
        self._patience = patience
        self._secrets = [secret for secret in (key, url.password) if secret]
        self._is_silent = False
        self._url = url.copy_with(userinfo=b"")
        proxy = _proxy_of(url)
        via = f" (through the proxy {shown(proxy)})" if proxy else ""
        self._where = f"the endpoint {self.base_url}{via}"
        headers = {"Accept-Encoding": "identity", "Connection": "close"}
        try:
            # A client serves one exchange. A pool that the deadline closed forgets a connection
            # that comes up later, so each connection must close itself.
            self._options: dict[str, Any] = {
                "auth": (url.username, url.password) if url.userinfo else None,
                "headers": {**headers, "Authorization": f"Bearer {key or 'none'}"},
                "verify": httpx2.create_ssl_context() if url.scheme == "https" else False,
                "trust_env": False,
                "proxy": proxy and str(_URL.validate_python(proxy)),
            }
            httpx2.Client(**self._options).close()
        except (ImportError, ValueError, OSError, httpx2.InvalidURL):
            raise SettingsError(
                f"{self._where} cannot be asked with the environment's proxy or certificates; fix "
                "or unset HTTP_PROXY, HTTPS_PROXY, ALL_PROXY, SSL_CERT_FILE and SSL_CERT_DIR, or "
                f"list {url.host} in NO_PROXY"
            ) from None

    def send(self, method: str, path: str, body: Json | None = None) -> bytes:
        """Return the body of a request, retried until the deadline.

        :raises RejectedError: if the server refuses the question.
        :raises EndpointError: if no body came for another reason.
        """
        limit = self._patience
        deadline_s = limit.timeout_s if self._is_silent else limit.deadline_s
        ends = time.monotonic() + deadline_s
        answers: list[EndpointError] = []

        def once() -> bytes:
            timeout_s = min(limit.timeout_s, max(ends - time.monotonic(), 0.001))
            try:
                response = self.exchange(method, path, timeout_s, body)
            except (TimeoutError, httpx2.TransportError) as error:
                raise silence(self._where, error, deadline_s, self.redacted) from None
            if response.is_success:
                return response.content
            answers.append(refusal(self._where, response, self.redacted))
            raise answers[-1]

        def failure(state: tenacity.RetryCallState) -> BaseException | None:
            return state.outcome.exception() if state.outcome else None

        retrying = tenacity.Retrying(
            retry=lambda state: state.attempt_number < getattr(failure(state), "tries", 0),
            wait=lambda state: max(limit.wait(state), getattr(failure(state), "retry_after_s", 0)),
            stop=tenacity.stop_before_delay(deadline_s),
            reraise=True,
        )
        try:
            content = retrying(once)
        except EndpointError as error:
            # The server's last answer is more informative than the silence since.
            last = EndpointError(str(answers[-1])) if answers and error not in answers else error
            self._is_silent = not isinstance(last, RefusedError)
            raise last from None
        self._is_silent = False
        return content

    def exchange(
        self, method: str, path: str, timeout_s: float, body: Json | None = None
    ) -> httpx2.Response:
        """Return the whole response to one request, with any status.

        :raises TimeoutError: if it is incomplete at the deadline.
        :raises httpx2.TransportError: if no connection or no readable response came.
        """
        found: Future[httpx2.Response] = Future()
        client = httpx2.Client(timeout=timeout_s, **self._options)
        url = self._url.copy_with(path=self._url.path + path)

        def settle() -> None:
            try:
                with client, client.stream(method, url, json=body) as response:
                    whole = httpx2.Response(
                        response.status_code, headers=response.headers, content=_body_of(response)
                    )
                found.set_result(whole)
            except BaseException as error:  # noqa: BLE001 (raised in the caller's thread)
                found.set_exception(error)

        # A daemon, so that no lookup or read that hangs holds the caller or the process's end.
        threading.Thread(target=settle, daemon=True).start()
        try:
            return found.result(timeout_s)
        except (TimeoutError, httpx2.TimeoutException):
            client.close()
            raise TimeoutError from None

    def redacted(self, text: str) -> str:
        """Return the text without this wire's secrets."""
        for secret in self._secrets:
            text = text.replace(secret, "[secret]")
        return redact(text)


def _body_of(response: httpx2.Response) -> bytes:
    """Return a body; that of an error is empty if it cannot be read, since its status says enough.

    :raises httpx2.RemoteProtocolError: if it is too long or compressed.
    """
    body = bytearray()
    # A megabyte of gzip can be a gigabyte of white space.
    if response.headers.get("content-encoding", "").strip().lower() in {"", "identity"}:
        for chunk in response.iter_raw():
            body += chunk
            if len(body) > MAX_BODY_BYTES:
                break
        else:
            return bytes(body)
    if response.is_error:
        return b""
    raise httpx2.RemoteProtocolError(f"compressed, or longer than {MAX_BODY_BYTES:,} bytes")


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


def shown(url: httpx2.URL | str) -> str:
    """Return a URL without its possibly secret parts."""
    try:
        return str(httpx2.URL(url).copy_with(userinfo=b"", query=None, fragment=None))
    except httpx2.InvalidURL:
        return "(not a URL)"


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
