"""Read the changes and the reason from a raw reply, or say why there are none.

A reply is exactly one JSON object with exactly ``changes`` and ``reason``. The changes are an
object of knobs, ``{"lr": 0.002}``, or a list, ``[{"knob": "lr", "value": 0.002}]``. Language models
are asked for the list (:mod:`agent.proposers.llm.reply_form` says why). Its items may also be named
otherwise, ``{"name": "lr", "new_value": 0.002}``, or be pairs, ``["lr", 0.002]``.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from agent.menu.reply_objects import (
    ReplyError,
    listed,
    loaded,
    object_without_repeats,
    refuse_extra_keys,
    reply_document,
    without_thoughts,
)
from autoresearch.values import Scalar
from autoresearch.words import json_text

MAX_REPLY_CHARACTERS = 100_000
MAX_REASON_CHARACTERS = 500

MAX_IDEAS = 4
"""Most further changes in a reply to a slate."""
_KEYS = ("changes", "reason")
_SINGLE_KEYS = ("knob", "new_value", "reason")
_SLATE_KEYS = ("reason", "pick", "expected_delta", "changes", "ideas")
_CODE_KEYS = ("reason", "code")
_FENCED = re.compile(r"```(?:python|py)?[ \t]*\n(.*?)```", re.DOTALL)
_NAMES = frozenset("knob name key parameter param setting field hyperparameter".split())
_VALUES = frozenset("value new_value new to".split())
_CANDIDATE = re.compile(r"candidate|option|choice|_", re.IGNORECASE)
OWN = "own"
"""Pick of a reply that gives changes of its own."""


@dataclass(frozen=True, slots=True)
class ParsedReply:
    """Content of a reply, not checked against any menu; numbers may be infinite."""

    changes: dict[str, Scalar]
    reason: str


@dataclass(frozen=True, slots=True)
class SlateReply:
    """Content of a reply that chooses from a slate or gives changes of its own."""

    pick: str | None
    """Name of a candidate; None for own changes."""
    proposal: ParsedReply
    """The reason, and the own changes if there are some."""
    expected: float | None
    """Difference of scores that its author expects, as the prompt counts them."""
    ideas: tuple[dict[str, Scalar], ...] = ()
    """Further changes that its author would try."""


Form: TypeAlias = Literal["changes", "single-knob"]
"""Form of a reply: as above, or ``{"knob": …, "new_value": …, "reason": …}``, the form of the
published single-knob loop."""


def read_reply(raw: str, form: Form = "changes") -> ParsedReply:
    """Return the proposal in a reply.

    :raises ReplyError: if there is none.
    """
    if len(raw) > MAX_REPLY_CHARACTERS:
        raise ReplyError(
            f"the reply is {len(raw):,} characters long; answer with one JSON object of at most "
            f"{MAX_REPLY_CHARACTERS:,}"
        )
    keys = _KEYS if form == "changes" else _SINGLE_KEYS
    document = reply_document(raw, keys)
    refuse_extra_keys(document, keys)
    for key in keys:
        if key not in document:
            both = "both " if len(keys) == 2 else ""
            raise ReplyError(f"the reply has no {key}; give {both}{listed(keys)}")
    if form == "changes":
        changes = document["changes"]
    else:
        knob = document["knob"]
        if not isinstance(knob, str):
            raise ReplyError(f"knob is {json_text(knob)}; make it the name of one knob")
        changes = {knob: document["new_value"]}
    return ParsedReply(changes=_changes(changes), reason=_reason(document["reason"]))


def read_slate_reply(raw: str, names: Collection[str]) -> SlateReply:
    """Return the choice in a reply to a slate.

    The keys are reason, pick, expected_delta, changes and ideas. Changes count only if the pick is
    :data:`OWN` or missing; models that pick a candidate often repeat its changes.

    :param names: names of the candidates, and :data:`OWN` if own changes are allowed.
    :raises ReplyError: if there is none.
    """
    document = reply_document(raw, _SLATE_KEYS, {"pick", "changes"})
    refuse_extra_keys(document, _SLATE_KEYS)
    pick = _picked(document.get("pick", OWN if "changes" in document else None), names)
    if not isinstance(pick, str) or pick not in names:
        raise ReplyError(f"pick is {json_text(pick)}; choose one of the candidates")
    expected = document.get("expected_delta")
    is_number = isinstance(expected, int | float) and not isinstance(expected, bool)
    reason = _reason(document.get("reason", ""))
    own = _changes(document.get("changes")) if pick == OWN else {}
    said = document.get("ideas") if OWN in names else None
    ideas = []
    for changes in said[:MAX_IDEAS] if isinstance(said, list) else ():
        with suppress(ReplyError):  # no reply is refused for its ideas
            ideas.append(_changes(changes))
    return SlateReply(
        pick=None if pick == OWN else pick,
        proposal=ParsedReply(own, reason),
        expected=float(expected) if is_number and abs(expected) < 1e9 else None,  # type: ignore[arg-type]
        ideas=tuple(ideas),
    )


def read_code_reply(raw: str) -> tuple[str, str]:
    """Return the function in a reply and its reason: an object of reason and code, or one fenced
    block of code, whose reason is the prose before it.

    :raises ReplyError: if there is none.
    """
    blocks = _FENCED.findall(raw)
    try:
        document = reply_document(raw, _CODE_KEYS)
    except ReplyError:
        if len(blocks) != 1 or len(raw) > MAX_REPLY_CHARACTERS:
            raise
        said = " ".join(without_thoughts(raw).split("```")[0].split())
        printable = "".join(c for c in said if c.isprintable())
        return blocks[0], printable[:MAX_REASON_CHARACTERS]
    refuse_extra_keys(document, _CODE_KEYS)
    code = document.get("code")
    if not isinstance(code, str) or not code.strip():
        raise ReplyError(f"code is {json_text(code)}; make it the text of one function")
    return code, _reason(document.get("reason", ""))


def _picked(said: Any, names: Collection[str]) -> Any:
    """Return the one name in a pick such as "Candidate B" or "b: a higher rate", else the pick."""
    said = said[0] if isinstance(said, list) and len(said) == 1 else said
    if not isinstance(said, str) or said in names:
        return said
    words = re.findall(r"\w+", _CANDIDATE.sub(" ", said))
    found = {word for word in words if word in names}
    if len(words) == 1:
        found |= {name for name in names if name.casefold() == words[0].casefold()}
    return found.pop() if len(found) == 1 else said


def _pair(item: Any) -> tuple[str, Any] | None:
    """Return the knob and the value in one item of a list of changes; None if it has more."""
    if isinstance(item, list) and len(item) == 2:
        name, value = item
        return (name, value) if isinstance(name, str) else None
    if not isinstance(item, dict):
        return None
    named = {key.casefold(): value for key, value in item.items()}
    names, values = named.keys() & _NAMES, named.keys() & _VALUES
    if len(named) == 2 and len(names) == len(values) == 1:
        name = named[names.pop()]
        return (name, named[values.pop()]) if isinstance(name, str) else None
    return next(iter(item.items())) if len(item) == 1 and not names | values else None


def _changes(changes: Any) -> dict[str, Scalar]:
    changes = loaded(changes)
    if isinstance(changes, dict) and len(changes) == 2 and _pair(changes):
        changes = [changes]
    if isinstance(changes, list):
        pairs: list[tuple[str, Any]] = []
        for item in changes:
            pair = _pair(item)
            if pair is None:
                raise ReplyError(
                    f"changes lists {json_text(item)}; give each change as "
                    '{"knob": "lr", "value": 0.002} and nothing else'
                )
            # Small models repeat a change: the same knob with the same value of the same type.
            if not any(pair == one and type(pair[1]) is type(one[1]) for one in pairs):
                pairs.append(pair)
        changes = object_without_repeats(pairs)
    if isinstance(changes, dict):  # a null says that a knob is unchanged
        changes = {name: value for name, value in changes.items() if value is not None}
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
