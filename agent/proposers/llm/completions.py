"""What goes to a chat endpoint, and what came back, read from its raw bytes.

Local servers deviate from the protocol in small ways, so only what is needed is read, and whatever
is not there makes the reply unusable rather than raising.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from agent.menu.replies import THOUGHT
from autoresearch.plain_text import plain

MAX_COUNT = 10**9
"""More tokens than any server means."""
QUOTED_CHARACTERS = 100
"""What is repeated of a body that is not what was asked for."""

_NO_CHAT = re.compile(
    r"embed|rerank|(^|[-_/])(bge|e5|gte|minilm|clip|whisper|tts|dall-e|moderation)([-_/.]|$)",
    re.IGNORECASE,
)
"""Names of models that answer no chat."""


@dataclass(frozen=True, slots=True)
class Message:
    """One chat turn."""

    role: Literal["system", "user", "assistant"]
    content: str


@dataclass(frozen=True, slots=True)
class Reply:
    """One reply. Where ``error`` is set it is no answer, though ``text`` shows what there was."""

    text: str
    mode: str
    latency_s: float
    error: str | None = None
    """One sentence."""
    finish_reason: str | None = None
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    thinks: bool = False
    """Whether the model thought aloud before it answered, or instead."""
    is_completion: bool = True
    """False: what came is no chat completion at all."""


@dataclass(frozen=True, slots=True)
class ServedModel:
    """A model that a server lists."""

    id: str
    context: int | None
    """How many tokens a question and its reply may be together, where the server says so."""
    chats: bool = True
    """False: its name is that of a model for embeddings, say."""


def read_json(body: bytes) -> Any:
    """A JSON document in which every number is finite and of few digits; None where it is none.

    A number that is neither is None, as are NaN and Infinity.
    """
    try:
        return json.loads(
            body,
            parse_int=lambda digits: int(digits) if len(digits) < 20 else None,
            parse_float=lambda digits: float(digits) if math.isfinite(float(digits)) else None,
            parse_constant=lambda _: None,
        )
    except (ValueError, RecursionError):
        return None


def quoted(body: bytes) -> str:
    """The beginning of a body as plain text."""
    return " ".join(plain(body[:1000].decode("utf-8", "replace")).split())[:QUOTED_CHARACTERS]


def read_completion(
    body: bytes, mode: str, latency_s: float, redact: Callable[[str], str]
) -> Reply:
    """The reply in the body of a ``/chat/completions`` response.

    :param redact: takes secrets out of whatever text is kept.
    """
    completion = _table(read_json(body))
    choices = completion.get("choices")
    choice = _table(choices[0]) if isinstance(choices, list) and choices else {}
    if not isinstance(choice.get("message"), dict):
        shown = redact(body.decode("utf-8", "replace"))
        why = f"the reply is not a chat completion: {redact(quoted(body)) or '(nothing)'}"
        return Reply(shown, mode, latency_s, why, is_completion=False)
    message, usage = choice["message"], _table(completion.get("usage"))
    content, arguments = _text(message.get("content")), _arguments(message)
    thoughts = _text(message.get("reasoning_content")) or _text(message.get("reasoning"))
    # Where a server sorts all of a model's output into its thoughts, the answer is in there.
    said = [content] if "{" in content or not arguments.strip() else [arguments]
    text = next((each for each in (*said, thoughts) if each.strip()), "")
    reason, refusal = choice.get("finish_reason"), _text(message.get("refusal"))
    error = None
    if reason == "length":
        error = "the reply was cut off at the token limit"
    elif refusal.strip() and not content.strip():
        error = f"the model refuses: {redact(quoted(refusal.encode()))}"
    elif not text.strip():
        error = "the reply is empty"
    return Reply(
        redact(text),
        mode,
        latency_s,
        error,
        reason if isinstance(reason, str) else None,
        _count(usage.get("prompt_tokens")),
        _count(usage.get("completion_tokens")),
        thinks=bool(thoughts.strip() or THOUGHT.search(content)),
    )


def read_models(body: bytes) -> list[ServedModel]:
    """What the body of a ``/models`` response lists that may chat; empty where it lists nothing."""
    models = _table(read_json(body)).get("data")
    found = [_served(_table(model)) for model in models] if isinstance(models, list) else []
    return [model for model in found if model is not None]


def _served(model: dict[str, Any]) -> ServedModel | None:
    """The model, with its context under whichever name a server tells it: llama.cpp's (what it was
    started with), vLLM's and so NIM's, OpenRouter's, Groq's; else what it was trained for."""
    name, meta = model.get("id"), _table(model.get("meta"))
    # A name goes to a terminal and back to the server as it is, so it is plain or none.
    if not isinstance(name, str) or not name.isprintable() or not 0 < len(name) <= 300:
        return None
    told = (
        meta.get("n_ctx"),
        model.get("max_model_len"),
        model.get("context_length"),
        model.get("context_window"),
        meta.get("n_ctx_train"),
    )
    context = next((tokens for tokens in map(_count, told) if tokens), None)
    return ServedModel(name, context, chats=_NO_CHAT.search(name) is None)


def _count(told: object) -> int | None:
    is_count = isinstance(told, int) and not isinstance(told, bool) and 0 <= told <= MAX_COUNT
    return told if is_count else None  # type: ignore[return-value]


def _table(told: object) -> dict[str, Any]:
    return told if isinstance(told, dict) else {}


def _text(told: object) -> str:
    """The text of a message's field, which may come in parts, without halves of surrogate pairs."""
    if isinstance(told, list):
        parts = (part if isinstance(part, str) else _table(part).get("text") for part in told)
        told = "".join(part for part in parts if isinstance(part, str))
    return told.encode("utf-8", "replace").decode() if isinstance(told, str) else ""


def _arguments(message: dict[str, Any]) -> str:
    """The arguments of a function that the model calls in place of an answer."""
    calls = message.get("tool_calls")
    functions = [_table(call).get("function") for call in calls] if isinstance(calls, list) else []
    given = [_table(each).get("arguments") for each in (*functions, message.get("function_call"))]
    texts = (json.dumps(each) if isinstance(each, dict) else _text(each) for each in given)
    return "\n".join(text for text in texts if text)
