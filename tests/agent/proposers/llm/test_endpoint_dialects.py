"""Check what servers say in their own words: refusals of length, streams that nobody asked for,
queued questions, spent accounts, and answers elsewhere than in the message's text."""

import gzip
import json
import zlib
from typing import Any

import pytest

from agent.menu.replies import read_reply
from agent.proposers.llm.endpoint import Endpoint
from agent.proposers.llm.failures import (
    ContextError,
    EndedError,
    EndpointError,
    RefusedError,
    RejectedError,
)
from agent.proposers.llm.prompt import Prompter
from agent.session.machine_checks import endpoint as doctor_of
from agent.settings.environment import Environment
from tests.support.endpoints import ANSWER, CHAT, KEY, QUICK, SCHEMA, endpoint_at, model_at
from tests.support.memories import memory_of, raw
from tests.support.openai_server import (
    OpenAIServer,
    Turn,
    mode_of,
    refuses,
    says,
    sends,
    sends_json,
)
from tests.support.ports import free_port
from tests.support.raw_server import RawServer, says_once
from trainer.schema import Budget

OVERFLOWS: dict[str, tuple[int, str, int | None]] = {
    "sglang": (
        400,
        "The input (61709 tokens) is longer than the model's context length (40960 tokens).",
        40960,
    ),
    "sglang, allowed": (
        400,
        "Input length (160062 tokens) exceeds the maximum allowed length (59862 tokens).",
        59862,
    ),
    "sglang, total": (
        400,
        "Requested token count exceeds the model's maximum context length of 4096 tokens. You "
        "requested a total of 5120 tokens: 4096 tokens from the input messages and 1024 tokens for "
        "the completion.",
        4096,
    ),
    "mistral": (
        400,
        "Prompt contains 65673 tokens and 0 draft tokens, too large for model with 32768 maximum "
        "context length",
        32768,
    ),
    "anthropic": (400, "prompt is too long: 207791 tokens > 200000 maximum", 200000),
    "gemini": (
        400,
        "The input token count (337807) exceeds the maximum number of tokens allowed (65536).",
        65536,
    ),
    "tensorrt-llm": (400, "Prompt length (5056) exceeds maximum sequence length (2048)", 2048),
    "tensorrt-llm, sum": (
        500,
        "The sum of prompt length (9351.0), query length (0) should not exceed max_num_tokens "
        "(8192)",
        8192,
    ),
    "tgi": (
        422,
        "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 2048. Given: 2531 "
        "`inputs` tokens and 64 `max_new_tokens`",
        2048,
    ),
    "tgi, inputs": (
        422,
        "Input validation error: `inputs` must have less than 1024 tokens. Given: 2531",
        1024,
    ),
    "groq": (400, "Please reduce the length of the messages or completion.", None),
    "groq, minute": (
        413,
        "Request too large for model `llama-3.1-8b-instant` on tokens per minute (TPM): Limit "
        "6000, Requested 7274, please reduce your message size and try again.",
        6000,
    ),
    "openai": (400, "Your input exceeds the context window of this model.", None),
    "openai, limit": (
        400,
        "Input tokens exceed the configured limit of 272,000 tokens. Your messages resulted in "
        "300,000 tokens.",
        272_000,
    ),
    "vllm": (
        400,
        "You passed 2531 input tokens and requested 1024 output tokens. However, the model's "
        "context length is only 2048 tokens, resulting in a maximum input length of 1024 tokens.",
        2048,
    ),
    "vllm, max_model_len": (
        400,
        "max_tokens=1024 cannot be greater than max_model_len=512. Please request fewer output "
        "tokens.",
        512,
    ),
    "xai": (
        400,
        "This model's maximum prompt length is 131072 but the request contains 537812 tokens.",
        131072,
    ),
    "cohere": (
        400,
        "too many tokens: total number of tokens in the prompt cannot exceed 4081 - received 4292",
        4081,
    ),
    "kimi": (400, "Your request exceeded model token limit: 262144 (requested: 300000)", 262144),
    "copilot": (400, "prompt token count of 5000 exceeds the limit of 4096", 4096),
    "deepseek": (
        400,
        "length of prompt_tokens (163280) must be less than max_seq_len (32768).",
        32768,
    ),
    "qwen": (400, "Range of input length should be [1, 30720]", 30720),
    "bedrock": (400, "Input is too long for requested model.", None),
    "ollama": (400, "the input length exceeds the context length", None),
    "lm studio": (
        400,
        "Trying to keep the first 10136 tokens when context the overflows. However, the model is "
        "loaded with context length of only 7866 tokens, which is not enough.",
        7866,
    ),
    "cerebras": (
        400,
        "Please reduce the length of the messages or completion. Current length is 39148 while "
        "limit is 8192",
        8192,
    ),
    "kilo": (400, "This endpoint's maximum context length is 32k tokens.", 32_000),
    "nginx": (413, "Request Entity Too Large", None),
}


