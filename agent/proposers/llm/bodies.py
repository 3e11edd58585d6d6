"""Read the bodies of a chat endpoint's responses.

Servers deviate from the protocol in small ways: a stream that nobody asked for, text in parts, an
error inside a success. One rule reads them all: a body is a sequence of JSON objects, whose pieces
of text are joined in their order. A body of any other shape is no chat completion.
"""

import json
import re
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from agent.menu.reply_objects import THOUGHT
from agent.proposers.llm.completions import Json, Reply
from agent.proposers.llm.failures import error_text
from autoresearch.safe_text import one_line

MAX_COUNT = 10**9
"""Larger than any real token count."""
QUOTED_CHARACTERS = 100
"""Most characters to repeat of an unexpected body."""

_NO_CHAT = re.compile(
    r"embed|rerank|moderation|guard|shield|whisper|dall-e|stable-diffusion|transcri|nvclip"
    r"|(^|[-_/ ])(bge|e5|gte|minilm|clip|tts|asr|ocr|flux|sdxl|sora|reward|colbert|audio|realtime"
    r"|images?|imagen|speech|parakeet|pii|topic-control|instruct-base)([-_./: ]|$)",
    re.IGNORECASE,
)
"""Name patterns and kinds of models that do not chat."""
_CUT = re.compile("length|max_(output_)?tokens", re.IGNORECASE)
"""Reasons of servers for a reply that was cut off."""
_THOUGHTS = ("reasoning_content", "reasoning")
"""Fields of a message that hold thoughts, on one server or another."""
_CONTEXTS = (
    "max_model_len loaded_context_length context_length context_window max_context_length".split()
)
"""Keys of a model's context."""


def reply_of(body: str, mode: str, latency_s: float, redact: Callable[[str], str]) -> Reply:
    """Return the reply in the body of a chat completion, or of a stream of its pieces.

    :param redact: removes secrets from stored text.
    :raises ValueError: if it is an error, with its explanation.
    """
    said: defaultdict[str, str] = defaultdict(str)
    calls: defaultdict[int, str] = defaultdict(str)
    usage: Any = {}
    error: Any = None
    why: str | None = None
    shape, is_completion, reason = "not a chat completion", False, ""
    try:
        for document in _objects(body):
            usage = document.get("usage") or usage
            error = document.get("error") or error
            for choice in document.get("choices") or ():
                is_completion = True
                piece = choice.get("message") or choice.get("delta") or {}
                reason = text_of(choice.get("finish_reason")) or reason
                error = choice.get("error") or piece.get("error") or error
                for name in ("content", *_THOUGHTS, "refusal"):
                    said[name] += text_of(piece.get(name))
                for place, call in enumerate(piece.get("tool_calls") or ()):
                    arguments = call.get("function", {}).get("arguments")
                    calls[call.get("index", place)] += text_of(arguments)
    except json.JSONDecodeError as broken:
        shape, is_completion = f"broken JSON ({broken})", False
    except (AttributeError, TypeError, RecursionError):
        is_completion = False
    if error and not is_completion:
        raise ValueError(error_text(error))
    called = "\n".join(calls.values()) if "{" not in said["content"] else ""
    # Some servers classify all output as thoughts; then the answer is among them.
    text = next((each for each in (called, *said.values()) if each.strip()), "")
    thinks = any(map(said.get, _THOUGHTS)) or bool(THOUGHT.search(said["content"]))
    if not is_completion:
        text, why = body, f"the reply is {shape}: {_quoted(redact(body))}"
    elif error:
        why = f"the server put an error in its reply: {_quoted(redact(error_text(error)))}"
    elif _CUT.search(reason):
        why, reason = "the reply was cut off at the token limit", "length"
        thinks = thinks or not text.strip()
    elif not text.strip():
        why = f"the reply is empty (finish_reason {_quoted(redact(reason))})"
    text = redact(text).encode("utf-8", "replace").decode()  # no half of a surrogate pair
    asked, answered = _count(usage, "prompt_tokens"), _count(usage, "completion_tokens")
    return Reply(text, mode, latency_s, why, reason or None, asked, answered, thinks)


def _objects(body: str) -> list[Json]:
    """Return the JSON objects of a body: one, or those of a stream that was not asked for."""
    bare = re.sub(r"(?m)^data: ?", "", body)
    found: list[Json] = []
    end = 0
    while (start := bare.find("{", end)) >= 0:
        document, end = json.JSONDecoder().raw_decode(bare, start)
        found.append(document)
    return found


def text_of(value: Any) -> str:
    """Return a field's text; if it is in parts, without those that are not of the answer."""
    if isinstance(value, list):
        parts = [part if isinstance(part, dict) else {"text": part} for part in value]
        kinds = ("text", "output_text")
        return "".join(
            text_of(part.get("text")) for part in parts if part.get("type", "text") in kinds
        )
    text = json.dumps(value) if isinstance(value, dict) else value
    return text if isinstance(text, str) else ""


def _quoted(text: str) -> str:
    return one_line(text, QUOTED_CHARACTERS) or "(nothing)"


def _count(table: Any, name: str) -> int | None:
    """Return a number of tokens in a table, if it is one."""
    value = table.get(name) if isinstance(table, dict) else None
    return value if type(value) is int and 0 <= value <= MAX_COUNT else None


@dataclass(frozen=True, slots=True)
class ServedModel:
    """A model that a server lists."""

    id: str
    context: int | None
    """Most tokens of a question and its reply together, if reported."""
    chats: bool
    """Whether neither its name nor its kind is, for example, that of an embedding model."""


def read_models(body: str) -> list[ServedModel]:
    """Return the models in the body of a ``/models`` response.

    A name goes to the terminal and back to the server unchanged, so it must be plain. A name with
    an asterisk is a gateway's pattern, such as LiteLLM's ``*`` and ``openai/*``. The context's
    length is under the key of llama.cpp, vLLM and NIM, OpenRouter, Groq, LM Studio or Mistral.
    """
    try:
        listed: Any = json.loads(body)
        entries = listed if isinstance(listed, list) else listed["data"]
    except (ValueError, LookupError, TypeError, RecursionError):
        return []
    models = []
    for each in entries if isinstance(entries, list) else ():
        name = each.get("id") if isinstance(each, dict) else None
        if not name or not isinstance(name, str) or not name.isprintable() or "*" in name:
            continue
        meta = each.get("meta")
        lengths = [_count(meta, "n_ctx"), *(_count(each, key) for key in _CONTEXTS)]
        context = next(filter(None, [*lengths, _count(meta, "n_ctx_train")]), None)
        kinds = " ".join(str(each.get(kind)) for kind in ("id", "type", "task", "mode"))
        models.append(ServedModel(name, context, not _NO_CHAT.search(kinds)))
    return models
