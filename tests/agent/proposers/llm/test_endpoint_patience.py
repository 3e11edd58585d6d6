"""Check how long the endpoint waits for a silent server, and when it trusts the server again.

The server is a script on a clock of its own, so that no load of the machine counts.
"""

import math
from typing import Any, TypeAlias

import httpx2
import pytest

from agent.proposers.llm.endpoint import Endpoint
from agent.proposers.llm.failures import EndpointError
from agent.proposers.llm.wire import Patience, Wire
from tests.support.endpoints import ANSWER, CHAT, SCHEMA
from tests.support.openai_server import mode_of

Turn: TypeAlias = tuple[float, httpx2.Response]
"""Seconds that a request takes, and its response."""
LIMITS = Patience(timeout_s=60, deadline_s=100, wait=lambda _: 1.0)
SILENCE: Turn = (math.inf, httpx2.Response(200))


def answers(after_s: float = 0.0) -> Turn:
    return after_s, httpx2.Response(200, json={"choices": [{"message": {"content": ANSWER}}]})


def refuses(status: int) -> Turn:
    return 0.0, httpx2.Response(status, json={"error": {"message": "no"}})


class ScriptedServer:
    """A server that takes one turn per request, the last one again and again, and its time."""

    def __init__(self) -> None:
        self.now_s = 1000.0
        self.chats: list[dict[str, Any]] = []
        self.script: list[Turn] = []

    def exchange(
        self, method: str, path: str, timeout_s: float, body: dict[str, Any]
    ) -> httpx2.Response:
        self.chats.append(body)
        takes_s, response = self.script.pop(0) if len(self.script) > 1 else self.script[0]
        self.sleep(min(takes_s, timeout_s))
        if takes_s >= timeout_s:
            raise TimeoutError
        return response

    def monotonic(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> ScriptedServer:
    server = ScriptedServer()
    monkeypatch.setattr(Wire, "exchange", lambda _, *asked: server.exchange(*asked))
    for clock in ("agent.proposers.llm.wire.time", "tenacity.time", "tenacity.nap.time"):
        monkeypatch.setattr(clock, server)
    return server


@pytest.fixture
def endpoint(server: ScriptedServer) -> Endpoint:
    return Endpoint("http://127.0.0.1:1/v1", "tiny", patience=LIMITS)


def failed(server: ScriptedServer, endpoint: Endpoint, *script: Turn) -> tuple[float, int]:
    """Return the seconds and the requests that a question without an answer took."""
    server.script = list(script)
    began_s, requests = server.now_s, len(server.chats)
    with pytest.raises(EndpointError):
        endpoint.ask(CHAT, SCHEMA)
    return server.now_s - began_s, len(server.chats) - requests


def test_silence_ends_at_the_deadline_and_then_costs_only_one_request(
    server: ScriptedServer, endpoint: Endpoint
) -> None:
    assert failed(server, endpoint, SILENCE) == (100.0, 2)
    assert failed(server, endpoint, SILENCE) == (60.0, 1)
    assert failed(server, endpoint, SILENCE) == (60.0, 1)
    # One answer restores trust: a fault is retried, and silence costs a whole deadline.
    server.script = [refuses(503), answers()]
    assert endpoint.ask(CHAT, SCHEMA).error is None
    assert failed(server, endpoint, SILENCE) == (100.0, 2)


def test_silence_that_passes_is_tried_again(server: ScriptedServer, endpoint: Endpoint) -> None:
    server.script = [SILENCE, answers()]
    assert endpoint.ask(CHAT, SCHEMA).text == ANSWER
    assert len(server.chats) == 2


def test_a_slow_answer_after_silence_is_waited_for_as_long_as_any_other(
    server: ScriptedServer, endpoint: Endpoint
) -> None:
    """A server that loads its model, for example."""
    failed(server, endpoint, SILENCE)
    server.script = [answers(after_s=59.0)]
    assert endpoint.ask(CHAT, SCHEMA).text == ANSWER


def test_silence_after_a_fault_refuses_no_mode(server: ScriptedServer, endpoint: Endpoint) -> None:
    failed(server, endpoint, refuses(500), SILENCE)
    assert {mode_of(body) for body in server.chats} == {"json_schema"}


def test_what_never_passes_ends_at_the_deadline(server: ScriptedServer, endpoint: Endpoint) -> None:
    assert failed(server, endpoint, refuses(502)) == (99.0, 100)


def test_silence_after_a_refusal_reports_the_refusal(
    server: ScriptedServer, endpoint: Endpoint
) -> None:
    server.script = [refuses(429), SILENCE]
    with pytest.raises(EndpointError, match="HTTP 429"):
        endpoint.ask(CHAT, SCHEMA)