@pytest.mark.parametrize(("status", "said", "context"), OVERFLOWS.values(), ids=OVERFLOWS)
def test_a_question_that_is_too_long_is_asked_once_and_then_shorter(
    status: int, said: str, context: int | None
) -> None:
    with OpenAIServer([refuses(status, said)]) as server:
        endpoint = endpoint_at(server, model="tiny")
        with pytest.raises(ContextError):
            endpoint.ask(CHAT, SCHEMA)
        assert context in {endpoint.context, None}
        assert len(server.chats) == 1
    if context is not None and context < 2048:
        return  # no prompt fits
    memory, good = memory_of(60), raw({"lr": 0.004})
    with OpenAIServer([refuses(status, said), says(good)]) as server:
        assert model_at(server).propose(memory).reply == read_reply(good)
        assert len(server.chats) == 2
        assert {mode_of(chat) for chat in server.chats} == {"json_schema"}
    long, short = (sum(len(turn["content"]) for turn in chat["messages"]) for chat in server.chats)
    asked = Prompter(Budget()).prompt(memory).tokens
    if context is None:
        assert 0.3 * long < short < 0.7 * long
    elif context < asked:
        assert short < long


BODIES = [
    b'[{"error": {"code": 400, "message": "%s", "status": "INVALID_ARGUMENT"}}]',
    b'{"object": "error", "message": "%s", "type": "BadRequestError", "code": 400}',
    b'{"error": "%s", "error_type": "validation"}',
    b'{"detail": [{"msg": "%s"}]}',
    b'{"error": {"message": "Provider returned error", "code": 400, "metadata": {"raw": "%s"}}}',
    b"%s",
]


@pytest.mark.parametrize("body", BODIES)
def test_the_number_is_found_wherever_the_refusal_is(body: bytes) -> None:
    said = b"The input (61709 tokens) is longer than the model's context length (40960 tokens)."
    with OpenAIServer([sends(body % said, 400)]) as server:
        endpoint = endpoint_at(server, model="tiny")
        with pytest.raises(ContextError):
            endpoint.ask(CHAT, SCHEMA)
        assert endpoint.context == 40960


def test_a_number_that_was_too_large_is_halved() -> None:
    said = "This model's maximum context length is 4000 tokens."
    with OpenAIServer([refuses(400, said), refuses(400, said), says(raw({"lr": 0.004}))]) as server:
        llm = model_at(server)
        with pytest.raises(Exception, match="HTTP 400"):
            llm.propose(memory_of(60))
        llm.propose(memory_of(60))
    lengths = [sum(len(turn["content"]) for turn in chat["messages"]) for chat in server.chats]
    assert lengths[0] > lengths[1] > lengths[2]


def test_a_success_that_says_that_the_question_is_too_long_is_a_refusal() -> None:
    said = {"error": {"message": "maximum context length is 2048 tokens", "code": 400}}
    with OpenAIServer([sends_json(said)]) as server:
        endpoint = endpoint_at(server, model="tiny")
        with pytest.raises(ContextError):
            endpoint.ask(CHAT, SCHEMA)
        assert (endpoint.context, len(server.chats)) == (2048, 1)


