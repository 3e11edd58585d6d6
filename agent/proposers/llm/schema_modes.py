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
from typing import Annotated, TypeAlias

from pydantic import BaseModel, Field, TypeAdapter, ValidationError

from agent.proposers.llm.completions import ROLES, Message, Reply
from agent.proposers.llm.transport import EndpointError
from agent.proposers.llm.wire import Json, RejectedError
from autoresearch.files import replace_file

Ask: TypeAlias = Callable[[list[Message], "SchemaMode", Json, int | None], Reply]
"""Sends one chat in a mode with a schema, for a reply of at most so many tokens; None: as many as
it needs."""


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
    """Any JSON object; the server ignores the schema."""
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


PROBE_TOKENS = 48
"""Tokens for the answer to a probe, which has about a dozen. A cut answer is retried with a whole
reply's budget."""
WITHOUT_THINKING: tuple[Json, ...] = (
    {"chat_template_kwargs": {"enable_thinking": False, "thinking": False}},
    {"reasoning_effort": "none"},
    {"reasoning_effort": "low"},
)
"""Request fields that reduce thinking, in the order in which a probe tries them."""
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


class Manner(BaseModel):
    """How to ask one model at one endpoint. What is not stored is found again in each session."""

    mode: SchemaMode | None = None
    merges_system: bool = False
    """Whether it refuses the system role, so that the system text begins the first user message."""
    reply_tokens: Annotated[int, Field(gt=0, le=1 << 20)] | None = None
    """Longest reply to ask for, if the usual length was too short."""
    extra: Json = {}
    """Request fields that turn thinking off."""
    tokens_named: str = Field(default="max_tokens", exclude=True)
    """Field that limits the reply's tokens."""
    refused: set[str] = Field(default_factory=set, exclude=True)
    """Parameters that the model refuses."""

    def adapts(self, param: object, said: str, *, may_name: bool) -> bool:
        """Return whether a refused question can be asked in another form, which is used from now
        on.

        :param param: the refused parameter, if the server named one.
        :param said: the server's explanation.
        :param may_name: whether the refusal is of a kind that names a parameter.
        """
        if may_name and param == "max_tokens" == self.tokens_named:
            self.tokens_named = "max_completion_tokens"
        elif may_name and param == "temperature" and "temperature" not in self.refused:
            self.refused.add("temperature")
        elif any(name in said for name in self.extra):
            self.extra = {}
        elif not self.merges_system and ROLES.search(said):
            self.merges_system = True
        else:
            return False
        return True


def probe(ask: Ask, manner: Manner) -> tuple[SchemaMode, bool]:
    """Return the first mode that the server honors (``NONE`` if none), and whether this is certain.

    It is uncertain if no reply to a probe was usable. If every mode was refused, ``NONE`` is tried
    too: a server that refuses that as well may have no such model, which says nothing about its
    modes.

    :param ask: sends one question; what it raises, other than a refused mode, ends the probing.
    :param manner: learns which field stops the model from thinking.
    """
    prober = _Prober(ask, manner)
    texts: list[str | None] = []
    for mode in SchemaMode:
        if mode is SchemaMode.NONE:
            break
        prompt = _OBJECT_PROBE_PROMPT if mode is SchemaMode.JSON_OBJECT else _PROBE_PROMPT
        text = prober.text(mode, prompt)
        if _honours(mode, text):
            return mode, True
        texts.append(text)
    if all(text is None for text in texts):
        texts.append(prober.text(SchemaMode.NONE, _PROBE_PROMPT))
    return SchemaMode.NONE, any(texts)


class _Prober:
    """Asks one probe after another."""

    def __init__(self, ask: Ask, manner: Manner) -> None:
        self._ask = ask
        self._manner = manner
        self._has_tried_not_to_think = False

    def text(self, mode: SchemaMode, prompt: str) -> str | None:
        """Return the text of the reply, empty if unusable, or None if the server refused the
        mode."""
        chat = [Message("user", prompt)]
        try:
            reply = self._ask(chat, mode, _PROBE_SCHEMA, PROBE_TOKENS)
            if reply.finish_reason == "length" or (reply.is_completion and not reply.text.strip()):
                reply = self._thoughtless(chat, mode) or self._ask(chat, mode, _PROBE_SCHEMA, None)
        except RejectedError:
            if mode is SchemaMode.NONE:
                raise
            return None
        if not reply.is_completion:
            if mode is SchemaMode.NONE:
                raise EndpointError(f"{reply.error}; check AUTORESEARCH_LLM_BASE_URL")
            return None
        return "" if reply.error else reply.text

    def _thoughtless(self, chat: list[Message], mode: SchemaMode) -> Reply | None:
        """Return the reply of a model that stops thinking when asked; None if it does not. The
        field that stops it is used from now on."""
        if self._has_tried_not_to_think:
            return None
        self._has_tried_not_to_think = True
        for extra in WITHOUT_THINKING:
            self._manner.extra = extra
            try:
                reply = self._ask(chat, mode, _PROBE_SCHEMA, PROBE_TOKENS)
            except RejectedError:
                continue
            if reply.error is None and self._manner.extra:
                return reply
        self._manner.extra = {}
        return None


def _honours(mode: SchemaMode, text: str | None) -> bool:
    try:
        value = json.loads(text or "")
    except (ValueError, RecursionError):
        return False
    if mode is SchemaMode.JSON_OBJECT:
        return isinstance(value, dict)
    return bool(value == {"word": _FORCED})


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
