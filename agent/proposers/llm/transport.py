"""Exchange HTTP with one origin under one deadline, with bounded bodies.

The deadline covers name lookup, connection, TLS, headers (however slow, and however many ``100
Continue``) and body. Redirects are followed within the origin only. A proxy from the environment is
used except for loopback addresses.
"""

from __future__ import annotations

import contextlib
import ipaddress
import os
import ssl
import threading
from concurrent.futures import Future
from pathlib import Path
from urllib.request import getproxies, proxy_bypass

import httpx2

from agent.proposers.base import ProposerError
from agent.settings.environment import SystemEnvironment
from autoresearch.errors import SettingsError

MAX_BODY_BYTES = 4 << 20
"""Longest body to read. A proposal has a few hundred bytes, a long list of models 1 MB."""
MAX_REDIRECTS = 5


class EndpointError(ProposerError):
    """The endpoint gave no reply: unreachable, refusing, failing, or silent past its deadline."""


class RefusedError(EndpointError):
    """The same request would fail the same way again."""


class UnreadableError(EndpointError):
    """The body is too long or compressed."""


class Transport:
    """Exchanges messages with the origin of one URL.

    :param where: names the endpoint in messages.
    :raises SettingsError: on a proxy or certificates that cannot be used.
    """

    def __init__(self, url: httpx2.URL, headers: dict[str, str], where: str) -> None:
        self.where = where
        self._url = url
        self._auth = (url.username, url.password) if url.userinfo else None
        # A client serves one exchange. A pool that the deadline closed forgets a connection that
        # comes up later, so each connection must close itself.
        self._headers = {"Accept-Encoding": "identity", "Connection": "close", **headers}
        proxy, variable = _proxy_of(url)
        shown = f"the proxy {_shown(proxy)} of {variable}"
        if proxy:
            self.where += f" (through {shown})"
        is_secure = url.scheme == "https" or proxy.startswith("https:")
        self._tls = _certificates() if is_secure else False
        self._proxy: httpx2.Proxy | None = None
        try:
            if proxy:
                proxy_tls = self._tls if isinstance(self._tls, ssl.SSLContext) else None
                is_https = proxy.startswith("https:")
                self._proxy = httpx2.Proxy(proxy, ssl_context=proxy_tls if is_https else None)
                check_port(self._proxy.url)
            self._client(1.0)
        except (ImportError, ValueError, httpx2.InvalidURL):
            raise SettingsError(
                f"{shown} cannot be used; set {variable} to an http:// proxy, unset it, or list "
                f"{url.host} in NO_PROXY"
            ) from None

    def exchange(
        self, method: str, path: str, timeout_s: float, body: object = None
    ) -> httpx2.Response:
        """Return the whole response to one request, with any status.

        :raises TimeoutError: if it is incomplete at the deadline.
        :raises httpx2.TransportError: if no connection or no response came, which may pass.
        :raises RefusedError: if a retry would fail too.
        :raises UnreadableError: if the body is too long or compressed.
        """
        found: Future[httpx2.Response] = Future()
        client = self._client(timeout_s)

        def settle() -> None:
            try:
                with client:
                    found.set_result(self._exchange(client, method, path, body))
            except BaseException as error:  # noqa: BLE001 (raised in the caller's thread)
                found.set_exception(error)

        # A daemon, so that no lookup or read that hangs holds the caller or the process's end.
        threading.Thread(target=settle, daemon=True).start()
        try:
            return found.result(timeout_s)
        except (TimeoutError, httpx2.TimeoutException):
            client.close()
            raise TimeoutError from None

    def _client(self, timeout_s: float) -> httpx2.Client:
        return httpx2.Client(
            auth=self._auth,
            headers=self._headers,
            verify=self._tls,
            proxy=self._proxy,
            trust_env=False,
            timeout=timeout_s,
        )

    def _exchange(
        self, client: httpx2.Client, method: str, path: str, body: object
    ) -> httpx2.Response:
        url = self._url.copy_with(userinfo=b"", path=self._url.path + path)
        has_begun = False
        try:
            for _ in range(MAX_REDIRECTS):
                with client.stream(method, url, json=body) as response:
                    has_begun = True
                    if not response.has_redirect_location:
                        return _read(response)
                    url = self._target(url, response)
                has_begun = False
        except httpx2.TimeoutException:
            raise
        except httpx2.TransportError as error:
            raise self._final(error, has_begun=has_begun) or error from None
        raise RefusedError(f"{self.where} redirects in a circle; check AUTORESEARCH_LLM_BASE_URL")

    def _target(self, url: httpx2.URL, response: httpx2.Response) -> httpx2.URL:
        """Return a redirect's target within the origin; nothing is sent to any other."""
        with contextlib.suppress(httpx2.InvalidURL):
            target = url.join(response.headers["Location"])
            if (target.scheme, target.host, target.port) == (url.scheme, url.host, url.port):
                return target
        location = response.headers["Location"]
        origin = ascii(_shown(location))[1:-1]
        raise RefusedError(
            f"{self.where} redirects to another origin ({origin:.120}), and nothing was sent "
            "there; set AUTORESEARCH_LLM_BASE_URL to it if it is meant"
        )

    def _final(self, error: httpx2.TransportError, *, has_begun: bool) -> RefusedError | None:
        """Return the error of a failure that no retry would change; None for any other."""
        root = root_of(error)
        if isinstance(root, ssl.SSLError):
            variables = " ".join(f"{name}={value}" for name, value in _certificate_settings())
            used = f" with {variables}" if variables else ""
            return RefusedError(
                f"{self.where} and TLS: {root}{used}; check its certificate, or set SSL_CERT_FILE "
                "to the authority that signed it"
            )
        if isinstance(error, httpx2.LocalProtocolError):  # its text may hold a header
            return RefusedError(f"{self.where} cannot receive a header; check its key")
        is_http = not isinstance(error, httpx2.ProtocolError) or "disconnected" in str(error)
        if has_begun or not is_http:
            what = "broke off in the middle of a reply" if has_begun else "does not speak HTTP"
            return RefusedError(f"{self.where} {what} ({reason_of(error)}); check the server's log")
        return None