@pytest.mark.parametrize(
    "said",
    [
        "Invalid schema for response_format 'reply': expected at most 1000 enum values, got 1200",
        "total string length of enum values exceeds 15000 characters in schema",
        "unknown field response_format: grammar too long",
    ],
)
def test_a_schema_that_is_too_long_is_no_question_that_is_too_long(said: str) -> None:
    with OpenAIServer(
        [says(ANSWER)], rejects=["json_schema"], rejection=refuses(400, said)
    ) as server:
        assert endpoint_at(server).ask(CHAT, SCHEMA).mode == "json_object.schema"


def chunk(delta: dict[str, Any], finish: str | None = None, **more: Any) -> dict[str, Any]:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return {"id": "c", "object": "chat.completion.chunk", "choices": [choice], **more}


PIECES = [
    chunk({"role": "assistant", "content": None}),
    chunk({"reasoning_content": "hm"}),
    chunk({"content": ANSWER[:3]}),
    chunk({"content": ANSWER[3:]}),
    chunk({}, "stop"),
    {"id": "c", "choices": [], "usage": {"prompt_tokens": 101, "completion_tokens": 7}},
]
CALLS = [
    chunk({"tool_calls": [{"index": 0, "id": "a", "function": {"name": "f", "arguments": ""}}]}),
    chunk({"tool_calls": [{"index": 0, "function": {"arguments": ANSWER[:3]}}]}),
    chunk({"tool_calls": [{"index": 0, "function": {"arguments": ANSWER[3:]}}]}),
]
WHOLE = {"id": "c", "choices": [{"index": 0, "message": {"role": "assistant", "content": ANSWER}}]}


def stream(pieces: list[dict[str, Any]], end: str = "\n\n", head: str = "") -> bytes:
    lines = [f"data: {json.dumps(piece)}" for piece in pieces]
    return (head + end.join([*lines, "data: [DONE]", ""])).encode()


STREAMS = {
    "events": stream(PIECES),
    "line ends": stream(PIECES, "\r\n\r\n"),
    "comments": stream(PIECES, "\n\n: keep-alive\n\n", ": OPENROUTER PROCESSING\n\n"),
    "named events": stream(PIECES, "\n\nevent: chunk\n"),
    "calls": stream(CALLS),
    "a whole completion": stream([WHOLE]),
    "behind a completion": json.dumps(WHOLE).encode() + b"\n\ndata: [DONE]\n\n",
    "lines of JSON": "\n".join(map(json.dumps, PIECES)).encode(),
    "not ended": stream(PIECES[:4])[: -len(b"data: [DONE]\n\n")],
    "spread": b"data: " + json.dumps(WHOLE, indent=1).replace("\n", "\ndata: ").encode() + b"\n\n",
}


@pytest.mark.parametrize("body", STREAMS.values(), ids=STREAMS)
@pytest.mark.parametrize("kind", ["text/event-stream", "application/json"])
def test_a_stream_that_nobody_asked_for_is_joined(body: bytes, kind: str) -> None:
    with OpenAIServer([sends(body, headers={"Content-Type": kind})]) as server:
        reply = endpoint_at(server).ask(CHAT, SCHEMA)
        assert (reply.text, reply.error, len(server.chats)) == (ANSWER, None, 1)
    if body == STREAMS["events"]:
        assert (reply.prompt_tokens, reply.completion_tokens, reply.thinks) == (101, 7, True)


def test_an_error_within_a_stream_is_the_replys_error() -> None:
    body = stream([*PIECES[:3], {"error": {"message": "engine died", "code": 500}}])
    with OpenAIServer([sends(body)]) as server:
        assert "engine died" in (endpoint_at(server).ask(CHAT, SCHEMA).error or "")


