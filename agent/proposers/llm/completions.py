"""Define chat messages and replies, and store chats.

The journal has a prompt's SHA-256 and every reply. Prompts would dominate the journal's size and
are needed only to make training data, so each is in a file beside it, named by its hash.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

from pydantic import TypeAdapter, ValidationError

from autoresearch.campaign_files import make_folder, read_file, replace_file
from autoresearch.files import writing_to
from autoresearch.layout import PROMPTS_DIR
from autoresearch.safe_text import redact

Json: TypeAlias = dict[str, Any]


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
    cost_usd: float | None = None
    """Money that it cost, if reported."""


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
