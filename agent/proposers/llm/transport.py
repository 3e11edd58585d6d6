"""Exchange HTTP with one origin under one deadline, with bounded bodies.

The deadline covers name lookup, connection, TLS, headers (however slow, and however many ``100
Continue``) and body. Redirects are never followed. A proxy from the environment is used except for
loopback addresses.
"""

import contextlib
import ipaddress
import re
import ssl
import threading
from concurrent.futures import Future
from pathlib import Path
from typing import Any
from urllib.request import getproxies, proxy_bypass

import httpx2
from pydantic import AnyHttpUrl, AnyUrl, TypeAdapter, ValidationError

from agent.settings.environment import SystemEnvironment
from autoresearch.errors import SettingsError

MAX_BODY_BYTES = 4 << 20
"""Longest body to read. A proposal has a few hundred bytes, a long list of models 1 MB."""

_URL = TypeAdapter(AnyUrl)
_WEB_URL = TypeAdapter(AnyHttpUrl)
_PASTED = re.compile(r"(/chat/completions|/completions|/models|/embeddings)?/*$", re.IGNORECASE)


class Transport:
    """Exchanges messages with the origin of one URL.

    :ivar where: names the endpoint in messages.
    :raises SettingsError: on a proxy or certificates that cannot be used.
    """

    def __init__(self, url: httpx2.URL, headers: dict[str, str]) -> None:
        self.where = f"the endpoint {shown(url)}"
        proxy, variable = _proxy_of(url)
        if proxy:
            self.where += f" (through the proxy {shown(proxy)} of {variable})"
        is_secure_proxy = proxy.startswith("https:")
        tls = _certificates() if is_secure_proxy or url.scheme == "https" else None
        self._url = url.copy_with(userinfo=b"")
        # A client serves one exchange. A pool that the deadline closed forgets a connection that
        # comes up later, so each connection must close itself.
        self._options: dict[str, Any] = {
            "auth": (url.username, url.password) if url.userinfo else None,
            "headers": {"Accept-Encoding": "identity", "Connection": "close", **headers},
            "verify": tls or False,
            "trust_env": False,
        }
        try:
            if proxy:
                self._options["proxy"] = httpx2.Proxy(
                    str(_URL.validate_python(proxy)), ssl_context=tls if is_secure_proxy else None
                )
            httpx2.Client(**self._options).close()
        except (ImportError, ValueError, httpx2.InvalidURL):
            raise SettingsError(
                f"the proxy {shown(proxy)} of {variable} cannot be used; set {variable} to an "
                f"http:// proxy, unset it, or list {url.host} in NO_PROXY"
            ) from None

    def exchange(
        self, method: str, path: str, timeout_s: float, body: object = None
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
    """Parse a base URL in any of its usual forms: up to ``/v1``, without it, without a scheme, or
    with the path of one of its pages.

    :raises SettingsError: if it is invalid.
    """
    given = base_url.strip().strip("\"'")
    has_scheme = "://" in given
    try:
        web = _WEB_URL.validate_python(given if has_scheme else f"http://{given}")
        url = httpx2.URL(str(web))
    except (ValidationError, httpx2.InvalidURL):
        url = httpx2.URL("")
    address = given.rpartition("@")[2].partition("?")[0]
    is_near = ":" in address.partition("/")[0] or is_loopback(url.host)
    # Any other word than a host's name is a misspelled scheme.
    if not url.host or not (has_scheme or is_near or "." in url.host):
        raise SettingsError(
            f"AUTORESEARCH_LLM_BASE_URL, {address!r:.80}, is not the URL of a web server; give one "
            "like http://localhost:8000/v1"
        )
    if not (has_scheme or is_near):
        url = url.copy_with(scheme="https")
    path = _PASTED.sub("", url.path) or "/v1"
    return url.copy_with(path="/v1" if path == "/V1" else path, fragment=None)


def shown(url: httpx2.URL | str) -> str:
    """Return a URL without its possibly secret parts."""
    try:
        return str(httpx2.URL(url).copy_with(userinfo=b"", query=None, fragment=None))
    except httpx2.InvalidURL:
        return "(not a URL)"


def is_loopback(host: str) -> bool:
    """Return whether a host is this machine."""
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return host == "localhost" or host.endswith(".localhost")


def _proxy_of(url: httpx2.URL) -> tuple[str, str]:
    """Return the proxy for a URL and the variable that names it; empty if none."""
    port = f":{url.port}" if url.port else ""
    if is_loopback(url.host) or proxy_bypass(f"{url.host}{port}"):
        return "", ""
    proxies = getproxies()
    kind = url.scheme if proxies.get(url.scheme) else "all"
    proxy = proxies.get(kind, "")
    return proxy if "://" in proxy or not proxy else f"http://{proxy}", f"{kind.upper()}_PROXY"


def _certificates() -> ssl.SSLContext:
    said = SystemEnvironment()
    named = {"SSL_CERT_FILE": said.ssl_cert_file, "SSL_CERT_DIR": said.ssl_cert_dir}
    used = " and ".join(f"{name}={value}" for name, value in named.items() if value)
    try:
        for value in filter(None, named.values()):
            Path(value).stat()
        return httpx2.create_ssl_context()
    except OSError as error:  # ssl.SSLError is one
        raise SettingsError(
            f"the certificates of {used or 'this system'} cannot be read ({error.strerror}); fix "
            "or unset the variable"
        ) from None
