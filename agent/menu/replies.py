"""The first rail: the changes and the reason in a raw reply, or why there are none.

A reply is exactly one JSON object with exactly ``changes`` and ``reason``. The changes are an
object of knobs, ``{"lr": 0.002}``, or a list, ``[{"knob": "lr", "value": 0.002}]``, which is the
form that language models are asked for (:mod:`agent.proposers.llm.reply_form` says why). One
leading ``<think>`` block and one code fence around the whole of the rest are stripped, as models
add them unasked; anything else beside the object is refused, because guessing which part of a reply
was meant is how a wrong config gets trained."""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Container
from dataclasses import dataclass
from typing import Any, Literal, NoReturn, TypeAlias

from autoresearch.values import Scalar
from autoresearch.words import json_text

MAX_REPLY_CHARACTERS = 100_000
MAX_REASON_CHARACTERS = 500

_FENCE = re.compile(r"```[\w+-]*[ \t]*\r?\n(?P<inside>.*)\n[ \t]*```", re.DOTALL)
_KEYS = ("changes", "reason")
_SINGLE_KEYS = ("knob", "new_value", "reason")


class ReplyError(ValueError):
    """A reply that holds no proposal; the message is one sentence for whoever wrote it."""


@dataclass(frozen=True, slots=True)
class ParsedReply:
    """What a reply says. Nothing in it was checked against any menu; numbers may be infinite."""

    changes: dict[str, Scalar]
    reason: str

    def without(self, knobs: Container[str]) -> ParsedReply:
        """The same reply without the changes of these knobs."""
        changes = {name: value for name, value in self.changes.items() if name not in knobs}
        return ParsedReply(changes, self.reason)


Form: TypeAlias = Literal["changes", "single-knob"]
"""How a reply says what it changes: as above, or ``{"knob": …, "new_value": …, "reason": …}``, the
form of the published single-knob loop."""


def read_reply(raw: str, form: Form = "changes") -> ParsedReply:
    """The proposal in a reply.

    :raises ReplyError: where there is none.
    """
    if len(raw) > MAX_REPLY_CHARACTERS:
        raise ReplyError(
            f"the reply is {len(raw):,} characters long; answer with one JSON object of at most "
            f"{MAX_REPLY_CHARACTERS:,}"
        )
    document = _parse(_unwrapped(raw))
    if not isinstance(document, dict):
        raise ReplyError(
            f"the reply is {json_text(document)}; answer with a JSON object of "
            + ("changes and reason" if form == "changes" else "knob, new_value and reason")
        )
    _refuse_other_keys(document, _KEYS if form == "changes" else _SINGLE_KEYS)
    changes = document["changes"] if form == "changes" else _single_change(document)
    return ParsedReply(changes=_changes(changes), reason=_reason(document["reason"]))


def _refuse_other_keys(document: dict[str, Any], keys: tuple[str, ...]) -> None:
    named = ", ".join(keys[:-1]) + f" and {keys[-1]}"
    for key in document:
        if key not in keys:
            raise ReplyError(f"the reply has an extra key {json_text(key)}; keep {named} only")
    for key in keys:
        if key not in document:
            both = "both " if len(keys) == 2 else ""
            raise ReplyError(f"the reply has no {key}; give {both}{named}")


def _single_change(document: dict[str, Any]) -> dict[str, Any]:
    knob = document["knob"]
    if not isinstance(knob, str):
        raise ReplyError(f"knob is {json_text(knob)}; make it the name of one knob")
    return {knob: document["new_value"]}


def _unwrapped(raw: str) -> str:
    text = raw.strip()
    if text.startswith("<think>"):
        _, closed, text = text.partition("</think>")
        if not closed:
            raise ReplyError("the reply's <think> block never ends; close it, then give the object")
        text = text.strip()
    fence = _FENCE.fullmatch(text)
    text = fence["inside"].strip() if fence else text
    if not text:
        raise ReplyError("the reply is empty; answer with one JSON object of changes and reason")
    return text


def _parse(text: str) -> Any:
    try:
        document = json.loads(
            text, object_pairs_hook=_object_without_repeats, parse_constant=_no_such_number
        )
        # Half of a surrogate pair is no text that could be written down.
        json.dumps(document, ensure_ascii=False).encode()
    except ReplyError:
        raise
    except json.JSONDecodeError as error:
        where = f"{error.msg} at character {error.pos}: {json_text(text[error.pos :][:30])}"
        raise ReplyError(
            f"the reply is not one JSON object and nothing else ({where}); answer with the object "
            "alone"
        ) from error
    except UnicodeEncodeError as error:
        raise ReplyError("the reply holds half a surrogate pair; write plain text") from error
    except RecursionError as error:
        raise ReplyError("the reply nests too deeply; changes holds knobs and scalars") from error
    except ValueError as error:  # int() refuses thousands of digits
        raise ReplyError("the reply holds a number of thousands of digits; shorten it") from error
    return document


def _object_without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for key, value in pairs:
        if key in fields:
            raise ReplyError(f"the reply says {json_text(key)} twice; say it once")
        fields[key] = value
    return fields


def _no_such_number(literal: str) -> NoReturn:
    raise ReplyError(f"the reply holds {literal}, which is not JSON; write a finite number")


def _changes(changes: Any) -> dict[str, Scalar]:
    if isinstance(changes, list):
        changes = _object_without_repeats(_said_once([_pair(item) for item in changes]))
    if not isinstance(changes, dict):
        raise ReplyError(
            f"changes is {json_text(changes)}; make it a list like "
            '[{"knob": "lr", "value": 0.002}] or an object like {"lr": 0.002}'
        )
    if not changes:
        raise ReplyError("changes is empty; set at least one knob to a new value")
    for name, value in changes.items():
        if not isinstance(value, bool | int | float | str):
            raise ReplyError(
                f"changes sets {json_text(name)} to {json_text(value)}; give one number, string or "
                "boolean"
            )
    return changes


def _said_once(pairs: list[tuple[str, Any]]) -> list[tuple[str, Any]]:
    """The pairs without those that only repeat an earlier one, which small models write: the same
    knob and the same value, of the same type."""
    kept: dict[tuple[str, type, Any], tuple[str, Any]] = {}
    for place, (name, value) in enumerate(pairs):
        said = value if isinstance(value, bool | int | float | str) else place
        kept.setdefault((name, type(value), said), (name, value))
    return list(kept.values())


def _pair(item: Any) -> tuple[str, Any]:
    if isinstance(item, dict) and item.keys() == {"knob", "value"}:
        name = item["knob"]
        if isinstance(name, str):
            return name, item["value"]
    raise ReplyError(
        f"changes lists {json_text(item)}; give each change as "
        '{"knob": "lr", "value": 0.002} and nothing else'
    )


def _reason(reason: Any) -> str:
    if not isinstance(reason, str):
        raise ReplyError(f"reason is {json_text(reason)}; make it a string")
    if len(reason) > MAX_REASON_CHARACTERS:
        raise ReplyError(
            f"reason is {len(reason)} characters long; cut it to {MAX_REASON_CHARACTERS}"
        )
    control = next((c for c in reason if unicodedata.category(c) == "Cc" and c not in "\t\r\n"), "")
    if control:
        raise ReplyError(f"reason holds the control character U+{ord(control):04X}; remove it")
    return reason
