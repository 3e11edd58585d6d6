"""Explain every failure of an endpoint in one sentence, and say how often to try again.

EndpointError           no reply: unreachable, failing, or silent past its deadline
  RefusedError          the same request would fail the same way again
    EndedError          so would any request, until a person changes something
    RejectedError       this form of the question is refused
    ContextError        the question is longer than the server's context
"""

import contextlib
import math
import re
import socket
import ssl
import time
from collections.abc import Callable, Container
from email.utils import parsedate_to_datetime

import httpx2
from openai import APIStatusError

from agent.proposers.base import ProposerError
from agent.proposers.llm.bodies import error_text, quoted

TRIES = 4
"""Tries of a request that gets no connection or HTTP 500: the server is starting, absent or
broken."""
SAID_CHARACTERS = 240
"""Most characters of a server's explanation to repeat."""
MIN_CONTEXT = 256
"""Fewest tokens that a number in a refusal can mean as a context."""
ROLES = re.compile(r"\bsystem\b.*\b(role|message|prompt)|\broles?\b", re.IGNORECASE | re.DOTALL)
"""Phrases by which servers say that their chat template has no system role."""
_FORM = re.compile(r"schema|response_format|grammar|enum", re.IGNORECASE)
"""Words of refusals of a form, whatever they say of lengths."""
_NUMBER = r"(\d+(?:[,_]\d{3})*)(k?)\b"
_LIMIT = re.compile(
    rf"n_ctx\W{{1,4}}{_NUMBER}"
    r"|(?:\b(?:maximum|max\b|context|limit|allowed|at most|(?:less|longer|greater|more) than|exceed"
    rf"|max_\w*len|max_num_tokens)|<=|>|\[[01],)[^\d\"{{}}]{{0,40}}{_NUMBER}"
    rf"|{_NUMBER} (?:tokens? )?(?:maximum|max\b|context|limit)",
    re.IGNORECASE,
)
"""Numbers that a refusal gives as the context, such as "maximum context length is 8192"."""
_RESPONSES = re.compile(r"\bv1/responses|responses (api|endpoint)", re.IGNORECASE)
_ROUTE = re.compile(
    r"not found|cannot post|no (such )?(route|page|endpoint)|invalid url"
    r"|unknown (url|path|endpoint)|method|no reason given|<html",
    re.IGNORECASE,
)
"""Phrases by which servers say that they have no such page."""
_LOG = "see the server's log"
_FAULTS: tuple[tuple[type[BaseException], str, str, float], ...] = (
    (socket.gaierror, "", "check the host's name in AUTORESEARCH_LLM_BASE_URL", TRIES),
    (
        ssl.SSLCertVerificationError,
        "",
        "name the certificate of its authority in SSL_CERT_FILE, and ask the host by the name in "
        "its own certificate",
        1,
    ),
    (ssl.SSLError, "", "if it speaks no TLS, begin AUTORESEARCH_LLM_BASE_URL with http://", 1),
    (httpx2.ProxyError, "", "check the proxy in HTTP_PROXY, HTTPS_PROXY and ALL_PROXY", TRIES),
    (ConnectionRefusedError, "", "start the server, or check the port", TRIES),
    (httpx2.DecodingError, "", "have the server send its replies uncompressed", TRIES),
    (httpx2.RemoteProtocolError, "disconnected", f"it hung up; {_LOG}", TRIES),
    (httpx2.RemoteProtocolError, "complete", f"its reply broke off; {_LOG}", 1),
    (
        httpx2.ProtocolError,
        "",
        "check the port; if it speaks TLS, begin AUTORESEARCH_LLM_BASE_URL with https://",
        1,
    ),
    (ConnectionError, "", f"it hung up; {_LOG}", TRIES),
    (Exception, "", "check the network between this machine and the server", TRIES),
)
"""Exceptions, a word in their text, advice, and most tries of a request that fails this way."""


