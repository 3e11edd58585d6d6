"""Explain every failure of an endpoint in one sentence.

EndpointError           no reply: unreachable, failing, or silent past its deadline
  RefusedError          the same request would fail the same way again
    EndedError          so would any request, until a person changes something
    RejectedError       this form of the question is refused
    ContextError        the question is longer than the server's context
"""

import contextlib
import math
import re
from collections.abc import Callable, Container

from openai import APIStatusError

from agent.proposers.base import ProposerError
from autoresearch.safe_text import one_line

TRIES = 4
"""Tries of a request that gets no whole response or HTTP 500: the server is starting, absent or
broken."""
SAID_CHARACTERS = 240
"""Most characters of a server's explanation to repeat."""
MIN_CONTEXT = 256
"""Fewest tokens that a number in a refusal can mean as a context."""
_NUMBER = r"(\d+(?:[,_]\d{3})*)(k?)\b"
_LIMIT = re.compile(
    rf"n_ctx\W{{1,4}}{_NUMBER}"
    r"|(?:\b(?:maximum|max\b|context|limit|allowed|at most|(?:less|longer|greater|more) than|exceed"
    rf"|max_\w*len|max_num_tokens)|<=|>|\[[01],)[^\d\"{{}}]{{0,40}}{_NUMBER}"
    rf"|{_NUMBER} (?:tokens? )?(?:maximum|max\b|context|limit)",
    re.IGNORECASE,
)
"""Numbers that a refusal gives as the context, such as "maximum context length is 8192"."""


class EndpointError(ProposerError):
    """The endpoint gave no reply: unreachable, refusing, failing, or silent past its deadline."""

    tries: float = math.inf
    """Most tries of a request that fails this way."""
    cost_usd: float | None = None
    """Money that the question cost, if reported."""
    retry_after_s = 0.0
    """Seconds that the server asks to wait before the next try."""
    words = ""
    """All that the server said."""


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


_SHORTER = "lower --prompt-tokens, or start the server with a longer context"
_CREDIT = "add credit or choose another endpoint, then start the loop again"
_CHECK_KEY = "check AUTORESEARCH_LLM_API_KEY"
_LATER = "it is retried at the next iteration"
_QUESTION = "check AUTORESEARCH_LLM_MODEL, or lower --prompt-tokens below the model's context"
_LOG = "see the server's log"
_FAILURES: tuple[tuple[type[EndpointError], Container[int], str, str], ...] = (
    (
        EndpointError,
        (0,),
        "timeout",
        "check that it is not overloaded, or raise AUTORESEARCH_LLM_TIMEOUT_S and "
        "AUTORESEARCH_LLM_DEADLINE_S",
    ),
    (EndpointError, (0,), "gaierror", "check the host's name in AUTORESEARCH_LLM_BASE_URL"),
    (
        RefusedError,
        (0,),
        "certificate_verify|CertificateError",
        "name the certificate of its authority in SSL_CERT_FILE, and ask the host by the name in "
        "its own certificate",
    ),
    (
        RefusedError,
        (0,),
        "SSL",
        "if it speaks no TLS, begin AUTORESEARCH_LLM_BASE_URL with http://",
    ),
    (EndpointError, (0,), "ProxyError", "check the proxy in HTTP_PROXY, HTTPS_PROXY and ALL_PROXY"),
    (EndpointError, (0,), "ConnectionRefused", "start the server, or check the port"),
    (EndpointError, (0,), "DecodingError", "have the server send its replies uncompressed"),
    (EndpointError, (0,), "disconnected|ConnectionReset|BrokenPipe", f"it hung up; {_LOG}"),
    (RefusedError, (0,), "complete", f"its reply broke off; {_LOG}"),
    (
        RefusedError,
        (0,),
        "ProtocolError",
        "check the port; if it speaks TLS, begin AUTORESEARCH_LLM_BASE_URL with https://",
    ),
    (EndpointError, (0,), "", "check the network between this machine and the server"),
    (EndedError, (402,), "", _CREDIT),
    (RejectedError, (400, 422, 500), "schema|response_format|grammar|enum", _QUESTION),
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
        r"|is not (a|an) (chat|instruct|text.?generation)|\bv1/responses|responses (api|endpoint)"
        r"|(is an?|only supports?) (embedding|rerank|moderation|image|speech|transcription)",
        "name a model that answers at /v1/chat/completions in AUTORESEARCH_LLM_MODEL",
    ),
    (
        ContextError,
        (400, 422, 500),
        r"context.?(length|window|size|limit)|max_seq_len|max_num_tokens|max_model_len|token limit"
        r"|too (long|many tokens)|(request|entity|prompt|input|content|payload)\w* too large"
        r"|tokens\W+is too large|reduce (the|your) (length|prompt|input|messages?)"
        r"|range of input length|max\w* (prompt|input|sequence|total) (length|tokens)"
        r"|(prompt|input|request|tokens?|messages|length)\b.{0,80}?"
        r"(exceed|(longer|greater|more|less) than|<=|too large|at most \d)",
        _SHORTER,
    ),
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
    (RefusedError, (401,), "", _CHECK_KEY),
    (RefusedError, (403, 407), "", f"{_CHECK_KEY}, and what a proxy in HTTP_PROXY lets through"),
    (
        RefusedError,
        (404, 405),
        "",
        "check that AUTORESEARCH_LLM_BASE_URL ends in /v1, that the model exists, and that the "
        "server has /v1/chat/completions",
    ),
    (RefusedError, range(1000), "", _QUESTION),
)
"""What a failure means, its HTTP statuses (0: no whole response), words of the server or of the
exceptions in any case, and advice; the first row that fits counts."""


