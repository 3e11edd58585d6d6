import gzip
import logging
import time
from typing import Any

import pytest

from agent.proposers.llm.endpoint import Endpoint, SchemaMode
from agent.proposers.llm.failures import (
    ContextError,
    EndpointError,
    RefusedError,
    RejectedError,
)
from agent.proposers.llm.wire import Patience
from autoresearch.errors import SettingsError
from tests.support.endpoints import ANSWER, CHAT, KEY, QUICK, SCHEMA, endpoint_at
from tests.support.openai_server import (
    OpenAIServer,
    Turn,
    mode_of,
    refuses,
    says,
    schema_of,
    sends,
    sends_json,
)
from tests.support.ports import free_port


def test_the_request_holds_the_chat_the_schema_a_cap_and_the_key() -> None:
    with OpenAIServer([says(ANSWER)]) as server:
        endpoint_at(server, model="mine", max_tokens=77).ask(CHAT, SCHEMA)
    assert server.models_asked == 0
    (body,) = server.chats
    assert body["messages"] == [
        {"role": "system", "content": "be brief"},
        {"role": "user", "content": "propose"},
    ]
    assert schema_of(body) == SCHEMA
    assert (body["model"], body["max_tokens"]) == ("mine", 77)
    assert set(server.authorizations) == {f"Bearer {KEY}"}


@pytest.mark.parametrize("model", [None, ""])
def test_an_unnamed_model_is_the_first_of_ten_thousand(model: str | None) -> None:
    models = [f"model-{number}" for number in range(10_000)]
    with OpenAIServer([says(ANSWER)], models=models, tells={"max_model_len": 4096}) as server:
        endpoint = endpoint_at(server, model=model)
        assert endpoint.known_model is None
        assert [endpoint.ask(CHAT, SCHEMA).text for _ in range(2)] == [ANSWER] * 2
        assert (endpoint.model, endpoint.context) == ("model-0", 4096)
        assert server.models_asked == 1


@pytest.mark.parametrize("first", ["text-embedding-3-small", "\x1b[2Jtiny", "*", "openai/*", ""])
def test_a_listed_model_that_cannot_chat_is_left_out(first: str) -> None:
    with OpenAIServer([says(ANSWER)], models=(first, "tiny", "other")) as server:
        assert endpoint_at(server).model == "tiny"


def test_a_listed_model_that_echoes_the_key_is_shown_without_it() -> None:
    with OpenAIServer([says(ANSWER)], models=(f"for {KEY}",)) as server:
        assert KEY not in endpoint_at(server).model


@pytest.mark.parametrize("models", [(), ("nomic-embed-text", "my-reranker")])
def test_a_server_without_a_model_for_chat_names_the_setting(models: tuple[str, ...]) -> None:
    with (
        OpenAIServer([says(ANSWER)], models=models) as server,
        pytest.raises(EndpointError, match="AUTORESEARCH_LLM_MODEL") as raised,
    ):
        endpoint_at(server).ask(CHAT, SCHEMA)
    assert all(name in str(raised.value) for name in models)


def test_parameters_that_a_hosted_model_refuses_by_name_are_replaced_or_left_out() -> None:
    script = [
        refuses(400, "use max_completion_tokens", param="max_tokens"),
        refuses(400, "only the default", param="temperature"),
        says(ANSWER),
    ]
    with OpenAIServer(script) as server:
        endpoint = endpoint_at(server, max_tokens=77)
        assert endpoint.ask(CHAT, SCHEMA).text == ANSWER
    last = server.chats[-1]
    assert last["max_completion_tokens"] == 77
    assert "max_tokens" not in last
    assert "temperature" not in last


@pytest.mark.parametrize(
    "fault",
    [
        refuses(429, "slow down", Retry_After="0"),
        refuses(500),
        refuses(503),
        sends(b"\x1f\x8b", 503, {"Content-Encoding": "gzip"}),
    ],
    ids=["429", "500", "503", "compressed 503"],
)
def test_what_may_pass_is_tried_again(fault: Turn) -> None:
    with OpenAIServer([fault, says(ANSWER)]) as server:
        reply = endpoint_at(server).ask(CHAT, SCHEMA)
    assert (reply.text, reply.error) == (ANSWER, None)
    assert len(server.chats) == 2


