"""Read the bodies of a chat endpoint's responses.

Servers deviate from the protocol in small ways: a stream that nobody asked for, text in parts,
fields of other types. So a body becomes the ``openai`` package's own type without validation, and a
field that cannot be used counts as missing.
"""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from openai.types.chat import ChatCompletion, ChatCompletionMessage
from openai.types.chat.chat_completion import Choice

from agent.menu.reply_objects import THOUGHT
from agent.proposers.llm.completions import Json, Reply
from autoresearch.safe_text import plain

MAX_COUNT = 10**9
"""Larger than any real token count."""
QUOTED_CHARACTERS = 100
"""Most characters to repeat of an unexpected body."""

_NO_CHAT = re.compile(
    r"embed|rerank|moderation|guard|shield|whisper|dall-e|stable-diffusion|transcribe|nvclip"
    r"|(^|[-_/])(bge|e5|gte|minilm|clip|tts|asr|ocr|flux|sdxl|sora|reward|colbert|audio|realtime"
    r"|image|imagen|speech|parakeet|pii|topic-control|instruct-base)([-_./:]|$)",
    re.IGNORECASE,
)
"""Name patterns of models that do not chat."""
_NO_CHAT_KINDS = frozenset(
    "embedding embeddings embed moderation moderations rerank reranker image images audio"
    " transcribe speech text-to-speech speech-to-text completion".split()
)
"""Kinds by which servers list such models."""
_CUT = frozenset("length max_tokens model_length max_output_tokens max_length".split())
"""Reasons of servers for a reply that was cut off."""
_FILTERED = re.compile(r"filter|safety|sensitive|prohibited|blocklist|recitation", re.IGNORECASE)
_THOUGHT_PART = re.compile(r"think|thought|reason|commentary", re.IGNORECASE)
_CONTEXTS = (
    "max_model_len loaded_context_length context_length context_window max_context_length".split()
)
"""Keys of a model's context."""


def json_documents(text: str) -> list[Json]:
    """Return the JSON objects of a body: one, or those of a stream that was not asked for.

    :raises ValueError: if one is broken.
    """
    bare = re.sub(r"(?m)^data: ?", "", text)
    documents: list[Json] = []
    end = 0
    try:
        while (start := bare.find("{", end)) >= 0:
            document, end = json.JSONDecoder().raw_decode(bare, start)
            documents.append(document)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    return documents


def read_completion(text: str) -> ChatCompletion | None:
    """Return the chat completion in a body, with the pieces of a stream joined; None if there is
    none. A response of ``/v1/responses`` is converted.

    :raises ValueError: on broken JSON.
    """
    whole: Json = {}
    choice: Json = {}
    message: Any = {}
    for document in json_documents(text):
        found = _table(document.get("response")) or document
        found = _as_chat(found) if isinstance(found.get("output"), list) else found
        whole |= {name: value for name, value in found.items() if value is not None}
        choices = found.get("choices")
        for one in choices if isinstance(choices, list) else ():
            if isinstance(one, dict) and one.get("index") not in range(1, 1000):
                choice |= {name: value for name, value in one.items() if value is not None}
                piece = one.get("message") or one.get("delta") or {"content": one.get("text")}
                message = _joined(message, piece)
    completion = ChatCompletion.construct(**{**whole, "choices": [{**choice, "message": message}]})
    first = completion.choices[0]
    is_usable = isinstance(first, Choice) and isinstance(first.message, ChatCompletionMessage)
    return completion if choice and is_usable else None


def _joined(old: Any, new: Any) -> Any:
    """Return a value with the next piece of a stream added."""
    if isinstance(old, str) and isinstance(new, str):
        return old + new
    if isinstance(old, dict) and isinstance(new, dict):
        return {**old, **{name: _joined(old.get(name), value) for name, value in new.items()}}
    if not isinstance(old, list) or not isinstance(new, list):
        return old if new is None else new
    whole = [*old]
    for item in new:
        place = item.get("index") if isinstance(item, dict) else None
        if isinstance(place, int) and place < len(whole):
            whole[place] = _joined(whole[place], item)
        else:
            whole.append(item)
    return whole


def _as_chat(response: Json) -> Json:
    """Return the chat completion that says the same as a response of ``/v1/responses``."""
    items = [item for item in response["output"] if isinstance(item, dict)]
    said = [item for item in items if item.get("type") == "message"]
    calls = [{"function": item} for item in items if item.get("type") == "function_call"]
    thoughts = [item for item in items if item.get("type") == "reasoning"]
    parts = [item.get("content") for item in said if not _is_thought(item)]
    message = {"content": parts, "tool_calls": calls}
    usage, why = _table(response.get("usage")), _table(response.get("incomplete_details"))
    return {
        "choices": [
            {
                "message": {**message, "reasoning": _thoughts_in(thoughts)},
                "finish_reason": why.get("reason"),
                "error": response.get("error"),
            }
        ],
        "usage": {
            "prompt_tokens": usage.get("input_tokens"),
            "completion_tokens": usage.get("output_tokens"),
        },
    }


