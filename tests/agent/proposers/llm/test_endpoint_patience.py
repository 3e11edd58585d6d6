"""Check how long the endpoint waits for a silent server, and when it trusts the server again."""

from __future__ import annotations

import pytest

from agent.proposers.llm.endpoint import Endpoint, EndpointError
from tests.support.endpoints import ANSWER, CHAT, LOOKING, SCHEMA, SHORT, endpoint_at
from tests.support.openai_server import (
    OpenAIServer,
    Turn,
    drips,
    drops_mid_body,
    hangs,
    refuses,
    says,
    slowly,
)


@pytest.mark.slow
@pytest.mark.parametrize("silence", [hangs(30), drips(30)], ids=["hang", "drip"])
def test_silence_ends_at_the_deadline_and_then_costs_only_probation(silence: Turn) -> None:
    with OpenAIServer([silence]) as server:
        endpoint = endpoint_at(server, patience=SHORT)
        endpoint.schema_mode  # noqa: B018 - probed while it still answers
        server.looked_at = silence
        for within_s in ("2.5", "0.5"):
            is_silent(endpoint, within_s)
        # One answer restores trust: a fault is retried.
        server.script = [says(ANSWER)]
        assert endpoint.ask(CHAT, SCHEMA).error is None
        server.script = [refuses(503), says(ANSWER)]
        assert endpoint.ask(CHAT, SCHEMA).error is None


def is_silent(endpoint: Endpoint, within_s: str) -> None:
    """Check that the endpoint gives up after this many seconds."""
    with pytest.raises(EndpointError, match=rf"did not answer within {within_s} s"):
        endpoint.ask(CHAT, SCHEMA)


@pytest.mark.slow
def test_a_server_that_looks_well_is_not_on_probation() -> None:
    """A server that loads its model, for example, needs longer than probation and gets the time."""
    with OpenAIServer([hangs(30)]) as server:
        endpoint = endpoint_at(server, model="tiny", patience=LOOKING)
        endpoint.schema_mode  # noqa: B018
        is_silent(endpoint, "2.5")
        server.script = [slowly(says(ANSWER), 2 * SHORT.probation_s - 0.1)]
        assert endpoint.ask(CHAT, SCHEMA).text == ANSWER
        assert server.models_asked == 2, "/models and /health/ready"


@pytest.mark.slow
@pytest.mark.parametrize("ill", [refuses(503), drops_mid_body()], ids=["503", "dropped"])
def test_a_server_that_does_not_look_well_has_its_probation(ill: Turn) -> None:
    with OpenAIServer([hangs(30)]) as server:
        endpoint = endpoint_at(server, model="tiny", patience=SHORT)
        endpoint.schema_mode  # noqa: B018
        is_silent(endpoint, "2.5")
        server.looked_at = ill
        is_silent(endpoint, "0.5")


@pytest.mark.slow
def test_a_server_that_only_looks_well_gets_one_try_a_turn() -> None:
    with OpenAIServer([hangs(30)]) as server:
        endpoint = endpoint_at(server, patience=LOOKING)
        endpoint.schema_mode  # noqa: B018
        for within in ("2.5", "2.5", "1.5"):
            is_silent(endpoint, within)


@pytest.mark.slow
def test_probation_is_as_long_as_the_slowest_answer_needs() -> None:
    """The server answers one question at a time, the health check included."""
    needs_s = 0.8  # more than probation, less than a request's limit
    with OpenAIServer([slowly(says(ANSWER), needs_s), hangs(30)]) as server:
        endpoint = endpoint_at(server, patience=SHORT)
        assert endpoint.ask(CHAT, SCHEMA).text == ANSWER
        is_silent(endpoint, "2.5")
        server.looked_at = hangs(30)
        server.script = [slowly(says(ANSWER), needs_s)]
        assert endpoint.ask(CHAT, SCHEMA).text == ANSWER
