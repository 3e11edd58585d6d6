"""Send requests to a chat endpoint: one base URL, one retry policy, no secret shown."""

from __future__ import annotations

import re
import time
from typing import Any, TypeAlias

import httpx2
import tenacity

from agent.proposers.llm.completions import ROLES, quoted, read_json
from agent.proposers.llm.patience import Patience, Standing, retry_after_s
from agent.proposers.llm.transport import (
    EndpointError,
    RefusedError,
    Transport,
    check_port,
    is_loopback,
    reason_of,
)
from autoresearch.errors import SettingsError
from autoresearch.redaction import redact

SAID_CHARACTERS = 240
"""Most characters of a server's explanation to repeat."""
CONNECTION_TRIES = 4
"""Tries at a server that refuses connections: it is starting, or absent."""

Json: TypeAlias = dict[str, Any]

_CONTEXT = re.compile(
    r"(?:context length (?:is|of)|context size|context window (?:is|of))\D{0,12}(\d{3,8})",
    re.IGNORECASE,
)
_PASTED = re.compile(r"(/chat/completions|/completions|/models|/embeddings)?/*$", re.IGNORECASE)


class RejectedError(RefusedError):
    """The server refuses this question.

    :ivar status: the HTTP status.
    :ivar said: the server's explanation.
    :ivar param: the refused parameter, if named.
    :ivar context: the server's context in tokens, if reported.
    """

    def __init__(self, message: str, status: int, said: str, body: Json) -> None:
        super().__init__(message)
        self.status = status
        self.said = said
        self.param = body.get("param")
        self.context = _context_in(body, said)


class Wire:
    """Sends requests to one base URL, each retried as long as patience and the endpoint's history
    allow.

    Timeouts, 429 and 5xx are retried with jittered exponential back-off (or after the server's
    Retry-After, if longer) until the deadline, a refused connection a few times. Everything else is
    final.

    :param base_url: see :func:`parsed`; credentials in it are sent and never shown.
    :param api_key: sent to this server; no error, repr, log or stored reply shows it.
    :raises SettingsError: on a base_url, key, proxy or certificates that cannot be used.
    """

    def __init__(self, base_url: str, api_key: str | None, patience: Patience) -> None:
        url = parsed(base_url)
        self.base_url = str(url.copy_with(userinfo=b"", query=None, fragment=None))
        """Base URL without credentials or query."""
        if api_key and not (api_key.isascii() and api_key.isprintable()):
            raise SettingsError(
                "AUTORESEARCH_LLM_API_KEY has a character that no header can carry; copy it again"
            )
        self.patience = patience
        self._secrets = [secret for secret in (api_key, url.password) if secret]
        self._standing = Standing()
        self._transport = Transport(
            url, {"Authorization": f"Bearer {api_key or 'none'}"}, f"the endpoint {self.base_url}"
        )

    def patiently(
        self, method: str, path: str, body: Json | None = None, *, failures: int | None = None
    ) -> bytes:
        """Return the body of a request, retried as long as allowed.

        :param failures: number of HTTP 500 answers that count as passing faults; after that it is
            the server's answer to this question. None: as long as the deadline allows.
        :raises RejectedError: if the server refuses the question.
        :raises EndpointError: if no body came for another reason.
        """
        allowance = self._standing.allowance(self.patience, self._is_well)
        ends = time.monotonic() + allowance.deadline_s
        answers: list[httpx2.Response] = []

        def once() -> httpx2.Response:
            began = time.monotonic()
            timeout_s = min(allowance.timeout_s, max(ends - began, 0.001))
            answers.append(self._transport.exchange(method, path, timeout_s, body))
            if answers[-1].is_success:
                self._standing.slowest_s = max(self._standing.slowest_s, time.monotonic() - began)
            return answers[-1]

        def may_pass(state: tenacity.RetryCallState) -> bool:
            error = state.outcome.exception() if state.outcome else None
            if isinstance(error, httpx2.TransportError):
                return state.attempt_number < CONNECTION_TRIES
            passes = error is None and _is_passing(answers, failures)
            return passes or isinstance(error, TimeoutError)

        stop = tenacity.stop_before_delay(allowance.deadline_s)
        retrying = tenacity.Retrying(
            retry=may_pass,
            wait=lambda state: max(self.patience.wait(state), _retry_after_s(state)),
            stop=stop if allowance.retries else tenacity.stop_after_attempt(1),
            retry_error_callback=lambda state: state.outcome and state.outcome.result(),
        )
        self._standing.unanswered += 1  # until an answer arrives
        try:
            response = retrying(once)
        except (TimeoutError, httpx2.TransportError) as error:
            if not answers:
                raise self._silence(error, allowance.deadline_s) from None
            response = answers[-1]  # its last answer is more informative than the silence since
        except EndpointError as error:  # it may quote a malformed reply that echoes a header
            self._standing.unanswered = 0
            raise type(error)(self.redacted(str(error))) from None
        if response.is_success:
            self._standing.unanswered = 0
            return response.content
        raise self._refusal(response, is_final=not _is_passing(answers, failures))

    def redacted(self, text: str) -> str:
        """Return the text without this wire's secrets."""
        for secret in self._secrets:
            text = text.replace(secret, "[secret]")
        return redact(text)

    def _is_well(self) -> bool:
        """Check the server's health between iterations without computation: list the models, and on
        NIM ask whether the model is loaded."""
        for path in ("/models", "/health/ready"):
            try:
                response = self._transport.exchange("GET", path, self.patience.health_check_s)
            except (TimeoutError, httpx2.TransportError, EndpointError):
                return False
            if response.status_code >= 500 or response.status_code == 429:
                return False
        return True

    # --- what to say when it goes wrong ---------------------------------------------------------

    def _refusal(self, response: httpx2.Response, *, is_final: bool) -> EndpointError:
        status = response.status_code
        whole, body = _said_with(response)
        said = self.redacted(whole)[:SAID_CHARACTERS]
        fix = "it is retried at the next iteration"
        if status in {401, 402, 403}:
            fix = "check AUTORESEARCH_LLM_API_KEY"
        elif status == 404 or status < 400:
            fix = "check that AUTORESEARCH_LLM_BASE_URL ends in /v1 and that the model exists"
        elif _context_in(body, said) is not None:
            fix = "lower --prompt-tokens, or start the server with a longer context"
        elif status < 500 and status != 429:
            fix = "check AUTORESEARCH_LLM_MODEL, and lower --prompt-tokens if the prompt is longer"
            fix += " than its context"
        message = f"{self._transport.where} answered HTTP {status} ({said}); {fix}"
        if not is_final:
            return EndpointError(message)
        self._standing.unanswered = 0
        if status in {400, 413, 415, 422, 500, 501}:
            return RejectedError(message, status, said, body)
        return RefusedError(message)

    def _silence(self, error: Exception, allowed_s: float) -> EndpointError:
        where = self._transport.where
        if isinstance(error, TimeoutError):
            return EndpointError(
                f"{where} did not answer within {allowed_s:g} s; check that it is not overloaded, "
                "or raise AUTORESEARCH_LLM_TIMEOUT_S"
            )
        cause = self.redacted(reason_of(error))
        return EndpointError(f"{where} cannot be reached ({cause:.200}); check that it is running")