def test_a_queued_question_is_polled() -> None:
    """NVIDIA's cloud answers so."""
    queued = sends_json({}, 202, {"NVCF-REQID": "abc", "NVCF-STATUS": "pending-evaluation"})
    with OpenAIServer([queued, says(ANSWER)]) as server:
        server.pages["/v1/status/abc"] = [queued, refuses(503), sends(b"", 202), says(ANSWER)]
        reply = endpoint_at(server, model="tiny").ask(CHAT, SCHEMA)
        assert (reply.text, len(server.chats)) == (ANSWER, 1)
    polls = [asked for asked, _ in server.requests if asked.startswith("GET")]
    assert polls == ["GET /v1/status/abc"] * 4
    assert {headers["authorization"] for _, headers in server.requests} == {f"Bearer {KEY}"}


def test_a_queued_question_without_a_job_is_asked_once_and_polled_nowhere_else() -> None:
    with OpenAIServer([says(ANSWER)]) as other:
        for headers in ({"Location": f"{other.url}/jobs/7"}, {}):
            with OpenAIServer([sends(b"", 202, headers)]) as server:
                with pytest.raises(RefusedError):
                    endpoint_at(server, model="tiny").ask(CHAT, SCHEMA)
                assert len(server.requests) == 1
        for job in (f"{other.url}/jobs/7", "//other/x"):
            with OpenAIServer([sends(b"", 202, {"NVCF-REQID": job})]) as server:
                server.elsewhere = says(ANSWER)
                endpoint_at(server, model="tiny").ask(CHAT, SCHEMA)
                assert len(server.requests) == 2
        assert other.requests == []


def test_only_what_the_client_decodes_is_offered() -> None:
    with OpenAIServer([says(ANSWER)]) as server:
        endpoint_at(server, model="tiny").ask(CHAT, SCHEMA)
    ((_, headers),) = server.requests
    offered = {each.strip() for each in headers["accept-encoding"].split(",")}
    body = json.dumps(WHOLE).encode()
    encoders = {"gzip": gzip.compress, "deflate": zlib.compress}
    assert offered
    for name in offered & set(encoders):
        turn = sends(encoders[name](body), headers={"Content-Encoding": name})
        with OpenAIServer([turn]) as server:
            assert endpoint_at(server).ask(CHAT, SCHEMA).text == ANSWER
    assert offered <= set(encoders) | {"br", "zstd"}


def test_a_request_names_the_openai_package() -> None:
    with OpenAIServer([says(ANSWER)]) as server:
        endpoint_at(server).ask(CHAT, SCHEMA)
    assert {headers["user-agent"].split("/")[0] for _, headers in server.requests} == {"OpenAI"}


def coded(status: int, message: str, code: str) -> Turn:
    return sends_json({"error": {"message": message, "type": code, "code": code}}, status)


ENDS = [
    coded(429, "You exceeded your current quota, please check your plan.", "insufficient_quota"),
    refuses(402, "Insufficient Balance"),
    refuses(400, "Your credit balance is too low to access the API."),
    refuses(403, "Your account has been deactivated."),
    coded(400, "Access denied, please make sure your account is in good standing.", "Arrearage"),
    refuses(429, "Your account is not active, please check your billing details on our website."),
    refuses(
        404, "This is not a chat model and thus not supported in the v1/chat/completions endpoint."
    ),
    refuses(404, "This model is only supported in v1/responses and not in v1/chat/completions."),
    refuses(400, "The model `o` is available only through the Responses API."),
    refuses(400, '"nomic-embed-text" does not support chat'),
    refuses(400, "The model `e5` does not support Chat Completions API"),
    refuses(501, "This server does not support chat completions. Start it without --embeddings"),
    sends_json({"error": {"message": "Insufficient credits", "code": 402}}),
]


@pytest.mark.parametrize("turn", ENDS)
def test_what_no_question_can_pass_is_final_for_the_night(turn: Turn) -> None:
    with OpenAIServer([turn]) as server:
        endpoint = endpoint_at(server, model="tiny")
        for _ in range(3):
            with pytest.raises(EndedError):
                endpoint.ask(CHAT, SCHEMA)
        assert len(server.chats) == 1