def check_port(url: httpx2.URL) -> None:
    """Refuse a port out of range.

    :raises httpx2.InvalidURL: naming it.
    """
    if url.port is not None and not 0 < url.port < 65536:
        raise httpx2.InvalidURL(f"Invalid port: {url.port:.20g}")


def root_of(error: BaseException) -> BaseException:
    """Return the root cause of an error."""
    while True:
        under = error.__cause__ or error.__context__
        if under is None:
            return error
        error = under


def reason_of(error: Exception) -> str:
    """Return the root cause of an error in words."""
    root = root_of(error)
    if isinstance(root, OSError) and root.errno is not None and root.errno > 0:
        return os.strerror(root.errno)
    return str(root) or str(error)


def _read(response: httpx2.Response) -> httpx2.Response:
    try:
        body = _body(response)
    except UnreadableError:
        if not response.is_error:
            raise
        body = b""  # its status says enough
    return httpx2.Response(response.status_code, headers=response.headers, content=body)


def _body(response: httpx2.Response) -> bytes:
    encoding = response.headers.get("content-encoding", "")
    if encoding.strip().lower() not in {"", "identity"}:
        # A megabyte of gzip can be a gigabyte of white space.
        raise UnreadableError(f"the reply is compressed ({encoding!r:.40}), unrequested")
    body = bytearray()
    for chunk in response.iter_raw():
        body += chunk
        if len(body) > MAX_BODY_BYTES:
            raise UnreadableError(f"the reply is longer than {MAX_BODY_BYTES:,} bytes")
    return bytes(body)


def _proxy_of(url: httpx2.URL) -> tuple[str, str]:
    """Return the proxy for a URL and the variable that names it; empty if none."""
    port = f":{url.port}" if url.port else ""
    if is_loopback(url.host) or proxy_bypass(f"{url.host}{port}"):
        return "", ""
    proxies = getproxies()
    kind = url.scheme if proxies.get(url.scheme) else "all"
    proxy = proxies.get(kind, "")
    return proxy if "://" in proxy or not proxy else f"http://{proxy}", f"{kind.upper()}_PROXY"


def is_loopback(host: str) -> bool:
    """Return whether a host is this machine."""
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return host == "localhost" or host.endswith(".localhost")


def _shown(url: str) -> str:
    """Return a URL without its possibly secret parts."""
    try:
        return str(httpx2.URL(url).copy_with(userinfo=b"", query=None, fragment=None))
    except httpx2.InvalidURL:
        return "(not a URL)"


def _certificate_settings() -> list[tuple[str, str]]:
    said = SystemEnvironment()
    named = (("SSL_CERT_FILE", said.ssl_cert_file), ("SSL_CERT_DIR", said.ssl_cert_dir))
    return [(name, value) for name, value in named if value]


def _certificates() -> ssl.SSLContext:
    for name, value in _certificate_settings():
        if not Path(value).exists():
            raise SettingsError(f"{name} names {value}, which does not exist; fix or unset {name}")
    try:
        return httpx2.create_ssl_context()
    except OSError as error:  # ssl.SSLError is one
        names = " and ".join(f"{name}={value}" for name, value in _certificate_settings())
        raise SettingsError(
            f"the certificates of {names or 'this system'} cannot be read ({error}); fix or unset "
            "the variable"
        ) from None