@pytest.mark.parametrize(
    ("header", "own_s", "least_s"), [("0.3", 0.0, 0.3), ("-1", 0.2, 0.2), ("nan", 0.2, 0.2)]
)
def test_the_longer_of_the_two_waits_counts(header: str, own_s: float, least_s: float) -> None:
    patience = Patience(timeout_s=60, deadline_s=60, wait=lambda _: own_s)
    with OpenAIServer([refuses(429, Retry_After=header), says(ANSWER)]) as server:
        endpoint = endpoint_at(server, model="tiny", patience=patience)
        began = time.monotonic()
        endpoint.ask(CHAT, SCHEMA)
        assert time.monotonic() - began >= least_s
    assert len(server.chats) == 2


@pytest.mark.parametrize("header", ["3600", "1" + "0" * 400])
def test_a_retry_after_past_the_deadline_is_not_waited_for(header: str) -> None:
    with (
        OpenAIServer([refuses(429, Retry_After=header)]) as server,
        pytest.raises(EndpointError, match="HTTP 429"),
    ):
        endpoint_at(server).ask(CHAT, SCHEMA)
    assert len(server.chats) == 1


@pytest.mark.parametrize("status", [401, 402, 403, 404, 409])
def test_other_refusals_are_final(status: int) -> None:
    with OpenAIServer([refuses(status)]) as server:
        endpoint = endpoint_at(server)
        with pytest.raises(EndpointError, match=f"HTTP {status}"):
            endpoint.ask(CHAT, SCHEMA)
    assert len(server.chats) == 1


@pytest.mark.parametrize(
    "said",
    [
        "API key not valid. Please pass a valid API key.",
        "Invalid API-key provided",
        "Unauthorized: no credentials",
    ],
)
def test_a_refusal_of_the_key_by_http_400_is_about_the_key(said: str) -> None:
    with OpenAIServer([refuses(400, said)]) as server:
        with pytest.raises(RefusedError, match="AUTORESEARCH_LLM_API_KEY") as raised:
            endpoint_at(server, model="mine").ask(CHAT, SCHEMA)
        assert "AUTORESEARCH_LLM_MODEL" not in str(raised.value)
    assert len(server.chats) == 1, "no other form of the question is tried"


@pytest.mark.parametrize("scheme", ["Bearer ", "bearer  ", "Authorization: Bearer "])
def test_a_key_pasted_with_its_scheme_is_understood(scheme: str) -> None:
    with OpenAIServer([says(ANSWER)]) as server:
        endpoint_at(server, model="mine", api_key=scheme + KEY).ask(CHAT, SCHEMA)
    assert set(server.authorizations) == {f"Bearer {KEY}"}


def test_nobody_there() -> None:
    patience = Patience(timeout_s=60, deadline_s=600, wait=lambda _: 0.01)
    endpoint = Endpoint(f"http://127.0.0.1:{free_port()}/v1", "m", KEY, patience=patience)
    with pytest.raises(EndpointError):
        endpoint.ask(CHAT, SCHEMA)


REPLIES_WITHOUT_TEXT = [
    says(" \n\t "),
    says(None),
    says(None, tool_calls=[{"id": "1"}], finish_reason="tool_calls"),
]
NO_REPLIES = [
    (sends(b"data: {}\n\n"), "data: {}", "data: {}"),
    (sends(b"\x1b[2Jhello"), "hello", "\x1b[2Jhello"),
    (sends(b'{"choices": [{"mess'), "mess", '{"choices": [{"mess'),
    (sends_json({"choices": []}), "choices", '{"choices": []}'),
    (sends(b"[1, 2]"), "[1, 2]", "[1, 2]"),
    (sends(b"[" + b"9" * 5000 + b"]"), "9", f"[{'9' * 5000}]"),
    (sends(b'{"a":' * 100_000), "a", '{"a":' * 100_000),
    (sends(b"\xff\xfe"), "", "\ufffd\ufffd"),
    (sends(b""), "", ""),
]


@pytest.mark.parametrize("turn", REPLIES_WITHOUT_TEXT)
def test_an_answer_without_text_says_why_and_is_not_tried_again(turn: Turn) -> None:
    with OpenAIServer([turn]) as server:
        reply = endpoint_at(server).ask(CHAT, SCHEMA)
    assert reply.error
    assert not reply.text.strip()
    assert len(server.chats) == 1


@pytest.mark.parametrize(("turn", "quoted", "text"), NO_REPLIES)
def test_a_body_that_is_no_completion_says_why_and_tells_nothing_of_the_mode(
    turn: Turn, quoted: str, text: str
) -> None:
    with OpenAIServer([turn]) as server:
        endpoint = endpoint_at(server)
        reply = endpoint.ask(CHAT, SCHEMA)
        assert len(server.chats) == 1
        server.script = [says(ANSWER)]
        assert endpoint.ask(CHAT, SCHEMA).mode == "json_schema"
    assert reply.error
    assert quoted in reply.error
    assert "\x1b" not in reply.error
    assert reply.text.strip() == text