@pytest.mark.parametrize(
    "turn",
    [
        refuses(429, "Rate limit reached for requests per minute. Please try again in 1s."),
        refuses(
            429,
            "You exceeded your current quota, please check your plan and billing details. Quota "
            "exceeded for metric: requests per minute. Please retry in 1.5s.",
        ),
        refuses(429, "Too many tokens per minute: limit 6000, used 5000, requested 2000"),
    ],
)
def test_a_limit_that_passes_is_waited_for(turn: Turn) -> None:
    with OpenAIServer([turn, turn, says(ANSWER)]) as server:
        assert endpoint_at(server).ask(CHAT, SCHEMA).text == ANSWER


def choice(message: dict[str, Any], **fields: Any) -> Turn:
    return sends_json({"choices": [{"index": 0, "message": message, **fields}]})


EMPTY = {"role": "assistant", "content": ""}


@pytest.mark.parametrize(
    ("turn", "said"),
    [
        (choice(EMPTY, finish_reason="content_filter"), "content_filter"),
        (choice(EMPTY, finish_reason="SAFETY"), "SAFETY"),
        (
            choice(EMPTY, finish_reason="error", error={"code": 502, "message": "upstream died"}),
            "died",
        ),
        (choice({**EMPTY, "error": "upstream died"}), "upstream died"),
        (choice(EMPTY, finish_reason="malformed_function_call"), "malformed_function_call"),
        (choice(EMPTY, finish_reason="stop"), "stop"),
    ],
)
def test_a_reply_without_an_answer_names_the_reason(turn: Turn, said: str) -> None:
    with OpenAIServer([turn]) as server:
        reply = endpoint_at(server).ask(CHAT, SCHEMA)
    assert said in (reply.error or "")


def test_a_refusal_is_what_the_model_said() -> None:
    with OpenAIServer([says(None, refusal="I will not.")]) as server:
        assert endpoint_at(server).ask(CHAT, SCHEMA).text == "I will not."


@pytest.mark.parametrize("reason", ["max_tokens", "model_length", "MAX_TOKENS"])
def test_a_reply_cut_in_other_words_is_asked_for_again(reason: str) -> None:
    with OpenAIServer([choice({"content": "{"}, finish_reason=reason), says(ANSWER)]) as server:
        assert endpoint_at(server).ask(CHAT, SCHEMA).text == ANSWER


def call(arguments: object) -> dict[str, Any]:
    return {"id": "1", "type": "function", "function": {"name": "f", "arguments": arguments}}


THOUGHT = {"type": "thinking", "thinking": [{"type": "text", "text": '{"a": 0}'}]}


@pytest.mark.parametrize(
    "turn",
    [
        says([THOUGHT, {"type": "text", "text": ANSWER}]),
        says([{"type": "reasoning", "text": '{"a": 0}'}, {"type": "output_text", "text": ANSWER}]),
        says([{"type": "commentary", "text": "{}"}, ANSWER]),
        says({"a": 1}),
        says(None, tool_calls=[call({"a": 1})]),
    ],
)
def test_thoughts_in_parts_are_no_second_object(turn: Turn) -> None:
    with OpenAIServer([turn]) as server:
        assert endpoint_at(server).ask(CHAT, SCHEMA).text == ANSWER


def test_a_second_call_is_not_dropped() -> None:
    first, second = raw({"lr": 0.004}), raw({"lr": 0.005})
    with OpenAIServer([says(None, tool_calls=[call(first), call(second)]), says(first)]) as server:
        attempts = model_at(server).propose(memory_of(5)).record.attempts
    assert [attempt.verdict and attempt.verdict.allowed for attempt in attempts] == [False, True]
    with OpenAIServer([says(None, tool_calls=[call(first), call(first)])]) as server:
        assert len(model_at(server).propose(memory_of(5)).record.attempts) == 1


@pytest.mark.parametrize("body", [b'{"id": "c", "choices": [{"mess', b'data: {"id": "c", "cho'])
def test_broken_json_is_called_broken(body: bytes) -> None:
    with OpenAIServer([sends(body)]) as server:
        error = endpoint_at(server).ask(CHAT, SCHEMA).error or ""
    assert "JSON" in error
    assert "chat completion" not in error


