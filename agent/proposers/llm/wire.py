"""The wire to a chat endpoint: one base URL, one retry policy, no secret shown."""

from __future__ import annotations

import re
import time
from typing import Any, TypeAlias

import httpx2
import tenacity

from agent.proposers.llm.completions import quoted, read_json
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
"""The most that is repeated of what a server says with a refusal."""
CONNECTION_TRIES = 4
"""Tries at a server that takes no connection: it is starting, or it is not there."""

Json: TypeAlias = dict[str, Any]

_CONTEXT = re.compile(
    r"(?:context length (?:is|of)|context size|context window (?:is|of))\D{0,12}(\d{3,8})",
    re.IGNORECASE,
)
ROLES = re.compile(r"\bsystem\b.*\b(role|message|prompt)|\broles?\b", re.IGNORECASE | re.DOTALL)
"""How servers say that their chat template knows no system role."""
_PASTED = re.compile(r"(/chat/completions|/completions|/models|/embeddings)?/*$", re.IGNORECASE)


class RejectedError(RefusedError):
    """The server will not serve this question as it is put.

    :ivar status: the HTTP status.
    :ivar said: what the server says.
    :ivar param: the parameter that it refuses, where it names one.
    :ivar context: the tokens that the server says its context holds, where it says so.
    """

    def __init__(self, message: str, status: int, said: str, body: Json) -> None:
        super().__init__(message)
        self.status = status
        self.said = said
        self.param = body.get("param")
        self.context = _context_in(body, said)