class EndpointError(ProposerError):
    """The endpoint gave no reply: unreachable, refusing, failing, or silent past its deadline."""

    tries: float = math.inf
    """Most tries of a request that fails this way."""
    cost_usd: float | None = None
    """Money that the question cost, if reported."""
    retry_after_s = 0.0
    """Seconds that the server asks to wait before the next try."""
    said = ""
    """The server's explanation."""
    param = ""
    """The refused parameter, if named."""
    lacks_chat = False
    """Whether the server may not have ``/v1/chat/completions``, but ``/v1/responses``."""


class RefusedError(EndpointError):
    """The same request would fail the same way again."""

    tries: float = 1


class EndedError(RefusedError):
    """No request can succeed until a person changes something."""


class RejectedError(RefusedError):
    """The server refuses this question."""


class ContextError(RefusedError):
    """The question is longer than the server's context."""

    context = 0
    """Most tokens of a question and its reply together; 0 if the server does not say."""


_TOO_LONG = (
    r"context.?(length|window|size|limit)|max_seq_len|max_num_tokens|max_model_len|token limit"
    r"|too (long|many tokens)|(request|entity|prompt|input|content|payload)\w* too large"
    r"|tokens\W+is too large|reduce (the|your) (length|prompt|input|messages?)"
    r"|range of input length|max\w* (prompt|input|sequence|total) (length|tokens)"
    r"|(prompt|input|request|tokens?|messages|length)\b.{0,80}?"
    r"(exceed|(longer|greater|more|less) than|<=|too large|at most \d)"
)
_SHORTER = "lower --prompt-tokens, or start the server with a longer context"
_CREDIT = "add credit or choose another endpoint, then start the loop again"
_CHECK_KEY = "check AUTORESEARCH_LLM_API_KEY"
_LATER = "it is retried at the next iteration"
_QUESTION = "check AUTORESEARCH_LLM_MODEL, or lower --prompt-tokens below the model's context"
_REFUSALS: tuple[tuple[type[EndpointError], Container[int], str, str], ...] = (
    (EndedError, (402,), "", _CREDIT),
    (ContextError, (413,), "", _SHORTER),
    (ContextError, (429,), r"(request|input|prompt)\w* too large", _SHORTER),
    (
        EndpointError,
        (429,),
        r"\A(?!.*insufficient_quota).*((retry|try again) (in|after) (about )?\d|per[ _-]?minute)",
        _LATER,
    ),
    (
        EndedError,
        (400, 401, 403, 429),
        r"insufficient[_ ](quota|balance|credit|fund)|credit balance|billing|payment required"
        r"|(balance|credits?|quota) (is |are )?(exhausted|depleted|used up|too low)"
        r"|exceeded your current|arrear|good standing|余额不足"
        r"|(account|organization|project)\b.{0,40}(deactivated|suspended|disabled|archived)",
        _CREDIT,
    ),
    (
        EndedError,
        (400, 404, 405, 422, 501),
        r"not a chat model|(not|n't) support (the )?(chat|v1/chat|/v1/chat|conversation)"
        r"|not (appear to be )?a generat|chat\W?completions?\W.{0,20}not supported"
        r"|is not (a|an) (chat|instruct|text.?generation)"
        r"|(is an?|only supports?) (embedding|rerank|moderation|image|speech|transcription)",
        "name a model that chats in AUTORESEARCH_LLM_MODEL",
    ),
    (ContextError, (400, 422, 500), _TOO_LONG, _SHORTER),
    (
        RefusedError,
        (400, 422),
        r"\bapi[ _-]?key|\b(un)?authoriz|\bauthenticat|\binvalid (key|token)|\bcredentials?\b",
        _CHECK_KEY,
    ),
    (RefusedError, (400, 415, 422), "content_filter", _QUESTION),
    (RejectedError, (400, 415, 422), "", _QUESTION),
    (RejectedError, (500, 501), "", _LATER),
    (EndpointError, (429, *range(500, 600)), "", _LATER),
    (RefusedError, range(300, 400), "", "set AUTORESEARCH_LLM_BASE_URL to the final URL"),
    (RefusedError, (401, 403), "", _CHECK_KEY),
    (
        RefusedError,
        (404,),
        "",
        "check that AUTORESEARCH_LLM_BASE_URL ends in /v1 and that the model exists",
    ),
    (RefusedError, range(1000), "", _QUESTION),
)
"""What a refusal means, its HTTP statuses, words of the server in any case, and advice; the first
row that fits counts."""


