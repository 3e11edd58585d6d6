"""Send requests to a chat endpoint: one retry policy under one deadline, and no secret shown."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import httpx2
import tenacity

from agent.proposers.llm.failures import EndpointError, RefusedError, refusal, silence
from agent.proposers.llm.transport import Transport, parsed, shown
from autoresearch.errors import SettingsError
from autoresearch.redaction import redact, sendable

Json: TypeAlias = dict[str, Any]


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
            key = sendable(api_key or "")
        except ValueError as error:
            raise SettingsError(f"AUTORESEARCH_LLM_API_KEY {error}") from None
        self._patience = patience
        self._secrets = [secret for secret in (key, url.password) if secret]
        self._transport = Transport(url, {"Authorization": f"Bearer {key or 'none'}"})
        self._is_silent = False

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
                response = self._transport.exchange(method, path, timeout_s, body)
            except (TimeoutError, httpx2.TransportError) as error:
                raise silence(self._transport.where, error, deadline_s, self.redacted) from None
            if response.is_success:
                return response.content
            answers.append(refusal(self._transport.where, response, self.redacted))
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

    def redacted(self, text: str) -> str:
        """Return the text without this wire's secrets."""
        for secret in self._secrets:
            text = text.replace(secret, "[secret]")
        return redact(text)
