"""How a server can be made to answer in JSON, found out by asking it.

Servers that accept a schema with HTTP 200 and ignore it are common, so acceptance proves nothing.
A probe asks for one thing in the prompt and forces another by the schema: only a server that
really constrains its output answers with what the schema says.
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
    """Where in the request the schema goes, in the order they are tried."""

    JSON_SCHEMA = "json_schema"
    """OpenAI's own ``response_format``."""
    NVEXT_GUIDED_JSON = "nvext.guided_json"
    """NIM's extension."""
    GUIDED_JSON = "guided_json"
    """Older vLLM and NIM."""
    JSON_OBJECT_SCHEMA = "json_object.schema"
    """llama-cpp-python's: a schema beside ``json_object``. Its server has no other."""
    JSON_OBJECT = "json_object"
    """Some JSON object, whatever the schema."""
    NONE = "none"
    """The prompt alone asks for JSON."""

    def request(self, schema: Json) -> Json:
        """What this mode adds to the body of a chat request."""
        # Not "strict": hosted servers take that only for schemas in which every property is
        # required, and a proposal changes some knobs of many.
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
    """The first mode that the server honours, ``NONE`` where it honours none, and whether that is
    known for good: False where no reply to a probe was usable.

    Where every mode was refused, ``NONE`` is asked for as well: a server that refuses that too
    knows no such model, say, and has said nothing of its modes.

    :param answer: sends (mode, prompt, schema) and returns the reply's text, empty where it is no
        usable reply, or None where the server refused the mode. What it raises ends the probing.
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
    """What was found out about asking one model at one endpoint."""

    mode: SchemaMode | None = None
    merges_system: bool = False
    """Whether it refuses the system role, whose text the first user message then begins with."""
    reply_tokens: Annotated[int, Field(gt=0, le=1 << 20)] | None = None
    """The longest reply to ask for, where the usual length was too short."""
    extra: Json = {}
    """Fields of the request that turn thinking off."""


_MANNERS: TypeAdapter[dict[str, Manner]] = TypeAdapter(dict[str, Manner])


def recall(path: Path | None) -> dict[str, Manner]:
    """Manners by endpoint and model, from a small JSON file so that a campaign probes once.

    A file that is missing or damaged costs a probe and nothing else.
    """
    with contextlib.suppress(OSError, ValidationError):
        return _MANNERS.validate_json(path.read_bytes()) if path is not None else {}
    return {}


def remember(path: Path | None, key: str, manner: Manner) -> None:
    """Add to the file, where one is kept; one that cannot be written is left alone."""
    if path is None:
        return
    with contextlib.suppress(OSError):
        whole = _MANNERS.dump_json(recall(path) | {key: manner}, indent=2, exclude_defaults=True)
        replace_file(path, whole.decode() + "\n")
