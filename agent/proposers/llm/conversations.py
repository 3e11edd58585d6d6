"""Store the messages sent to a language model, beside the journal.

The journal has a prompt's SHA-256 and every reply. Prompts would dominate the journal's size and
are needed only to make training data, so each is in a file named by its hash.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from agent.proposers.llm.completions import Message
from autoresearch.files import replace_file, writing_to
from autoresearch.redaction import redact

_MESSAGES: TypeAdapter[list[Message]] = TypeAdapter(list[Message])


def messages_json(messages: Sequence[Message]) -> str:
    """Return messages as they go over the wire."""
    return json.dumps([asdict(message) for message in messages], sort_keys=True)


def messages_sha256(messages: Sequence[Message]) -> str:
    """Return the hash of :func:`messages_json`; for a first request it is the journal's
    prompt_sha256."""
    return hashlib.sha256(messages_json(messages).encode()).hexdigest()


class Conversations:
    """Conversations of one campaign, in a folder of its directory."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def keep(self, prompt: Sequence[Message], messages: Sequence[Message]) -> None:
        """Store all messages of one iteration: the prompt, then each refused reply and its
        correction.

        :raises MachineryError: if the disk refuses.
        """
        path = self._path(messages_sha256(prompt))
        with writing_to(self._directory.parent):
            self._directory.mkdir(parents=True, exist_ok=True)
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
        return self._directory / f"{sha256}.json"
