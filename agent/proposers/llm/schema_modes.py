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
from typing import Any, TypeAlias

from pydantic import TypeAdapter, ValidationError

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


def probe(answer: Callable[[SchemaMode, str, Json], str | None]) -> SchemaMode:
    """The first mode that the server honours; ``NONE`` where it honours none.

    Where every mode was refused, ``NONE`` is asked for as well: a server that refuses that too
    knows no such model, say, and has said nothing of its modes.

    :param answer: sends (mode, prompt, schema) and returns the reply's text, empty where it is no
        usable reply, or None where the server refused the mode. What it raises ends the probing.
    """
    served = False
    for mode in SchemaMode:
        if mode is SchemaMode.NONE:
            break
        prompt = _OBJECT_PROBE_PROMPT if mode is SchemaMode.JSON_OBJECT else _PROBE_PROMPT
        text = answer(mode, prompt, _PROBE_SCHEMA)
        if _honours(mode, text):
            return mode
        served = served or text is not None
    if not served:
        answer(SchemaMode.NONE, _PROBE_PROMPT, _PROBE_SCHEMA)
    return SchemaMode.NONE


def _honours(mode: SchemaMode, text: str | None) -> bool:
    try:
        value = json.loads(text or "")
    except (ValueError, RecursionError):
        return False
    if mode is SchemaMode.JSON_OBJECT:
        return isinstance(value, dict)
    return bool(value == {"word": _FORCED})


_MODES: TypeAdapter[dict[str, SchemaMode]] = TypeAdapter(dict[str, SchemaMode])


class ModeMemory:
    """Modes by endpoint and model, in a small JSON file so that a campaign probes once.

    A file that is missing, damaged or cannot be written costs a probe and nothing else.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._modes: dict[str, SchemaMode] = {}
        self._passing: dict[str, SchemaMode] = {}
        if path is not None:
            with contextlib.suppress(OSError, ValidationError):
                self._modes = _MODES.validate_json(path.read_bytes())

    def recall(self, key: str) -> SchemaMode | None:
        """None: not known yet."""
        return self._passing.get(key) or self._modes.get(key)

    def remember(self, key: str, mode: SchemaMode, *, lasting: bool = True) -> None:
        """
        :param lasting: False: in this object only, so that the next sitting probes again.
        """
        if not lasting:
            self._passing[key] = mode
            return
        self._modes[key] = mode
        if self._path is None:
            return
        with contextlib.suppress(OSError):
            replace_file(self._path, json.dumps(self._modes, indent=2) + "\n")