def parsed(base_url: str) -> httpx2.URL:
    """Parse a base URL in any of its usual forms: up to ``/v1``, without it, without a scheme, or
    with the path of one of its pages.

    :raises SettingsError: if it is invalid.
    """
    given = base_url.strip().strip("\"'")
    try:
        if "://" not in given:
            bare = httpx2.URL(f"http://{given}")
            is_near = bare.port is not None or is_loopback(bare.host)
            if is_near or "." in bare.host:  # any other word is a misspelled scheme
                given = f"{'http' if is_near else 'https'}://{given}"
        url = httpx2.URL(given)
        check_port(url)
    except httpx2.InvalidURL as error:
        raise SettingsError(
            f"AUTORESEARCH_LLM_BASE_URL is not a URL ({error}); give one like http://localhost:8000/v1"
        ) from None
    if url.scheme not in {"http", "https"} or not url.host:
        raise SettingsError(
            f"AUTORESEARCH_LLM_BASE_URL has no http:// and host "
            f"({str(url.copy_with(userinfo=b''))!r:.80}); give one like http://localhost:8000/v1"
        )
    path = _PASTED.sub("", url.path) or "/v1"
    return url.copy_with(path="/v1" if path == "/V1" else path, fragment=None)


def _is_passing(answers: list[httpx2.Response], failures: int | None) -> bool:
    """Return whether the last answer is a fault that may pass."""
    status = answers[-1].status_code
    if status == 500:
        faults = sum(answer.status_code == 500 for answer in answers)
        is_template = ROLES.search(_said_with(answers[-1])[0])
        return not is_template and (failures is None or faults < failures)
    return status == 429 or (status > 500 and status != 501)


def _retry_after_s(state: tenacity.RetryCallState) -> float:
    if state.outcome is None or state.outcome.failed:
        return 0.0
    return retry_after_s(state.outcome.result().headers.get("retry-after", "")) or 0.0


def _said_with(response: httpx2.Response) -> tuple[str, Json]:
    """Return a server's explanation of a refusal from any usual place, and its table.

    OpenAI's form is ``{"error": {"message": …}}``; FastAPI's, and so many a local server's, is
    ``{"detail": …}`` with a sentence or a list of faults.
    """
    read = read_json(response.content)
    body = read if isinstance(read, dict) else {}
    inner = body.get("error")
    body = inner if isinstance(inner, dict) else body
    said = body.get("message") or body.get("detail") or body.get("error")
    if isinstance(said, list):
        said = "; ".join(_problem(item) for item in said)
    if not isinstance(said, str) or not said:
        return quoted(response.content) or "no reason given", body
    return " ".join(said.split()), body


def _problem(item: object) -> str:
    if not isinstance(item, dict):
        return str(item)
    loc = item.get("loc")
    place = ".".join(str(part) for part in loc if part != "body") if isinstance(loc, list) else ""
    return f"{place}: {item.get('msg', item)}" if place else str(item.get("msg", item))


def _context_in(body: Json, said: str) -> int | None:
    """Return the context length, from the refusal of a question that is too long."""
    reported = body.get("n_ctx")
    if isinstance(reported, int) and reported > 0:
        return reported
    found = _CONTEXT.search(said)
    return int(found[1]) if found else None
