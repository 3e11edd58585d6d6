"""Check how the endpoint asks servers and models that deviate from the protocol: their JSON modes,
thoughts, roles, bodies and lists of models."""

from typing import Any

import pytest

from agent.proposers.llm.endpoint import THINKING_TOKENS, SchemaMode
from agent.proposers.llm.failures import TRIES, EndpointError
from agent.session.machine_checks import endpoint as doctor_of
from agent.settings.environment import Environment
from tests.support.endpoints import ANSWER, CHAT, SCHEMA, endpoint_at
from tests.support.openai_server import (
    OpenAIServer,
    Turn,
    mode_of,
    refuses,
    says,
    schema_of,
    sends_json,
)


@pytest.mark.parametrize("count", range(len(SchemaMode)))
def test_the_mode_used_is_the_first_that_is_not_refused(count: int) -> None:
    modes = [*SchemaMode]
    with OpenAIServer([says(ANSWER)], rejects=modes[:count]) as server:
        endpoint = endpoint_at(server)
        assert [endpoint.ask(CHAT, SCHEMA).mode for _ in range(2)] == [modes[count]] * 2
    assert [mode_of(body) for body in server.chats] == [*modes[: count + 1], modes[count]]
    schema = None if modes[count] in {"json_object", "none"} else SCHEMA
    assert schema_of(server.chats[-1]) == schema


def test_a_question_that_is_wrong_in_itself_leaves_the_mode_alone() -> None:
    bad = refuses(400, "bad words")
    with OpenAIServer([says(ANSWER), bad, bad, says(ANSWER)]) as server:
        endpoint = endpoint_at(server)
        endpoint.ask(CHAT, SCHEMA)
        with pytest.raises(EndpointError):
            endpoint.ask(CHAT, SCHEMA)
        assert endpoint.ask(CHAT, SCHEMA).mode == "json_schema"


BROKEN = sends_json(
    {"error": {"message": "[{'type': 'literal_error'}]", "type": "internal_server_error"}}, 500
)
"""llama-cpp-python's answer, which reports a request it cannot read as its own fault."""


def test_http_500_to_a_mode_is_in_the_end_that_modes_answer() -> None:
    """llama-cpp-python's server answers this way to json_schema."""
    with OpenAIServer([says(ANSWER)], rejects=["json_schema"], rejection=BROKEN) as server:
        endpoint = endpoint_at(server)
        replies = [endpoint.ask(CHAT, SCHEMA) for _ in range(2)]
        assert {(reply.mode, reply.text) for reply in replies} == {("json_object.schema", ANSWER)}
    assert server.chats[-1]["response_format"] == {"type": "json_object", "schema": SCHEMA}
    asked = [mode_of(body) for body in server.chats]
    assert asked == ["json_schema"] * TRIES + ["json_object.schema"] * 2


@pytest.mark.parametrize(
    "no_such_model",
    [refuses(400, "no such model"), refuses(404, "no such model"), BROKEN],
    ids=["400", "404", "500"],
)
def test_a_server_that_serves_no_question_says_nothing_of_its_modes(no_such_model: Turn) -> None:
    with OpenAIServer([says(ANSWER)], rejects=[*SchemaMode], rejection=no_such_model) as server:
        endpoint = endpoint_at(server, model="wrong")
        with pytest.raises(EndpointError):
            endpoint.ask(CHAT, SCHEMA)
        server.rejects = ()
        assert endpoint.ask(CHAT, SCHEMA).mode == "json_schema"


@pytest.mark.parametrize("refusal", [[refuses(400, "unsupported schema")], [BROKEN] * TRIES])
def test_a_schema_that_the_server_cannot_compile_is_left_out(refusal: list[Turn]) -> None:
    with OpenAIServer([says(ANSWER), *refusal, says(ANSWER)]) as server:
        endpoint = endpoint_at(server)
        modes = [endpoint.ask(CHAT, SCHEMA).mode for _ in range(3)]
        assert modes == ["json_schema", "none", "none"]
        assert endpoint_at(server).ask(CHAT, SCHEMA).mode == "json_schema"
    asked = ["json_schema"] * (1 + len(refusal)) + ["none", "none", "json_schema"]
    assert [mode_of(body) for body in server.chats] == asked


PROPOSAL = '{"reason": "faster", "changes": [{"knob": "lr", "value": "0.004"}]}'


class Gemma(OpenAIServer):
    """A server whose model has no system role."""

    refused_with = 400, "System role not supported"

    def turn_for(self, body: dict[str, Any]) -> Turn:
        if any(message["role"] == "system" for message in body["messages"]):
            return refuses(*self.refused_with)
        return super().turn_for(body)


class Llama(Gemma):
    refused_with = 500, "Jinja Exception: Conversation roles must alternate user/assistant/…"


@pytest.mark.parametrize("family", [Gemma, Llama])
@pytest.mark.parametrize("rejects", [[], ["json_schema"]])
def test_a_refused_system_role_stays_merged(family: type[Gemma], rejects: list[str]) -> None:
    with family([says(ANSWER)], rejects=rejects) as server:
        endpoint = endpoint_at(server)
        assert [endpoint.ask(CHAT, SCHEMA).text for _ in range(2)] == [ANSWER] * 2
    first, second = server.chats[-2:]
    assert first["messages"] == [{"role": "user", "content": "be brief\n\npropose"}]
    assert second["messages"] == first["messages"]