def advice_of(url: str) -> str:
    with pytest.raises(EndpointError) as raised:
        Endpoint(url, "tiny", patience=QUICK).ask(CHAT, SCHEMA)
    return str(raised.value).rpartition("; ")[2]


def test_each_failure_has_its_own_advice() -> None:
    speeches = [
        b"",
        b"SSH-2.0-OpenSSH_9.6\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{",
    ]
    advice = [
        advice_of(f"http://127.0.0.1:{free_port()}/v1"),
        advice_of("http://no-such-host.invalid/v1"),
    ]
    for speech in speeches:
        with RawServer(says_once(speech)) as server:
            advice.append(advice_of(f"http://127.0.0.1:{server.port}/v1"))
    with RawServer(says_once(b"HTTP/1.1 200 OK\r\n\r\n")) as server:
        advice.append(advice_of(f"https://127.0.0.1:{server.port}/v1"))
    assert len({*advice}) >= len(advice) - 1, advice
    assert not any("certificate" in each for each in advice[:5])


@pytest.mark.parametrize("url", ["http://localhost:99999/v1", "localhost:99999", "ftp://host/v1"])
def test_the_doctor_finds_a_url_with_which_no_loop_starts(url: str) -> None:
    assert doctor_of(Environment(llm_base_url=url)).state == "bad"


def test_a_model_copied_with_its_line_end_is_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUTORESEARCH_LLM_MODEL", " tiny\r\n")
    assert Environment().llm_model == "tiny"
    with OpenAIServer([says(ANSWER)]) as server:
        endpoint_at(server, model="tiny\r").ask(CHAT, SCHEMA)
    assert server.chats[0]["model"] == "tiny"


@pytest.mark.parametrize(
    "first",
    [
        {"id": "omni-moderation-latest"},
        {"id": "meta-llama/llama-guard-4-12b"},
        {"id": "shieldgemma-9b"},
        {"id": "llama-3.1-nemoguard-8b-topic-control"},
        {"id": "whisper-large-v3"},
        {"id": "gpt-4o-mini-tts"},
        {"id": "some/model", "type": "moderation"},
        {"id": "some/model", "task": "embed"},
    ],
)
@pytest.mark.parametrize("as_list", [False, True])
def test_a_listed_model_that_does_not_chat_is_not_chosen(first: Any, as_list: bool) -> None:
    listed = [first, {"id": "tiny", "type": "chat", "max_model_len": 4096}]
    with OpenAIServer([says(ANSWER)]) as server:
        server.elsewhere = sends_json(listed if as_list else {"data": listed})  # type: ignore[arg-type]
        endpoint = endpoint_at(server)
        assert (endpoint.model, endpoint.context) == ("tiny", 4096)


@pytest.mark.parametrize(
    "body",
    [
        {"response": "text"},
        {"output": [5, {"type": "message", "content": 5}], "usage": 3, "incomplete_details": "x"},
        {"choices": {"0": {}}},
        {"choices": [None, 5, {"index": 1, "message": {"content": ANSWER}}]},
        {"choices": [{"message": "x"}]},
        {"choices": [{"message": {"content": 5, "tool_calls": {"a": 1}, "refusal": []}}]},
        {"choices": [{"message": {"content": [[[5]], {"type": 3, "text": {}}]}}]},
        {"choices": [{"delta": {"content": None}, "finish_reason": {"a": 1}}], "usage": "x"},
    ],
)
def test_a_body_of_other_types_is_an_unusable_reply(body: Any) -> None:
    with OpenAIServer([sends_json(body)]) as server:
        assert endpoint_at(server).ask(CHAT, SCHEMA).error


def test_a_question_that_the_filter_refuses_is_asked_once() -> None:
    with OpenAIServer([coded(400, "The prompt triggered the policy.", "content_filter")]) as server:
        with pytest.raises(RefusedError) as raised:
            endpoint_at(server, model="tiny").ask(CHAT, SCHEMA)
        assert len(server.chats) == 1
    assert not isinstance(raised.value, RejectedError)