class Wire:
    """Requests to one base URL, each tried as long as patience and the endpoint's record allow.

    Timeouts, 429 and 5xx are tried again with jittered exponential back-off (or after the server's
    Retry-After, where that is longer) until the deadline, a refused connection a few times. All
    else is final.

    :param base_url: see :func:`parsed`; credentials in it are sent and never shown.
    :param api_key: sent to this server; no error, repr, log or kept reply shows it.
    :raises SettingsError: on a base_url, key, proxy or certificates that cannot be used.
    """

    def __init__(self, base_url: str, api_key: str | None, patience: Patience) -> None:
        url = parsed(base_url)
        self.base_url = str(url.copy_with(userinfo=b"", query=None, fragment=None))
        """Without credentials or query."""
        if api_key and not (api_key.isascii() and api_key.isprintable()):
            raise SettingsError(
                "AUTORESEARCH_LLM_API_KEY holds a character that no header can carry; paste it anew"
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
        """The body of a request that is tried as long as it may be.

        :param failures: how many times HTTP 500 is a fault that may pass; after so many it is the
            server's answer to this very question. None: as long as the deadline allows.
        :raises RejectedError: where the server will not serve it.
        :raises EndpointError: where no body came for another reason.
        """
        allowance = self._standing.allowance(self.patience, self._is_well)
        ends = time.monotonic() + allowance.deadline_s
        answers: list[httpx2.Response] = []

        def once() -> httpx2.Response:
            began = time.monotonic()
            timeout_s = min(allowance.timeout_s, max(ends - began, 0.001))
            answers.append(self._transport.exchange(method, path, timeout_s, body))
            if answers[-1].is_success:
                self._standing.took(time.monotonic() - began)
            return answers[-1]

        def may_pass(state: tenacity.RetryCallState) -> bool:
            error = state.outcome.exception() if state.outcome else None
            if isinstance(error, httpx2.TransportError):
                return state.attempt_number < CONNECTION_TRIES
            return isinstance(error, TimeoutError) or (
                error is None and _is_passing(answers, failures)
            )

        stop = tenacity.stop_before_delay(allowance.deadline_s)
        retrying = tenacity.Retrying(
            retry=may_pass,
            wait=lambda state: max(self.patience.wait(state), _asked_to_wait_s(state)),
            stop=stop if allowance.retries else tenacity.stop_after_attempt(1),
            retry_error_callback=lambda state: state.outcome and state.outcome.result(),
        )
        self._standing.asked()
        try:
            response = retrying(once)
        except (TimeoutError, httpx2.TransportError) as error:
            if not answers:
                raise self._silence(error, allowance.deadline_s) from None
            response = answers[-1]  # what it said last is worth more than its silence since
        except EndpointError:
            self._standing.answered()
            raise
        if response.is_success:
            self._standing.answered()
            return response.content
        raise self._refusal(response, is_final=not _is_passing(answers, failures))

    def redacted(self, text: str) -> str:
        """The text without this wire's secrets."""
        for secret in self._secrets:
            text = text.replace(secret, "[secret]")
        return redact(text)

    def _is_well(self) -> bool:
        """Ask, between two turns, for what costs no computation: the list of models, and where
        there is one (NIM) whether the model is loaded."""
        for path in ("/models", "/health/ready"):
            try:
                response = self._transport.exchange("GET", path, self.patience.look_s)
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
        fix = "it is tried again at the next turn"
        if status in {401, 403}:
            fix = "check AUTORESEARCH_LLM_API_KEY"
        elif status == 404:
            fix = "check that AUTORESEARCH_LLM_BASE_URL ends in /v1 and that the model exists"
        elif _context_in(body, said) is not None:
            fix = "lower --prompt-tokens, or start the server with a longer context"
        elif status < 500 and status != 429:
            fix = "check AUTORESEARCH_LLM_MODEL, and lower --prompt-tokens if the prompt is longer"
            fix += " than its context"
        message = f"{self._transport.where} answered HTTP {status} ({said}); {fix}"
        if not is_final:
            return EndpointError(message)
        self._standing.answered()
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
    """The base URL in any of its usual forms: up to and including ``/v1``, without that, without a
    scheme, or with the path of one of its pages.

    :raises SettingsError: where it is none.
    """
    given = base_url.strip().strip("\"'")
    try:
        if "://" not in given:
            bare = httpx2.URL(f"http://{given}")
            is_near = bare.port is not None or is_loopback(bare.host)
            if is_near or "." in bare.host:  # any other word is a scheme misspelled
                given = f"{'http' if is_near else 'https'}://{given}"
        url = httpx2.URL(given)
        check_port(url)
    except httpx2.InvalidURL as error:
        raise SettingsError(
            f"AUTORESEARCH_LLM_BASE_URL is no URL ({error}); give one like http://localhost:8000/v1"
        ) from None
    if url.scheme not in {"http", "https"} or not url.host:
        raise SettingsError(
            f"AUTORESEARCH_LLM_BASE_URL has no http:// and host "
            f"({str(url.copy_with(userinfo=b''))!r:.80}); give one like http://localhost:8000/v1"
        )
    path = _PASTED.sub("", url.path) or "/v1"
    return url.copy_with(path="/v1" if path == "/V1" else path, fragment=None)


def _is_passing(answers: list[httpx2.Response], failures: int | None) -> bool:
    """Whether the last answer is a fault that may pass."""
    status = answers[-1].status_code
    if status == 500:
        faults = sum(answer.status_code == 500 for answer in answers)
        is_template = ROLES.search(_said_with(answers[-1])[0])
        return not is_template and (failures is None or faults < failures)
    return status == 429 or (status > 500 and status != 501)


def _asked_to_wait_s(state: tenacity.RetryCallState) -> float:
    if state.outcome is None or state.outcome.failed:
        return 0.0
    return retry_after_s(state.outcome.result().headers.get("retry-after", "")) or 0.0


def _said_with(response: httpx2.Response) -> tuple[str, Json]:
    """What a server says with a refusal, in whichever of the usual places, and the table it is in.

    OpenAI's form is ``{"error": {"message": …}}``; FastAPI's, and so many a local server's, is
    ``{"detail": …}`` with a sentence or a list of what is wrong where.
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
    """How many tokens the context holds, from a refusal of a question that is too long."""
    told = body.get("n_ctx")
    if isinstance(told, int) and told > 0:
        return told
    found = _CONTEXT.search(said)
    return int(found[1]) if found else None
