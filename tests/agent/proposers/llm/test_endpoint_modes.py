"""Check that the endpoint finds a server's JSON mode once, and only from relevant errors."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from agent.proposers.llm.endpoint import EndpointError
from agent.proposers.llm.schema_modes import SchemaMode
from tests.support.endpoints import ANSWER, CHAT, SCHEMA, SHORT, endpoint_at
from tests.support.openai_server import (
    OpenAIServer,
    Turn,
    mode_of,
    refuses,
    says,
    schema_of,
    sends_json,
)

ALL_MODES = [mode.value for mode in SchemaMode if mode is not SchemaMode.NONE]


@pytest.mark.parametrize(
    ("honours", "rejects", "found", "probed"),
    [
        (["json_schema"], [], "json_schema", 1),
        (["nvext.guided_json"], ["json_schema"], "nvext.guided_json", 2),
        (["guided_json"], [], "guided_json", 3),
        (["json_object.schema"], [], "json_object.schema", 4),
        (["json_object"], ["json_schema", "nvext.guided_json"], "json_object", 5),
        # Accepts everything with HTTP 200 and applies none of it.
        ([], [], "none", 5),
        ([], ALL_MODES, "none", 6),
    ],
)
def test_the_mode_used_is_the_first_that_is_really_honoured(
    honours: list[str], rejects: list[str], found: str, probed: int
) -> None:
    with OpenAIServer([says(ANSWER)], honours=honours, rejects=rejects) as server:
        reply = endpoint_at(server).ask(CHAT, SCHEMA)
    assert reply.mode == found
    assert mode_of(server.chats[0]) == found
    assert len(server.probes) == probed
    if found not in {"json_object", "none"}:
        assert schema_of(server.chats[0]) == SCHEMA


def test_a_campaign_probes_once_per_endpoint_and_model(tmp_path: Path) -> None:
    path = tmp_path / "modes.json"
    with OpenAIServer([says(ANSWER)], honours=["guided_json"]) as server:
        endpoint_at(server, modes_path=path).ask(CHAT, SCHEMA)
        probed = len(server.probes)
        again = endpoint_at(server, modes_path=path)
        again.ask(CHAT, SCHEMA)
        assert (again.schema_mode, len(server.probes)) == (SchemaMode.GUIDED_JSON, probed)
        endpoint_at(server, modes_path=path, model="other").ask(CHAT, SCHEMA)
        assert len(server.probes) == 2 * probed
    assert json.loads(path.read_text()) == {
        f"{server.url} tiny": {"mode": "guided_json"},
        f"{server.url} other": {"mode": "guided_json"},
    }


@pytest.mark.parametrize("damage", ["{", '{"x": "no such mode"}', "\x00\xff"])
def test_a_damaged_memory_of_modes_costs_a_probe(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "modes.json"
    path.write_bytes(damage.encode("latin-1"))
    with OpenAIServer([says(ANSWER)]) as server:
        assert endpoint_at(server, modes_path=path).ask(CHAT, SCHEMA).error is None
    assert json.loads(path.read_text()) == {f"{server.url} tiny": {"mode": "json_schema"}}


def test_a_schema_that_the_server_cannot_compile_is_left_out_from_then_on() -> None:
    with OpenAIServer([refuses(400, "unsupported schema"), says(ANSWER)]) as server:
        endpoint = endpoint_at(server)
        assert endpoint.ask(CHAT, SCHEMA).mode == "none"
        assert endpoint.ask(CHAT, SCHEMA).mode == "none"
    assert [mode_of(body) for body in server.chats] == ["json_schema", "none", "none"]


def test_a_question_that_is_wrong_in_itself_leaves_the_mode_alone() -> None:
    with OpenAIServer([refuses(400, "context too long"), refuses(400), says(ANSWER)]) as server:
        endpoint = endpoint_at(server)
        with pytest.raises(EndpointError, match="--prompt-tokens"):
            endpoint.ask(CHAT, SCHEMA)
        assert endpoint.ask(CHAT, SCHEMA).mode == "json_schema"


BROKEN = sends_json(
    {"error": {"message": "[{'type': 'literal_error'}]", "type": "internal_server_error"}}, 500
)
"""llama-cpp-python's answer, which reports a request it cannot read as its own fault."""


def test_http_500_to_a_mode_is_that_modes_answer(tmp_path: Path) -> None:
    """llama-cpp-python's server answers this way to json_schema: it supports only the last mode."""
    path = tmp_path / "modes.json"
    with OpenAIServer(
        [says(ANSWER)],
        honours=["json_object.schema"],
        rejects=["json_schema"],
        rejection=BROKEN,
    ) as server:
        reply = endpoint_at(server, modes_path=path).ask(CHAT, SCHEMA)
    assert (reply.mode, reply.text) == ("json_object.schema", ANSWER)
    assert server.chats[0]["response_format"] == {"type": "json_object", "schema": SCHEMA}
    assert server.probes == ALL_MODES[:4], "and none was tried twice"
    assert json.loads(path.read_text()) == {f"{server.url} tiny": {"mode": "json_object.schema"}}


@pytest.mark.parametrize(
    "no_such_model",
    [refuses(400, "no such model"), refuses(404, "no such model"), BROKEN],
    ids=["400", "404", "500"],
)
def test_a_server_that_serves_no_question_says_nothing_of_its_modes(
    tmp_path: Path, no_such_model: Turn
) -> None:
    path = tmp_path / "modes.json"
    everything = [mode.value for mode in SchemaMode]
    with OpenAIServer([says(ANSWER)], rejects=everything, rejection=no_such_model) as server:
        with pytest.raises(EndpointError):
            endpoint_at(server, model="wrong", modes_path=path, patience=SHORT).ask(CHAT, SCHEMA)
        assert not path.exists()
        server.rejects = ()
        assert endpoint_at(server, model="wrong", modes_path=path).schema_mode == "json_schema"


def test_a_schema_that_breaks_the_server_is_left_out_for_this_sitting(tmp_path: Path) -> None:
    path = tmp_path / "modes.json"
    with OpenAIServer([BROKEN, BROKEN, says(ANSWER)]) as server:
        endpoint = endpoint_at(server, modes_path=path)
        assert [endpoint.ask(CHAT, SCHEMA).mode for _ in range(2)] == ["none", "none"]
        asked = [mode_of(body) for body in server.chats]
        assert asked == ["json_schema", "json_schema", "none", "none"]
        assert endpoint_at(server, modes_path=path).schema_mode == "json_schema"


def test_a_probe_asks_for_few_tokens() -> None:
    with OpenAIServer([says(ANSWER)], honours=["json_object"]) as server:
        endpoint_at(server).ask(CHAT, SCHEMA)
    assert set(server.probe_tokens) == {48}
    assert server.chats[0]["max_tokens"] == 1024
