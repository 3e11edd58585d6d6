"""Check how long the endpoint waits for a silent server, and when it trusts the server again.

The server is a script on a clock of its own, so that no load of the machine counts.
"""

import json
import math
from typing import Any, TypeAlias

import httpx2
import pytest

from agent.proposers.llm.endpoint import Endpoint
from agent.proposers.llm.failures import EndpointError
from agent.proposers.llm.wire import Patience
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

    def handle(self, request: httpx2.Request) -> httpx2.Response:
        self.chats.append(json.loads(request.content))
        takes_s, response = self.script.pop(0) if len(self.script) > 1 else self.script[0]
        timeout_s = request.extensions["timeout"]["read"]
        self.sleep(min(takes_s, timeout_s))
        if takes_s >= timeout_s:
            raise httpx2.ReadTimeout("no byte", request=request)
        return httpx2.Response(response.status_code, content=response.content)

    def monotonic(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> ScriptedServer:
    server = ScriptedServer()
    monkeypatch.setattr(
        httpx2.HTTPTransport, "handle_request", lambda _, request: server.handle(request)
    )
    for clock in ("agent.proposers.llm.wire.time", "tenacity.time", "tenacity.nap.time"):
        monkeypatch.setattr(clock, server)
    return server


@pytest.fixture
def endpoint(server: ScriptedServer) -> Endpoint:
    return Endpoint("http://127.0.0.1:1/v1", "tiny", patience=LIMITS)


@pytest.mark.parametrize(
    "questions",
    [
        pytest.param(
            [
                ([SILENCE], (100.0, 2)),
                ([SILENCE], (60.0, 1)),
                ([SILENCE], (60.0, 1)),
                ([refuses(503), answers()], None),
                ([SILENCE], (100.0, 2)),
            ],
            id="silence ends at the deadline, then after one request until there is an answer",
        ),
        pytest.param([([SILENCE, answers()], None)], id="silence that passes is retried"),
        pytest.param(
            [([SILENCE], (100.0, 2)), ([answers(after_s=59.0)], None)],
            id="a slow answer after silence, as of a server that loads its model",
        ),
        pytest.param([([refuses(502)], (99.0, 100))], id="what never passes"),
        pytest.param([([refuses(500), SILENCE], (100.0, 3))], id="silence refuses no mode"),
    ],
)
def test_a_question_without_an_answer_takes_these_seconds_and_requests(
    questions: list[tuple[list[Turn], tuple[float, int] | None]],
    server: ScriptedServer,
    endpoint: Endpoint,
) -> None:
    for script, expected in questions:
        server.script, server.chats, began_s = script, [], server.now_s
        if expected is None:
            assert endpoint.ask(CHAT, SCHEMA).text == ANSWER
            continue
        with pytest.raises(EndpointError):
            endpoint.ask(CHAT, SCHEMA)
        assert (server.now_s - began_s, len(server.chats)) == expected
        assert {mode_of(body) for body in server.chats} == {"json_schema"}


def test_all_forms_of_a_question_share_one_deadline(
    server: ScriptedServer, endpoint: Endpoint
) -> None:
    server.script, began_s = (
        [(40.0, refuses(400)[1]), (40.0, refuses(400)[1]), SILENCE],
        server.now_s,
    )
    with pytest.raises(EndpointError):
        endpoint.ask(CHAT, SCHEMA)
    assert (server.now_s - began_s, len(server.chats)) == (100.0, 3)
