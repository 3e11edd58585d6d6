"""Check how long the endpoint waits for a silent server, and when it trusts the server again."""

from __future__ import annotations

import pytest

from agent.proposers.llm.endpoint import Endpoint
from agent.proposers.llm.failures import EndpointError
from tests.support.endpoints import ANSWER, CHAT, SCHEMA, SHORT, endpoint_at
from tests.support.openai_server import (
    OpenAIServer,
    Turn,
    drips,
    hangs,
    mode_of,
    refuses,
    says,
    slowly,
)


@pytest.mark.slow
@pytest.mark.parametrize("silence", [hangs(30), drips(30)], ids=["hang", "drip"])
def test_silence_ends_at_the_deadline_and_then_costs_only_one_request(silence: Turn) -> None:
    with OpenAIServer([silence]) as server:
        endpoint = endpoint_at(server, patience=SHORT, model="tiny")
        for within_s in ("2.5", "1.5", "1.5"):
            is_silent(endpoint, within_s)
        # One answer restores trust: a fault is retried, and silence costs a whole deadline.
        server.script = [refuses(503), says(ANSWER)]
        assert endpoint.ask(CHAT, SCHEMA).error is None
        server.script = [silence]
        is_silent(endpoint, "2.5")


def is_silent(endpoint: Endpoint, within_s: str) -> None:
    """Check that the endpoint gives up after this many seconds."""
    with pytest.raises(EndpointError, match=rf"did not answer within {within_s} s"):
        endpoint.ask(CHAT, SCHEMA)


@pytest.mark.slow
def test_a_slow_answer_after_silence_is_waited_for_as_long_as_any_other() -> None:
    """A server that loads its model, for example."""
    with OpenAIServer([hangs(30)]) as server:
        endpoint = endpoint_at(server, model="tiny", patience=SHORT)
        is_silent(endpoint, "2.5")
        server.script = [slowly(says(ANSWER), SHORT.timeout_s / 2)]
        assert endpoint.ask(CHAT, SCHEMA).text == ANSWER


@pytest.mark.slow
def test_silence_after_a_fault_refuses_no_mode() -> None:
    with OpenAIServer([refuses(500), hangs(30)]) as server:
        with pytest.raises(EndpointError):
            endpoint_at(server, model="tiny", patience=SHORT).ask(CHAT, SCHEMA)
        assert {mode_of(body) for body in server.chats} == {"json_schema"}