def as_text(value: object) -> str:
    """Return a field's text without unpaired surrogates, and without thoughts if it is in parts."""
    if isinstance(value, list):
        return "".join(as_text(part) for part in value if not _is_thought(part))
    if isinstance(value, dict) and ("type" in value or "text" in value):
        inner = (value.get(name) for name in ("text", "thinking", "content", "summary"))
        return as_text(next(filter(None, inner), ""))
    text = json.dumps(value) if isinstance(value, dict) else value
    return text.encode("utf-8", "replace").decode() if isinstance(text, str) else ""


def _thoughts_in(value: object) -> str:
    """Return the thoughts in a text in parts."""
    parts = value if isinstance(value, list) else []
    return "".join(as_text(part) for part in parts if _is_thought(part))


def _is_thought(part: object) -> bool:
    if not isinstance(part, dict):
        return False
    kinds = f"{part.get('type')} {part.get('phase')} {part.get('channel')}"
    return bool(_THOUGHT_PART.search(kinds)) or part.get("thought") is True


@dataclass(frozen=True, slots=True)
class ServedModel:
    """A model that a server lists."""

    id: str
    context: int | None = None
    """Most tokens of a question and its reply together, if reported."""
    chats: bool = True
    """Whether neither its name nor its kind is, for example, that of an embedding model."""


def read_models(text: str) -> list[ServedModel]:
    """Return the models in the body of a ``/models`` response.

    A name goes to the terminal and back to the server unchanged, so it must be plain. A name with
    an asterisk is a gateway's pattern, such as LiteLLM's ``*`` and ``openai/*``. The context's
    length is under the key of llama.cpp, vLLM and NIM, OpenRouter, Groq, LM Studio or Mistral.
    """
    try:
        listed: Any = json.loads(text)
    except (ValueError, RecursionError):
        return []
    listed = _table(listed).get("data", listed)
    models = []
    for each in map(_table, listed if isinstance(listed, list) else ()):
        name = each.get("id")
        if not isinstance(name, str) or not name.isprintable() or not 0 < len(name) <= 300:
            continue
        meta = _table(each.get("meta"))
        lengths = (meta.get("n_ctx"), *map(each.get, _CONTEXTS), meta.get("n_ctx_train"))
        context = next((length for length in map(_count, lengths) if length), None)
        is_able = _table(each.get("capabilities")).get("completion_chat") is not False
        kinds = {str(each.get(kind)).lower() for kind in ("type", "task", "mode")}
        chats = is_able and not (_NO_CHAT.search(name) or kinds & _NO_CHAT_KINDS)
        if "*" not in name:
            models.append(ServedModel(name, context, chats))
    return models


def _table(value: object) -> Json:
    return value if isinstance(value, dict) else {}


def _count(value: object) -> int | None:
    return value if type(value) is int and 0 <= value <= MAX_COUNT else None


def quoted(text: str, most: int = QUOTED_CHARACTERS) -> str:
    """Return the beginning of a server's text as plain text."""
    return " ".join(plain(text[: 4 * most]).split())[:most]


def reply_of(
    completion: ChatCompletion, mode: str, latency_s: float, redact: Callable[[str], str]
) -> Reply:
    """Return the reply in a chat completion.

    :param redact: removes secrets from stored text.
    """
    choice = completion.choices[0]
    message = choice.message
    more = {**(completion.model_extra or {}), **(choice.model_extra or {})}
    more |= message.model_extra or {}
    # Some servers classify all output as thoughts; then the answer is among them.
    fields = (more.get("reasoning_content"), more.get("reasoning"))
    thoughts = next(filter(None, map(as_text, fields)), "") or _thoughts_in(message.content)
    content, refusal = as_text(message.content), as_text(message.refusal)
    calls = [*(message.tool_calls if isinstance(message.tool_calls, list) else ())]
    functions = [*(getattr(call, "function", None) for call in calls), message.function_call]
    arguments = "\n".join(as_text(getattr(each, "arguments", None)) for each in functions).strip()
    is_call = "{" not in content and arguments
    text = next(
        (each for each in (arguments if is_call else content, thoughts) if each.strip()), ""
    )
    reason = choice.finish_reason if isinstance(choice.finish_reason, str) else None
    reason = "length" if str(reason).lower() in _CUT else reason
    error = None
    if more.get("error"):
        error = f"the server put an error in its reply: {quoted(redact(error_text(more['error'])))}"
    elif reason == "length":
        error = "the reply was cut off at the token limit"
    elif _FILTERED.search(reason or ""):
        error = f"the server's filter ended the reply ({quoted(redact(str(reason)))})"
    elif refusal.strip() and not content.strip():
        error = f"the model refuses: {quoted(redact(refusal))}"
    elif not text.strip():
        error = f"the reply is empty (finish_reason {quoted(redact(str(reason)))})"
    usage = completion.usage
    return Reply(
        redact(text),
        mode,
        latency_s,
        error,
        reason,
        _count(getattr(usage, "prompt_tokens", None)),
        _count(getattr(usage, "completion_tokens", None)),
        thinks=bool(thoughts.strip() or THOUGHT.search(content)),
    )


def error_text(body: object) -> str:
    """Return the explanation in an error's body, in OpenAI's form or in that of another server."""
    if isinstance(body, list):
        return " ".join(filter(None, map(error_text, body)))
    if isinstance(body, dict):
        names = ("message", "detail", "error", "msg", "errors", "code", "type")
        return next(filter(None, (error_text(body.get(name)) for name in names)), "")
    return body if isinstance(body, str) else ""
