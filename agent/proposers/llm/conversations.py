"""What was said to a language model, kept beside the journal.

The journal has a prompt's SHA-256 and every reply. The prompt itself would be most of the journal's
size and is needed only to make training data of it, so each goes to a file named by that hash.
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
    """Messages as they go over the wire."""
    return json.dumps([asdict(message) for message in messages], sort_keys=True)


def messages_sha256(messages: Sequence[Message]) -> str:
    """The hash of :func:`messages_json`; a first request's is what the journal calls
    prompt_sha256."""
    return hashlib.sha256(messages_json(messages).encode()).hexdigest()


class Conversations:
    """The conversations of one campaign, in a folder of its directory."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def keep(self, prompt: Sequence[Message], messages: Sequence[Message]) -> None:
        """Keep all that was sent in one turn: the prompt, then each refused reply and what was
        said to it.

        :raises MachineryError: where the disk refuses.
        """
        path = self._path(messages_sha256(prompt))
        with writing_to(self._directory.parent):
            self._directory.mkdir(parents=True, exist_ok=True)
            replace_file(path, redact(messages_json(messages)))

    def read(self, prompt_sha256: str) -> list[Message] | None:
        """What was sent in the turn of this prompt; None where it was not kept, or is not it."""
        try:
            messages = _MESSAGES.validate_json(self._path(prompt_sha256).read_bytes())
        except (OSError, ValidationError):
            return None
        hashes = (messages_sha256(messages[:end]) for end in range(1, len(messages) + 1))
        return messages if prompt_sha256 in hashes else None

    def _path(self, sha256: str) -> Path:
        return self._directory / f"{sha256}.json"
