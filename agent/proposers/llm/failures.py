"""Explain every failure of an endpoint in one sentence, and say how often to try again."""

import contextlib
import math
import re
import ssl
import time
from collections.abc import Callable
from email.utils import parsedate_to_datetime

import httpx2
from pydantic import AliasChoices, AliasPath, Field

from agent.proposers.base import ProposerError
from agent.proposers.llm.completions import Count, Lenient, Text, quoted

TRIES = 4
"""Tries of a request that gets no connection or HTTP 500: the server is starting, absent or
broken."""
SAID_CHARACTERS = 240
"""Most characters of a server's explanation to repeat."""
ROLES = re.compile(r"\bsystem\b.*\b(role|message|prompt)|\broles?\b", re.IGNORECASE | re.DOTALL)
"""Phrases by which servers say that their chat template has no system role."""

_CONTEXT = re.compile(
    r"(?:context length (?:is|of)|context size|context window (?:is|of))\D{0,12}(\d{3,8})",
    re.IGNORECASE,
)
_KEY = re.compile(
    r"\bapi[ _-]?key|\b(un)?authoriz|\bauthenticat|\binvalid (key|token)|\bcredentials?\b",
    re.IGNORECASE,
)
"""Phrases by which servers refuse a key with HTTP 400, as Google's does."""
_CHECK_KEY = "check AUTORESEARCH_LLM_API_KEY"
_LATER = "it is retried at the next iteration"
_QUESTION = "check AUTORESEARCH_LLM_MODEL, or lower --prompt-tokens below the model's context"
_FIXES = {
    **dict.fromkeys((301, 302, 303, 307, 308), "set AUTORESEARCH_LLM_BASE_URL to the final URL"),
    **dict.fromkeys((401, 402, 403), _CHECK_KEY),
    404: "check that AUTORESEARCH_LLM_BASE_URL ends in /v1 and that the model exists",
    429: _LATER,
}
"""Advice by HTTP status."""


class EndpointError(ProposerError):
    """The endpoint gave no reply: unreachable, refusing, failing, or silent past its deadline."""

    tries: float = math.inf
    """Most tries of a request that fails this way."""
    retry_after_s = 0.0
    """Seconds that the server asks to wait before the next try."""


class RefusedError(EndpointError):
    """The same request would fail the same way again."""

    tries: float = 1


class RejectedError(RefusedError):
    """The server refuses this question.

    :ivar said: the server's explanation.
    :ivar param: the refused parameter, if named.
    """

    said = ""
    param = ""


class ContextError(RefusedError):
    """The question is longer than the server's context, which it reports.

    :ivar context: most tokens of a question and its reply together.
    """

    context = 0


class _Refusal(Lenient):
    """The body of a refusal, in OpenAI's form or in that of a local server."""

    said: Text = Field(
        "",
        validation_alias=AliasChoices(AliasPath("error", "message"), "message", "detail", "error"),
    )
    param: Text = Field("", validation_alias=AliasChoices(AliasPath("error", "param"), "param"))
    n_ctx: Count = Field(None, validation_alias=AliasChoices(AliasPath("error", "n_ctx"), "n_ctx"))


def refusal(where: str, response: httpx2.Response, redact: Callable[[str], str]) -> EndpointError:
    """Return the error of a response that is not a success.

    :param where: names the endpoint.
    :param redact: removes secrets from the server's words.
    """
    status, body = response.status_code, _Refusal.read(response.content)
    raw = response.content.decode("utf-8", "replace")  # in no encoding that the server names
    own = quoted(redact(body.said), SAID_CHARACTERS)
    said = own or quoted(redact(raw)) or "no reason given"
    found = _CONTEXT.search(said)
    context = body.n_ctx or (int(found[1]) if found else None)
    fix = _FIXES.get(status, _LATER if status >= 500 else _QUESTION)
    if context is not None:
        fix = "lower --prompt-tokens, or start the server with a longer context"
    is_about_key = status in {400, 422} and context is None and _KEY.search(said) is not None
    if is_about_key:
        fix = _CHECK_KEY
    message = f"{where} answered HTTP {status} ({said}); {fix}"
    if is_about_key or status not in {400, 413, 415, 422, 500, 501}:
        is_final = status != 429 and status < 500
        error = RefusedError(message) if is_final else EndpointError(message)
        error.retry_after_s = _retry_after_s(response.headers.get("retry-after", ""))
        return error
    if context is not None:
        too_long = ContextError(message)
        too_long.context = context
        return too_long
    rejected = RejectedError(message)
    rejected.said, rejected.param = said, body.param
    rejected.tries = TRIES if status == 500 and not ROLES.search(said) else 1
    return rejected


def silence(
    where: str, error: Exception, allowed_s: float, redact: Callable[[str], str]
) -> EndpointError:
    """Return the error of a request that got no whole response in these seconds."""
    if isinstance(error, TimeoutError):
        return EndpointError(
            f"{where} did not answer within {allowed_s:g} s; check that it is not "
            "overloaded, or raise AUTORESEARCH_LLM_TIMEOUT_S"
        )
    root: BaseException = error
    while (under := root.__cause__ or root.__context__) is not None:
        root = under
    cause = quoted(redact(str(root) or str(error)), SAID_CHARACTERS)
    is_protocol = isinstance(error, httpx2.ProtocolError) and "disconnected" not in str(error)
    message = f"{where} gave no whole reply ({cause}); check that it runs, and its certificate"
    if is_protocol or isinstance(root, ssl.SSLError):
        return RefusedError(message)
    absent = EndpointError(message)
    absent.tries = TRIES
    return absent


def _retry_after_s(header: str) -> float:
    """Return seconds from either form of RFC 9110, 10.2.3; 0 if invalid."""
    with contextlib.suppress(ValueError):
        return float(header)
    with contextlib.suppress(ValueError, TypeError, OverflowError):
        return parsedate_to_datetime(header).timestamp() - time.time()
    return 0.0