def test_the_doctor_asks_as_the_loop_does() -> None:
    with Gemma([says(PROPOSAL)]) as server:
        check = doctor_of(Environment(llm_base_url=server.url))
    assert check.state == "good"
    (chat,) = server.chats
    assert [message["role"] for message in chat["messages"]] == ["user"]


@pytest.mark.parametrize("value", ['"fast"', "3"])
def test_the_doctor_takes_no_value_that_the_loop_would_refuse(value: str) -> None:
    with OpenAIServer([says(PROPOSAL.replace('"0.004"', value))]) as server:
        assert doctor_of(Environment(llm_base_url=server.url)).state == "note"


class Thinker(OpenAIServer):
    """A server whose model thinks for this many tokens before each answer unless stopped."""

    needs = 3000
    stopped_by: dict[str, Any] | None = None
    refused = ""

    def turn_for(self, body: dict[str, Any]) -> Turn:
        turn = super().turn_for(body)
        if self.refused in body:
            return refuses(400, f"Unrecognized request argument supplied: {self.refused}")
        if self.stopped_by is not None and self.stopped_by.items() <= body.items():
            return turn
        if body["max_tokens"] < self.needs:
            return says(None, finish_reason="length", reasoning="hm")
        return turn


def test_a_model_that_thinks_for_long_is_given_the_tokens_once_and_for_all() -> None:
    with Thinker([says(ANSWER)]) as server:
        server.refused = "chat_template_kwargs"
        endpoint = endpoint_at(server)
        reply = endpoint.ask(CHAT, SCHEMA)
        assert (reply.text, reply.error, reply.mode) == (ANSWER, None, "json_schema")
        asked = len(server.chats)
        assert endpoint.ask(CHAT, SCHEMA).text == ANSWER
    assert len(server.chats) == asked + 1
    assert server.chats[-1]["max_tokens"] == THINKING_TOKENS


def test_a_model_that_thinks_without_end_is_given_sixteen_thousand_tokens_at_most() -> None:
    with Thinker([says(ANSWER)]) as server:
        server.needs = 10**6
        assert endpoint_at(server).ask(CHAT, SCHEMA).error
    assert max(chat["max_tokens"] for chat in server.chats) == THINKING_TOKENS


@pytest.mark.parametrize("refused", ["", "chat_template_kwargs"])
def test_thinking_is_turned_off_where_the_server_allows_it(refused: str) -> None:
    with Thinker([says(ANSWER)]) as server:
        server.refused = refused
        server.stopped_by = (
            {"reasoning_effort": "none"}
            if refused
            else {"chat_template_kwargs": {"enable_thinking": False, "thinking": False}}
        )
        assert endpoint_at(server).ask(CHAT, SCHEMA).text == ANSWER
    assert server.stopped_by.items() <= server.chats[-1].items()
    assert refused not in server.chats[-1]


@pytest.mark.parametrize(("context", "most"), [(None, 4096), (2048, 2047)])
def test_a_cut_reply_is_requested_again_if_there_is_room(context: int | None, most: int) -> None:
    tells = {"max_model_len": context}
    with OpenAIServer([says('{"a": ', finish_reason="length")], tells=tells) as server:
        endpoint = endpoint_at(server)
        assert endpoint.context == context
        reply = endpoint.ask(CHAT, SCHEMA)
    assert reply.error is not None
    asked = [chat["max_tokens"] for chat in server.chats]
    assert asked == sorted(asked)
    assert most - 64 < asked[-1] <= most


CALL = [{"id": "1", "type": "function", "function": {"name": "f", "arguments": ANSWER}}]
OTHER_CALL = [{"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}]


@pytest.mark.parametrize(
    "turn",
    [
        says([{"type": "text", "text": ANSWER[:3]}, {"type": "text", "text": ANSWER[3:]}]),
        says(None, tool_calls=CALL, finish_reason="tool_calls"),
        says("", tool_calls=CALL, reasoning="I call it."),
        says("I call it.", tool_calls=CALL),
        says(ANSWER, reasoning_content="hm", tool_calls=OTHER_CALL),
        says(ANSWER, function_call={"name": "f", "arguments": "{}"}),
        says(None, reasoning=ANSWER, reasoning_content=None),
        says("", reasoning_content=ANSWER),
    ],
)
def test_an_answer_is_read_wherever_it_is(turn: Turn) -> None:
    with OpenAIServer([turn]) as server:
        reply = endpoint_at(server).ask(CHAT, SCHEMA)
    assert (reply.text, reply.error) == (ANSWER, None)


def test_a_mode_that_brings_an_error_with_http_200_is_not_used() -> None:
    unsupported = sends_json({"error": {"message": "unsupported response_format"}})
    with OpenAIServer([unsupported, says(ANSWER)]) as server:
        assert endpoint_at(server).ask(CHAT, SCHEMA).text == ANSWER