def test_an_error_with_http_200_refuses_each_mode_and_says_why() -> None:
    with OpenAIServer([sends_json({"error": "no luck"})]) as server:
        with pytest.raises(RejectedError, match="no luck"):
            endpoint_at(server).ask(CHAT, SCHEMA)
        assert [mode_of(body) for body in server.chats] == [*SchemaMode]


def test_a_compressed_reply_is_read() -> None:
    body = gzip.compress(b'{"choices": [{"message": {"content": "{\\"a\\": 1}"}}]}')
    with OpenAIServer([sends(body, headers={"Content-Encoding": "gzip"})]) as server:
        assert endpoint_at(server).ask(CHAT, SCHEMA).text == ANSWER


def test_the_key_is_nowhere_to_be_seen(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    script = [says(f"my key is {KEY}"), refuses(401, f"Incorrect API key provided: {KEY}")]
    with OpenAIServer(script) as server:
        endpoint = endpoint_at(server)
        assert endpoint.ask(CHAT, SCHEMA).text == "my key is [secret]"
        with pytest.raises(EndpointError, match="AUTORESEARCH_LLM_API_KEY") as raised:
            endpoint.ask(CHAT, SCHEMA)
    for text in (str(raised.value), repr(raised.value), repr(endpoint), caplog.text):
        assert KEY not in text


def test_credentials_in_the_url_are_sent_and_not_shown(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    with OpenAIServer([says(ANSWER), refuses(500)]) as server:
        url = server.url.replace("http://", "http://me:hunter22@")
        endpoint = Endpoint(f"{url}?token=abc", "tiny", patience=QUICK)
        endpoint.ask(CHAT, SCHEMA)
        with pytest.raises(EndpointError) as raised:
            endpoint.ask(CHAT, SCHEMA)
    assert set(server.authorizations) == {"Basic bWU6aHVudGVyMjI="}
    for text in (str(raised.value), repr(endpoint)):
        assert "hunter22" not in text
        assert "token=abc" not in text
    assert "hunter22" not in caplog.text


def test_without_a_key_none_of_the_environments_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setenv("OPENAI_ADMIN_KEY", KEY)
    monkeypatch.setenv("OPENAI_CUSTOM_HEADERS", f"Authorization: Bearer {KEY}")
    monkeypatch.setenv("OPENAI_ORG_ID", "org-mine")
    monkeypatch.setenv("OPENAI_PROJECT_ID", "proj-mine")
    with OpenAIServer([says(ANSWER)]) as server:
        Endpoint(server.url, "tiny", None, patience=QUICK).ask(CHAT, SCHEMA)
    assert set(server.authorizations) == {"Bearer none"}
    assert not any("mine" in value for _, sent in server.requests for value in sent.values())


BAD_URLS = "|ftp://host/v1|https:/models.example/v1|https|http://|http://[::1|http://h:99999/v1"


@pytest.mark.parametrize("url", [*BAD_URLS.split("|"), "h:port/v1"])
def test_a_base_url_that_is_none(url: str) -> None:
    with pytest.raises(SettingsError, match="AUTORESEARCH_LLM_BASE_URL"):
        Endpoint(url, "m")


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
        *(({"max_model_len": length}, None) for length in (10**400, -1, True, 1.5, "2048")),
    ],
)
def test_the_context_is_what_the_list_of_models_says(tells: Any, context: int | None) -> None:
    with OpenAIServer([says(ANSWER)], tells=tells) as server:
        endpoint = endpoint_at(server, model="tiny")
        assert endpoint.context == endpoint.context == context
        assert server.models_asked == 1
        endpoint.ask(CHAT, SCHEMA)


@pytest.mark.parametrize(("models", "context"), [(("one",), 4096), (("one", "two"), None)])
def test_the_only_model_is_meant_by_any_name(models: tuple[str, ...], context: int | None) -> None:
    with OpenAIServer([says(ANSWER)], models=models, tells={"max_model_len": 4096}) as server:
        assert endpoint_at(server, model="mine").context == context


def test_a_server_without_a_list_of_models_has_said_nothing() -> None:
    with OpenAIServer([says(ANSWER)]) as server:
        server.elsewhere = refuses(404, "Not Found")
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
    assert server.chats[-1]["max_tokens"] == 1024


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (
            b'{"detail": [{"loc": ["body", "prompt"], "msg": "Field required"}, {"msg": "no"}]}',
            r".*Field required.*",
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
