"""Make text safe to show: remove secrets, and what a terminal or a page would obey.

A secret is the value of a variable with a telling name, the password of a URL in any variable or
command option, a value of its query with a telling name, or any part of an address that gets
notices. :func:`redact` is applied to standard streams and to all outside text that a row or a
stored conversation holds.
"""

import html
import json
import os
import re
import sys
from collections.abc import Iterator
from urllib.parse import quote, quote_plus, unquote

REDACTED = "[secret]"
SHORTEST = 8
"""Characters. A shorter value is not worth hiding and occurs in ordinary text."""
_PREFIX = 16
"""Characters of a truncated secret that are redacted too."""
_NAMES = re.compile(r"KEY|TOKEN|SECRET|PASS|CRED|BEARER|PRIVATE|COOKIE", re.IGNORECASE)
_ORDINARY = frozenset(
    "127.0.0.1 anything autoresearch disabled localhost no-key-needed not-needed password postgres "
    "required something".split()
)
_PASSWORD = re.compile(r"://[^/\s:@]*:([^/\s]+)@")
_USER = re.compile(r"://([^/\s:@]{16,})@")
_QUERY = re.compile(rf"[?&][^=&\s]*(?:{_NAMES.pattern}|SIG|CODE)[^=&\s]*=([^&#\s]+)", re.IGNORECASE)
_ESCAPED_IN_JSON = "", "<>&", "<>&'=", "<>&'+`\""
"""Characters that the encoders of Python, Go, Gson and .NET write in the form ``\\u003c``, besides
those that JSON needs escaped."""

_forms: dict[str, list[str]] | None = None
"""Forms of the secrets by their first characters; None: the environment was not read yet."""


def plain(text: str) -> str:
    """Return the text with every unprintable character replaced by a space.

    Terminals and pages would obey or garble escape sequences, direction overrides and line ends.
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else " " for c in text)


def one_line(text: str, most: int) -> str:
    """Return the text's beginning on one line, of at most this many characters."""
    words = " ".join(plain(text[: 10 * most]).split())
    return words if len(words) <= most else words[: most - 1] + "…"


def redact(text: str) -> str:
    """Return the text with every form of every secret replaced by :data:`REDACTED`."""
    for start, forms in (learn() if _forms is None else _forms).items():
        if start in text:
            for form in forms:
                text = text.replace(form, REDACTED)
            for form in forms:
                text = _without_cut(text, form)
    return text


def learn() -> dict[str, list[str]]:
    """Read the secrets of this process's environment and command line, in every form."""
    global _forms  # noqa: PLW0603 (one process has one environment)
    secrets = {secret.strip() for secret in _found()}
    telling = {
        secret
        for secret in secrets
        if len(secret) >= SHORTEST
        and secret.lower() not in _ORDINARY
        and len(set(secret)) > 2  # "xxxxxxxx", "--------"
    }
    spelled = {form for secret in telling for form in _spelled(secret)}
    _forms = {}
    for form in sorted(spelled, key=len, reverse=True):
        if len(form) >= SHORTEST:
            _forms.setdefault(form[:SHORTEST], []).append(form)
    return _forms


def strip_variable(name: str) -> None:
    """Remove the white space around a variable that a library reads by itself.

    :raises ValueError: see :func:`sendable`.
    """
    if name in os.environ:
        os.environ[name] = sendable(os.environ[name].strip())


def sendable(secret: str) -> str:
    """Return a secret that fits an HTTP header.

    :raises ValueError: if it does not, with a clause that names only the kind of character.
    """
    if not secret.isascii():
        kind = "a character outside ASCII, such as a typographic quote"
    elif not secret.isprintable():
        kind = "a control character, such as a line end"
    else:
        return secret
    raise ValueError(f"holds {kind}, which no request can carry; copy the secret again")


def _found() -> Iterator[str]:
    for name, value in os.environ.items():
        if _NAMES.search(name) and "://" not in value and not value.startswith(("/", "~")):
            yield value
    # The addresses of services may hold a token anywhere.
    notified = os.environ.get("AUTORESEARCH_NOTIFY_URLS", "").split()
    for option, following in zip(sys.argv, [*sys.argv[1:], ""], strict=True):
        if option == "--notify":
            notified.append(following)
        elif option.startswith("--notify="):
            notified.append(option.partition("=")[2])
    for url in notified:
        address = url.partition("://")[2]
        for part in (address, *re.split(r"[/:@?&=,;]+", address)):
            yield from (part, unquote(part))
    for text in (*os.environ.values(), *sys.argv):
        for found in (*_PASSWORD.findall(text), *_USER.findall(text), *_QUERY.findall(text)):
            yield from (found, unquote(found))


def _spelled(secret: str) -> Iterator[str]:
    """Yield the forms in which a library or a server may print a secret."""
    raw = secret.encode("utf-8", "surrogateescape")
    safe = raw.decode("utf-8", "replace")
    yield from (secret, repr(secret)[1:-1], repr(raw)[2:-1], ascii(secret)[1:-1])
    yield json.dumps(secret)[1:-1].replace("/", "\\/")
    for escaped in _ESCAPED_IN_JSON:
        for only_ascii in (True, False):
            text = "".join(
                f"\\u{ord(one):04x}"
                if one in escaped
                else json.dumps(one, ensure_ascii=only_ascii)[1:-1]
                for one in secret
            )
            yield text
            yield re.sub(r"\\u....", lambda found: f"\\u{found[0][2:].upper()}", text)
    yield from (html.escape(secret), html.escape(secret, quote=False))
    yield html.escape(secret).replace("&quot;", "&#34;").replace("&#x27;", "&#39;")
    for encoded in (quote(safe), quote(safe, safe=""), quote_plus(safe)):
        yield encoded
        yield re.sub("%[0-9A-F]{2}", lambda match: match[0].lower(), encoded)


def _without_cut(text: str, form: str) -> str:
    """Return the text without prefixes of a form that a message's limit cut off."""
    start = 0
    while (start := text.find(form[:SHORTEST], start)) >= 0:
        size = SHORTEST
        while size < len(form) and text[start + size : start + size + 1] == form[size]:
            size += 1
        if size >= _PREFIX or start + size == len(text):
            text = text[:start] + REDACTED + text[start + size :]
        start += SHORTEST
    return text
