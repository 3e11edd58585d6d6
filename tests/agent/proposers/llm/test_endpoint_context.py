"""Test the limit on a question's length, and the error when a server refuses one as too long."""

from __future__ import annotations

from typing import Any

import pytest

from agent.proposers.llm.endpoint import ContextError, EndpointError
from tests.support.endpoints import ANSWER, CHAT, SCHEMA, endpoint_at
from tests.support.openai_server import OpenAIServer, Turn, refuses, says, sends


@pytest.mark.parametrize(
    ("tells", "context"),
    [
        # llama.cpp's server, vLLM and so NIM, OpenRouter, Groq, OpenAI
        ({"meta": {"n_vocab": 49152, "n_ctx": 2048, "n_ctx_train": 8192}}, 2048),
        ({"meta": {"n_ctx_train": 8192}}, 8192),
        ({"max_model_len": 4096}, 4096),
        ({"context_length": 32768}, 32768),
        ({"context_window": 131072}, 131072),
        ({"owned_by": "me"}, None),
        ({"meta": None, "max_model_len": "many", "context_length": -1}, None),
    ],
)
def test_the_context_is_what_the_list_of_models_says(tells: Any, context: int | None) -> None:
    with OpenAIServer([says(ANSWER)], tells=tells) as server:
        endpoint = endpoint_at(server, model="tiny")
        assert endpoint.context == endpoint.context == context
        assert server.models_asked == 1
        endpoint.ask(CHAT, SCHEMA)
    assert server.chats[0]["max_tokens"] == min(1024, (context or 8192) // 8)


@pytest.mark.parametrize(("models", "context"), [(("one",), 4096), (("one", "two"), None)])
def test_the_only_model_is_meant_whatever_it_is_called(
    models: tuple[str, ...], context: int | None
) -> None:
    with OpenAIServer([says(ANSWER)], models=models, tells={"max_model_len": 4096}) as server:
        assert endpoint_at(server, model="mine").context == context


def test_a_server_without_a_list_of_models_has_said_nothing() -> None:
    with OpenAIServer([says(ANSWER)]) as server:
        server.looked_at = refuses(404, "Not Found")
        endpoint = endpoint_at(server, model="tiny")
        assert endpoint.context is None
        assert endpoint.ask(CHAT, SCHEMA).text == ANSWER


TOO_LONG = {
    "llama-server": sends(
        b'{"error":{"code":400,"message":"request (2531 tokens) exceeds the available context size'
        b' (2048 tokens), try increasing it","type":"exceed_context_size_error",'
        b'"n_prompt_tokens":2531,"n_ctx":2048}}',
        400,
    ),
    "llama-cpp-python": refuses(
        400,
        "This model's maximum context length is 2048 tokens. However, you requested 2595 tokens "
        "(2531 in the messages, 64 in the completion). Please reduce the length of the messages or "
        "completion.",
        param="messages",
    ),
    "vllm": refuses(
        400,
        "'max_tokens' or 'max_completion_tokens' is too large: 1024. This model's maximum context "
        "length is 2048 tokens and your request has 2531 input tokens (1024 > 2048 - 2531).",
    ),
}


@pytest.mark.parametrize("refusal", TOO_LONG.values(), ids=TOO_LONG)
def test_a_question_that_is_too_long_tells_how_long_one_may_be(refusal: Turn) -> None:
    with OpenAIServer([refusal, says(ANSWER)]) as server:
        endpoint = endpoint_at(server)
        with pytest.raises(ContextError, match="--prompt-tokens"):
            endpoint.ask(CHAT, SCHEMA)
        assert endpoint.context == 2048
        reply = endpoint.ask(CHAT, SCHEMA)
    assert reply.mode == "json_schema", "nothing was wrong with the schema"
    assert server.chats[-1]["max_tokens"] == 256


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (
            b'{"detail": [{"loc": ["body", "prompt"], "msg": "Field required"}, {"msg": "no"}]}',
            r"prompt: Field required; no",
        ),
        (b'{"error": {"message": "no such field"}}', "no such field"),
        (b'{"message": "no such field"}', "no such field"),
        (b"plain words", "plain words"),
    ],
)
def test_what_a_server_says_with_a_refusal_is_shown(body: bytes, said: str) -> None:
    with (
        OpenAIServer([sends(body, 400)]) as server,
        pytest.raises(EndpointError, match=rf"HTTP 400 \({said}\).*--prompt-tokens"),
    ):
        endpoint_at(server).ask(CHAT, SCHEMA)
