"""Define chat messages, parse the responses of a chat endpoint from raw bytes, and store chats.

Local servers deviate from the protocol in small ways. So only needed fields are read, and missing
ones make the reply unusable rather than raising.

The journal has a prompt's SHA-256 and every reply. Prompts would dominate the journal's size and
are needed only to make training data, so each is in a file beside it, named by its hash.
"""

import hashlib
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AliasChoices,
    AliasPath,
    BaseModel,
    BeforeValidator,
    Field,
    TypeAdapter,
    ValidationError,
    ValidationInfo,
    ValidatorFunctionWrapHandler,
    field_validator,
)

from agent.menu.reply_objects import THOUGHT
from autoresearch.campaign_files import make_folder, read_file, replace_file
from autoresearch.files import writing_to
from autoresearch.layout import PROMPTS_DIR
from autoresearch.safe_text import plain, redact

MAX_COUNT = 10**9
"""Larger than any real token count."""
QUOTED_CHARACTERS = 100
"""Most characters to repeat of an unexpected body."""

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


class Lenient(BaseModel):
    """A table of a server's response, in which a field of a wrong type counts as missing."""

    @field_validator("*", mode="wrap")
    @classmethod
    def _or_default(
        cls, value: Any, read: ValidatorFunctionWrapHandler, info: ValidationInfo
    ) -> Any:
        try:
            return read(value)
        except ValidationError:
            return cls.model_fields[info.field_name or ""].get_default()

    @classmethod
    def read(cls, body: bytes) -> Self:
        """Return the table in a body; an empty one if the body is no JSON object."""
        try:
            return cls.model_validate(json.loads(body))
        except (ValueError, RecursionError):
            return cls()


def _as_text(value: object) -> str:
    """Return a field's text, which may be in parts or a table, without unpaired surrogates."""
    if isinstance(value, list):
        parts = [part.get("text") if isinstance(part, dict) else part for part in value]
        return "".join(_as_text(part) for part in parts)
    text = json.dumps(value) if isinstance(value, dict) else value
    return text.encode("utf-8", "replace").decode() if isinstance(text, str) else ""


Text = Annotated[str, BeforeValidator(_as_text)]
Count = Annotated[int, Field(strict=True, ge=0, le=MAX_COUNT)] | None
_MESSAGE = ("choices", 0, "message")


class _Completion(Lenient):
    """The body of a ``/chat/completions`` response."""

    message: dict[str, Any] | None = Field(None, validation_alias=AliasPath(*_MESSAGE))
    content: Text = Field("", validation_alias=AliasPath(*_MESSAGE, "content"))
    reasoning_content: Text = Field("", validation_alias=AliasPath(*_MESSAGE, "reasoning_content"))
    reasoning: Text = Field("", validation_alias=AliasPath(*_MESSAGE, "reasoning"))
    arguments: Text = Field(
        "",
        validation_alias=AliasChoices(
            AliasPath(*_MESSAGE, "tool_calls", 0, "function", "arguments"),
            AliasPath(*_MESSAGE, "function_call", "arguments"),
        ),
    )
    """Arguments of a function that the model calls instead of answering."""
    refusal: Text = Field("", validation_alias=AliasPath(*_MESSAGE, "refusal"))
    finish_reason: str | None = Field(
        None, validation_alias=AliasPath("choices", 0, "finish_reason")
    )
    prompt_tokens: Count = Field(None, validation_alias=AliasPath("usage", "prompt_tokens"))
    completion_tokens: Count = Field(None, validation_alias=AliasPath("usage", "completion_tokens"))


class ServedModel(Lenient):
    """A model that a server lists, with its context length under the key of llama.cpp, vLLM and
    NIM, OpenRouter or Groq."""

    id: Annotated[str, Field(max_length=300)] = ""
    context: Annotated[int, Field(strict=True, gt=0, le=MAX_COUNT)] | None = Field(
        None,
        validation_alias=AliasChoices(
            AliasPath("meta", "n_ctx"),
            *("max_model_len", "context_length", "context_window"),
            AliasPath("meta", "n_ctx_train"),
        ),
    )
    """Most tokens of a question and its reply together, if reported."""

    @property
    def chats(self) -> bool:
        """Whether its name is not, for example, that of an embedding model."""
        return _NO_CHAT.search(self.id) is None


class _Models(Lenient):
    """The body of a ``/models`` response."""

    data: list[ServedModel] = []


def read_models(body: bytes) -> list[ServedModel]:
    """Return the models in the body of a ``/models`` response.

    A name goes to the terminal and back to the server unchanged, so it must be plain. A name with
    an asterisk is a gateway's pattern, such as LiteLLM's ``*`` and ``openai/*``.
    """
    listed = _Models.read(body).data
    return [each for each in listed if each.id and each.id.isprintable() and "*" not in each.id]


def quoted(text: str, most: int = QUOTED_CHARACTERS) -> str:
    """Return the beginning of a server's text as plain text."""
    return " ".join(plain(text[: 4 * most]).split())[:most]


def read_completion(
    body: bytes, mode: str, latency_s: float, redact: Callable[[str], str]
) -> Reply:
    """Return the reply in the body of a ``/chat/completions`` response.

    :param redact: removes secrets from stored text.
    """
    found = _Completion.read(body)
    if found.message is None:
        shown = redact(body.decode("utf-8", "replace"))
        why = f"the reply is not a chat completion: {quoted(shown) or '(nothing)'}"
        return Reply(shown, mode, latency_s, why, is_completion=False)
    # Some servers classify all output as thoughts; then the answer is among them.
    thoughts = found.reasoning_content or found.reasoning
    is_call = "{" not in found.content and found.arguments.strip()
    said = (found.arguments if is_call else found.content, thoughts)
    text = next((each for each in said if each.strip()), "")
    error = None
    if found.finish_reason == "length":
        error = "the reply was cut off at the token limit"
    elif found.refusal.strip() and not found.content.strip():
        error = f"the model refuses: {quoted(redact(found.refusal))}"
    elif not text.strip():
        error = "the reply is empty"
    return Reply(
        redact(text),
        mode,
        latency_s,
        error,
        found.finish_reason,
        found.prompt_tokens,
        found.completion_tokens,
        thinks=bool(thoughts.strip() or THOUGHT.search(found.content)),
    )


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
    """Conversations of one campaign."""

    directory: Path
    """The campaign's."""

    def keep(self, prompt: Sequence[Message], messages: Sequence[Message]) -> None:
        """Store all messages of one iteration: the prompt, then each refused reply and its
        correction.

        :raises MachineryError: if the disk refuses.
        """
        name = _file(messages_sha256(prompt))
        with writing_to(self.directory):
            make_folder(self.directory, PROMPTS_DIR)
            replace_file(self.directory, name, redact(messages_json(messages)))

    def read(self, prompt_sha256: str) -> list[Message] | None:
        """Return the messages of the iteration with this prompt; None if they are missing or do not
        match."""
        try:
            messages = _MESSAGES.validate_json(read_file(self.directory, _file(prompt_sha256)))
        except (OSError, ValidationError):
            return None
        hashes = (messages_sha256(messages[:end]) for end in range(1, len(messages) + 1))
        return messages if prompt_sha256 in hashes else None


def _file(sha256: str) -> str:
    return f"{PROMPTS_DIR}/{sha256}.json"
