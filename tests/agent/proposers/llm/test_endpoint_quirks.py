"""Test the endpoint with servers and models that deviate from the protocol."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from agent.proposers.llm.endpoint import Endpoint, EndpointError
from agent.settings.environment import Environment
from agent.workbench.doctor.checks import endpoint as doctor_of
from tests.support.endpoints import ANSWER, CHAT, SCHEMA, endpoint_at
from tests.support.openai_server import OpenAIServer, Turn, refuses, says, sends

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
@pytest.mark.parametrize("honours", [["json_schema"], []])
def test_a_refused_system_role_is_merged_and_remembered(
    tmp_path: Path, family: type[Gemma], honours: list[str]
) -> None:
    path = tmp_path / "modes.json"
    with family([says(ANSWER)], honours=honours) as server:
        endpoint_at(server, modes_path=path).ask(CHAT, SCHEMA)
        again = endpoint_at(server, modes_path=path)
        assert again.ask(CHAT, SCHEMA).text == ANSWER
    first, second = server.chats
    assert first["messages"] == [{"role": "user", "content": "be brief\n\npropose"}]
    assert second["messages"] == first["messages"]
    assert json.loads(path.read_text())[f"{server.url} tiny"]["merges_system"] is True


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


def test_a_model_that_thinks_for_long_is_given_the_tokens_once_and_for_all(tmp_path: Path) -> None:
    path = tmp_path / "modes.json"
    with Thinker([says(ANSWER)]) as server:
        server.refused = "chat_template_kwargs"
        reply = endpoint_at(server, modes_path=path).ask(CHAT, SCHEMA)
        assert (reply.text, reply.error, reply.mode) == (ANSWER, None, "json_schema")
        asked = len(server.chats)
        assert endpoint_at(server, modes_path=path).ask(CHAT, SCHEMA).text == ANSWER
    assert len(server.chats) == asked + 1
    assert server.chats[-1]["max_tokens"] == 4096


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
    (chat,) = server.chats
    assert server.stopped_by.items() <= chat.items()
    assert chat["max_tokens"] == 1024


@pytest.mark.parametrize(("context", "most"), [(None, 4096), (2048, 2047)])
def test_a_cut_reply_is_asked_for_again_as_long_as_there_is_room(
    context: int | None, most: int
) -> None:
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


@pytest.mark.parametrize(
    "turn",
    [
        says([{"type": "text", "text": ANSWER[:3]}, {"type": "text", "text": ANSWER[3:]}]),
        says(None, tool_calls=CALL, finish_reason="tool_calls"),
        says("I call it.", tool_calls=CALL),
        says(None, function_call={"name": "f", "arguments": ANSWER}),
        says(None, reasoning=ANSWER),
        says("", reasoning_content=ANSWER),
    ],
)
def test_an_answer_is_read_wherever_it_is(turn: Turn) -> None:
    with OpenAIServer([turn]) as server:
        reply = endpoint_at(server).ask(CHAT, SCHEMA)
    assert (reply.text, reply.error) == (ANSWER, None)


class Page(OpenAIServer):
    """A server that answers every request with one body."""

    body: bytes | None = b"<html><h1>Welcome</h1></html>"

    def turn_for(self, body: dict[str, Any]) -> Turn:
        return super().turn_for(body) if self.body is None else sends(self.body)


@pytest.mark.parametrize(
    "body",
    [
        b"<html><h1>Welcome</h1></html>",
        b'data: {"say": "Welcome"}\n\n',
        b'{"choices": [{"Welcome',
        b'{"choices": [' + b"9" * 5000 + b'], "Welcome": 0}',
    ],
)
def test_nothing_is_known_after_probes_that_brought_no_completion(
    tmp_path: Path, body: bytes
) -> None:
    path = tmp_path / "modes.json"
    with Page([says(ANSWER)]) as server:
        server.body = body
        endpoint = endpoint_at(server, modes_path=path)
        with pytest.raises(EndpointError):
            endpoint.ask(CHAT, SCHEMA)
        assert not path.exists()
        server.body = None
        assert endpoint.ask(CHAT, SCHEMA).mode == "json_schema"


def test_empty_replies_to_all_probes_are_not_remembered_for_good(tmp_path: Path) -> None:
    path = tmp_path / "modes.json"
    with Page([says(ANSWER)]) as server:
        server.body = b'{"choices": [{"message": {"content": ""}, "finish_reason": "stop"}]}'
        endpoint_at(server, modes_path=path).ask(CHAT, SCHEMA)
    assert not path.exists()


@pytest.mark.parametrize("first", ["text-embedding-3-small", "\x1b[2Jtiny"])
def test_the_first_model_that_can_chat_is_asked(first: str) -> None:
    with OpenAIServer([says(ANSWER)], models=(first, "tiny", "other")) as server:
        assert endpoint_at(server).model == "tiny"


def test_a_server_of_embeddings_alone_lists_its_models() -> None:
    with (
        OpenAIServer([says(ANSWER)], models=("nomic-embed-text", "my-reranker")) as server,
        pytest.raises(EndpointError),
    ):
        endpoint_at(server).ask(CHAT, SCHEMA)


@pytest.mark.parametrize("told", [10**400, -1, True, 1.5, "2048"])
def test_a_length_that_makes_no_sense_was_not_told(told: object) -> None:
    with OpenAIServer([says(ANSWER)], tells={"max_model_len": told}) as server:
        endpoint = endpoint_at(server)
        assert endpoint.context is None
        assert endpoint.ask(CHAT, SCHEMA).text == ANSWER


def test_a_key_that_no_header_can_carry_is_refused_unshown() -> None:
    for key in ("sk-precious\r\n", "“sk-precious”"):
        with pytest.raises(Exception, match="AUTORESEARCH_LLM_API_KEY") as raised:
            Endpoint("http://127.0.0.1:1", "tiny", key)
        assert "precious" not in str(raised.value)
