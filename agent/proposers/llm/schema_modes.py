"""Find out by probing how a server can be made to answer in JSON.

Servers that accept a schema with HTTP 200 and ignore it are common, so acceptance proves nothing. A
probe asks for one thing in the prompt and forces another by the schema: only a server that really
constrains its output answers as the schema says.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, TypeAlias

from pydantic import BaseModel, Field, TypeAdapter, ValidationError

from autoresearch.files import replace_file

Json: TypeAlias = dict[str, Any]


class SchemaMode(StrEnum):
    """Place of the schema in the request, in the order of probing."""

    JSON_SCHEMA = "json_schema"
    """OpenAI's own ``response_format``."""
    NVEXT_GUIDED_JSON = "nvext.guided_json"
    """NIM's extension."""
    GUIDED_JSON = "guided_json"
    """Older vLLM and NIM."""
    JSON_OBJECT_SCHEMA = "json_object.schema"
    """llama-cpp-python: a schema beside ``json_object``, its only form."""
    JSON_OBJECT = "json_object"
    """Any JSON object, whatever the schema."""
    NONE = "none"
    """Only the prompt asks for JSON."""

    def request(self, schema: Json) -> Json:
        """Return the fields that this mode adds to a chat request."""
        # Not "strict": hosted servers then require every property, and a proposal changes only some
        # knobs.
        wrapped = {"type": "json_schema", "json_schema": {"name": "reply", "schema": schema}}
        additions: dict[SchemaMode, Json] = {
            SchemaMode.JSON_SCHEMA: {"response_format": wrapped},
            SchemaMode.NVEXT_GUIDED_JSON: {"nvext": {"guided_json": schema}},
            SchemaMode.GUIDED_JSON: {"guided_json": schema},
            SchemaMode.JSON_OBJECT_SCHEMA: {
                "response_format": {"type": "json_object", "schema": schema}
            },
            SchemaMode.JSON_OBJECT: {"response_format": {"type": "json_object"}},
            SchemaMode.NONE: {},
        }
        return additions[self]


_FORCED = "quartz-7041"
_PROBE_SCHEMA: Json = {
    "type": "object",
    "properties": {"word": {"type": "string", "enum": [_FORCED]}},
    "required": ["word"],
    "additionalProperties": False,
}
_PROBE_PROMPT = 'Reply with exactly this and nothing else: {"word": "banana"}'
_OBJECT_PROBE_PROMPT = (
    "Reply with exactly this and nothing else, as plain text without JSON: banana"
)


def probe(answer: Callable[[SchemaMode, str, Json], str | None]) -> tuple[SchemaMode, bool]:
    """Return the first mode that the server honors (``NONE`` if none), and whether this is certain.

    It is uncertain if no reply to a probe was usable. If every mode was refused, ``NONE`` is tried
    too: a server that refuses that as well may have no such model, which says nothing about its
    modes.

    :param answer: sends (mode, prompt, schema) and returns the reply's text, empty if unusable, or
        None if the server refused the mode. What it raises ends the probing.
    """
    texts: list[str | None] = []
    for mode in SchemaMode:
        if mode is SchemaMode.NONE:
            break
        prompt = _OBJECT_PROBE_PROMPT if mode is SchemaMode.JSON_OBJECT else _PROBE_PROMPT
        text = answer(mode, prompt, _PROBE_SCHEMA)
        if _honours(mode, text):
            return mode, True
        texts.append(text)
    if all(text is None for text in texts):
        texts.append(answer(SchemaMode.NONE, _PROBE_PROMPT, _PROBE_SCHEMA))
    return SchemaMode.NONE, any(texts)


def _honours(mode: SchemaMode, text: str | None) -> bool:
    try:
        value = json.loads(text or "")
    except (ValueError, RecursionError):
        return False
    if mode is SchemaMode.JSON_OBJECT:
        return isinstance(value, dict)
    return bool(value == {"word": _FORCED})


class Manner(BaseModel):
    """How to ask one model at one endpoint."""

    mode: SchemaMode | None = None
    merges_system: bool = False
    """Whether it refuses the system role, so that the system text begins the first user message."""
    reply_tokens: Annotated[int, Field(gt=0, le=1 << 20)] | None = None
    """Longest reply to ask for, if the usual length was too short."""
    extra: Json = {}
    """Request fields that turn thinking off."""


_MANNERS: TypeAdapter[dict[str, Manner]] = TypeAdapter(dict[str, Manner])


def recall(path: Path | None) -> dict[str, Manner]:
    """Read stored manners by endpoint and model, so that a campaign probes once.

    A missing or damaged file costs only a probe.
    """
    with contextlib.suppress(OSError, ValidationError):
        return _MANNERS.validate_json(path.read_bytes()) if path is not None else {}
    return {}


def remember(path: Path | None, key: str, manner: Manner) -> None:
    """Add a manner to the file, if there is one; a file that cannot be written is left alone."""
    if path is None:
        return
    with contextlib.suppress(OSError):
        whole = _MANNERS.dump_json(recall(path) | {key: manner}, indent=2, exclude_defaults=True)
        replace_file(path, whole.decode() + "\n")
