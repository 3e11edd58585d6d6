"""Define chat messages, parse the responses of a chat endpoint from raw bytes, and store chats.

Local servers deviate from the protocol in small ways. So only needed fields are read, and missing
ones make the reply unusable rather than raising.

The journal has a prompt's SHA-256 and every reply. Prompts would dominate the journal's size and
are needed only to make training data, so each is in a file beside it, named by its hash.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import TypeAdapter, ValidationError

from agent.menu.reply_objects import THOUGHT
from autoresearch.files import replace_file, writing_to
from autoresearch.plain_text import plain
from autoresearch.redaction import redact

MAX_COUNT = 10**9
"""Larger than any real token count."""
QUOTED_CHARACTERS = 100
"""Most characters to repeat of an unexpected body."""

ROLES = re.compile(r"\bsystem\b.*\b(role|message|prompt)|\broles?\b", re.IGNORECASE | re.DOTALL)
"""Phrases by which servers say that their chat template has no system role."""
_NO_CHAT = re.compile(
    r"embed|rerank|(^|[-_/])(bge|e5|gte|minilm|clip|whisper|tts|dall-e|moderation)([-_/.]|$)",
    re.IGNORECASE,
)
"""Name patterns of models that do not chat."""


@dataclass(frozen=True, slots=True)
class Message:
    """One chat message."""

    role: Literal["system", "user", "assistant"]
    content: str


def chat_json(messages: Sequence[Message], *, merges_system: bool) -> list[dict[str, Any]]:
    """Return a chat as the protocol has it.

    :param merges_system: put the system message before the first user message.
    """
    if merges_system:
        system = [message.content for message in messages if message.role == "system"]
        first, *rest = [message for message in messages if message.role != "system"]
        messages = [Message("user", "\n\n".join([*system, first.content])), *rest]
    return [asdict(message) for message in messages]


@dataclass(frozen=True, slots=True)
class Reply:
    """One reply. If ``error`` is set it is unusable, though ``text`` shows what was received."""

    text: str
    mode: str
    latency_s: float
    error: str | None = None
    """One sentence."""
    finish_reason: str | None = None
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    thinks: bool = False
    """Whether the model emitted thoughts before, or instead of, its answer."""
    is_completion: bool = True
    """False: the body is not a chat completion at all."""


@dataclass(frozen=True, slots=True)
class ServedModel:
    """A model that a server lists."""

    id: str
    context: int | None
    """Most tokens of a question and its reply together, if reported."""
    chats: bool = True
    """False: its name is, for example, that of an embedding model."""


def read_json(body: bytes) -> Any:
    """Parse a JSON document whose numbers are finite and short; None if it is invalid.

    Other numbers, NaN and Infinity become None.
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
    """Return the beginning of a body as plain text."""
    return " ".join(plain(body[:1000].decode("utf-8", "replace")).split())[:QUOTED_CHARACTERS]


def read_completion(
    body: bytes, mode: str, latency_s: float, redact: Callable[[str], str]
) -> Reply:
    """Return the reply in the body of a ``/chat/completions`` response.

    :param redact: removes secrets from stored text.
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
    # Some servers classify all output as thoughts; then the answer is among them.
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
    """Return the chat models in the body of a ``/models`` response."""
    models = _table(read_json(body)).get("data")
    found = [_served(_table(model)) for model in models] if isinstance(models, list) else []
    return [model for model in found if model is not None]


def _served(model: dict[str, Any]) -> ServedModel | None:
    """Return a listed model with its context length, under the key of llama.cpp (as started), vLLM
    and NIM, OpenRouter or Groq; else its training context."""
    name, meta = model.get("id"), _table(model.get("meta"))
    # A name goes to the terminal and back to the server unchanged, so it must be plain.
    if not isinstance(name, str) or not name.isprintable() or not 0 < len(name) <= 300:
        return None
    value = (
        meta.get("n_ctx"),
        model.get("max_model_len"),
        model.get("context_length"),
        model.get("context_window"),
        meta.get("n_ctx_train"),
    )
    context = next((tokens for tokens in map(_count, value) if tokens), None)
    return ServedModel(name, context, chats=_NO_CHAT.search(name) is None)


def _count(value: object) -> int | None:
    is_count = isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MAX_COUNT
    return value if is_count else None  # type: ignore[return-value]


def _table(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _text(value: object) -> str:
    """Return a message field's text, which may be in parts, without unpaired surrogates."""
    if isinstance(value, list):
        parts = (part if isinstance(part, str) else _table(part).get("text") for part in value)
        value = "".join(part for part in parts if isinstance(part, str))
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) else ""


def _arguments(message: dict[str, Any]) -> str:
    """Return the arguments of a function that the model calls instead of answering."""
    calls = message.get("tool_calls")
    functions = [_table(call).get("function") for call in calls] if isinstance(calls, list) else []
    given = [_table(each).get("arguments") for each in (*functions, message.get("function_call"))]
    texts = (json.dumps(each) if isinstance(each, dict) else _text(each) for each in given)
    return "\n".join(text for text in texts if text)


_MESSAGES: TypeAdapter[list[Message]] = TypeAdapter(list[Message])


def messages_json(messages: Sequence[Message]) -> str:
    """Return messages as they go over the wire."""
    return json.dumps([asdict(message) for message in messages], sort_keys=True)


def messages_sha256(messages: Sequence[Message]) -> str:
    """Return the hash of :func:`messages_json`; for a first request it is the journal's
    prompt_sha256."""
    return hashlib.sha256(messages_json(messages).encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class Conversations:
    """Conversations of one campaign, in a folder of its directory."""

    directory: Path

    def keep(self, prompt: Sequence[Message], messages: Sequence[Message]) -> None:
        """Store all messages of one iteration: the prompt, then each refused reply and its
        correction.

        :raises MachineryError: if the disk refuses.
        """
        path = self._path(messages_sha256(prompt))
        with writing_to(self.directory.parent):
            self.directory.mkdir(parents=True, exist_ok=True)
            replace_file(path, redact(messages_json(messages)))

    def read(self, prompt_sha256: str) -> list[Message] | None:
        """Return the messages of the iteration with this prompt; None if they are missing or do not
        match."""
        try:
            messages = _MESSAGES.validate_json(self._path(prompt_sha256).read_bytes())
        except (OSError, ValidationError):
            return None
        hashes = (messages_sha256(messages[:end]) for end in range(1, len(messages) + 1))
        return messages if prompt_sha256 in hashes else None

    def _path(self, sha256: str) -> Path:
        return self.directory / f"{sha256}.json"