def failure(where: str, error: BaseException, redact: Callable[[str], str]) -> EndpointError:
    """Return what an exception of the ``openai`` package means.

    :param where: names the endpoint.
    :param redact: removes secrets.
    """
    words, status, retry_after_s = "", 0, "0"
    if isinstance(error, APIStatusError):
        response = error.response
        what = f"answered HTTP {response.status_code}"
        status = 400 if response.is_success else response.status_code
        said = error_text(error.body) or response.text or "no reason given"
        words = f"{said} {response.text[:4000]}"
        retry_after_s = response.headers.get("retry-after", "0")
    else:
        what, said = "gave no whole reply", ""
        below: BaseException | None = error
        while below is not None:
            words, said = f"{words} {below!r}", str(below) or said
            below = below.__cause__ or below.__context__
    words = redact(words)
    kind, fix = next(
        (kind, fix)
        for kind, statuses, pattern, fix in _FAILURES
        if status in statuses and re.search(pattern, words, re.IGNORECASE | re.DOTALL)
    )
    failed = kind(f"{where} {what} ({one_line(redact(said), SAID_CHARACTERS)}); {fix}")
    failed.words = words
    if status in (0, 500) and kind in (EndpointError, RejectedError):
        failed.tries = TRIES
    with contextlib.suppress(ValueError):
        failed.retry_after_s = float(retry_after_s)
    if isinstance(failed, ContextError):
        failed.context = _limit(words)
    return failed


def _limit(words: str) -> int:
    """Return the context that a refusal reports; 0 if it reports none."""
    for found in _LIMIT.finditer(words):
        number, unit = [group for group in found.groups() if group is not None]
        tokens = int(re.sub(r"\D", "", number)) * (1000 if unit else 1)
        if MIN_CONTEXT <= tokens < 10**9:
            return tokens
    return 0


def error_text(body: object) -> str:
    """Return the explanation in an error's body, in OpenAI's form or in that of another server."""
    if isinstance(body, list):
        return " ".join(filter(None, map(error_text, body)))
    if isinstance(body, dict):
        names = ("message", "detail", "error", "msg", "errors", "code", "type")
        return next(filter(None, (error_text(body.get(name)) for name in names)), "")
    return body if isinstance(body, str) else ""