def refusal(where: str, error: APIStatusError, redact: Callable[[str], str]) -> EndpointError:
    """Return the failure that a response means which is not a success.

    :param where: names the endpoint.
    :param redact: removes secrets from the server's words.
    """
    response = error.response
    status = 400 if response.is_success else response.status_code
    explained = redact(error_text(error.body))
    raw = redact(response.text[:4000])
    said = quoted(explained, SAID_CHARACTERS) or quoted(raw) or "no reason given"
    words = f"{error.code} {error.type} {explained} {raw}"
    kind, fix = next(
        (kind, fix)
        for kind, statuses, pattern, fix in _REFUSALS
        if status in statuses
        and re.search(pattern, words, re.IGNORECASE | re.DOTALL)
        and not (pattern == _TOO_LONG and _FORM.search(explained))
    )
    failed = kind(f"{where} answered HTTP {status} ({said}); {fix}")
    failed.retry_after_s = retry_after_s(response)
    failed.said, failed.param = said, error.param or ""
    is_route = status in {404, 405} and "model" not in said.lower() and _ROUTE.search(said)
    failed.lacks_chat = bool(is_route or _RESPONSES.search(words))
    if isinstance(failed, ContextError):
        failed.context = _limit(f"{explained} {raw}")
    if isinstance(failed, RejectedError) and status == 500 and not ROLES.search(said):
        failed.tries = TRIES
    return failed


def _limit(words: str) -> int:
    """Return the context that a refusal reports; 0 if it reports none."""
    for found in _LIMIT.finditer(words):
        number, unit = [group for group in found.groups() if group is not None]
        tokens = int(re.sub(r"\D", "", number)) * (1000 if unit else 1)
        if MIN_CONTEXT <= tokens < 10**9:
            return tokens
    return 0


def silence(
    where: str, error: BaseException, allowed_s: float, redact: Callable[[str], str]
) -> EndpointError:
    """Return the failure of a request that got no whole response in these seconds."""
    chain = [error]
    while (under := chain[-1].__cause__ or chain[-1].__context__) is not None:
        chain.append(under)
    if any(isinstance(each, TimeoutError | httpx2.TimeoutException) for each in chain):
        return EndpointError(
            f"{where} did not answer within {allowed_s:g} s; check that it is not "
            "overloaded, or raise AUTORESEARCH_LLM_TIMEOUT_S"
        )
    cause = quoted(redact(str(chain[-1]) or str(error)), SAID_CHARACTERS)
    words = " ".join(map(str, chain))
    fix, tries = next(
        (fix, tries)
        for kind, word, fix, tries in _FAULTS
        if word in words and any(isinstance(each, kind) for each in chain)
    )
    message = f"{where} gave no whole reply ({cause}); {fix}"
    failed = RefusedError(message) if tries == 1 else EndpointError(message)
    failed.tries = tries
    return failed


def retry_after_s(response: httpx2.Response) -> float:
    """Return the seconds that a response asks to wait, in either form of RFC 9110, 10.2.3; 0 if it
    asks for none."""
    header = response.headers.get("retry-after", "")
    with contextlib.suppress(ValueError):
        return float(header)
    with contextlib.suppress(ValueError, TypeError, OverflowError):
        return parsedate_to_datetime(header).timestamp() - time.time()
    return 0.0
