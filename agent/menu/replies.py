"""Read the changes and the reason from a raw reply, or say why there are none.

A reply is exactly one JSON object with exactly ``changes`` and ``reason``. The changes are an
object of knobs, ``{"lr": 0.002}``, or a list, ``[{"knob": "lr", "value": 0.002}]``. Language models
are asked for the list (:mod:`agent.proposers.llm.reply_form` says why). Models add thoughts, code
fences, channel tokens and prose unasked. So a longer reply is read without its thoughts, and must
then hold exactly one object of the form: guessing between two is how a wrong config gets trained.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Container, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal, NoReturn, TypeAlias

from autoresearch.domains.base import Domain
from autoresearch.values import Scalar
from autoresearch.words import json_text

MAX_REPLY_CHARACTERS = 100_000
MAX_REASON_CHARACTERS = 500

_NAMES = r"(?:think|thinking|thoughts?|reasoning|reflection|scratchpad|analysis|seed:think)"
THOUGHT = re.compile(
    rf"(?P<open><{_NAMES}>|\[THINK\]|◁think▷|<\|START_THINKING\|>|<\|begin_of_thought\|>"
    r"|<\|channel\|>analysis<\|message\|>|<\|channel>thought)"
    rf"|(?P<close></{_NAMES}>|\[/THINK\]|◁/think▷|<\|END_THINKING\|>|<\|end_of_thought\|>"
    r"|<channel\|>)|(?P<end><\|end\|>)",
    re.IGNORECASE,
)
"""Marks that begin or end thoughts in any family of models; ``end`` may also end the answer."""
MAX_IDEAS = 4
"""Most further changes in a reply to a slate."""
MAX_STARTS = 1000
"""Most braces in prose at which an object is tried."""
_KEYS = ("changes", "reason")
_SINGLE_KEYS = ("knob", "new_value", "reason")
_SLATE_KEYS = ("reason", "pick", "expected_delta", "changes", "ideas")
_CODE_KEYS = ("reason", "code")
_FENCED = re.compile(r"```(?:python|py)?[ \t]*\n(.*?)```", re.DOTALL)
OWN = "own"
"""Pick of a reply that gives changes of its own."""


class ReplyError(ValueError):
    """A reply without a proposal; the message is one sentence for its author."""


@dataclass(frozen=True, slots=True)
class ParsedReply:
    """Content of a reply, not checked against any menu; numbers may be infinite."""

    changes: dict[str, Scalar]
    reason: str

    def without(self, knobs: Container[str]) -> ParsedReply:
        """Return the reply without the changes of these knobs."""
        changes = {name: value for name, value in self.changes.items() if name not in knobs}
        return ParsedReply(changes, self.reason)

    def coerced(self, domains: Mapping[str, Domain]) -> ParsedReply:
        """Return the reply with each value converted to its knob's type if that loses nothing."""
        changes = {
            name: domains[name].coerced(value) if name in domains else value
            for name, value in self.changes.items()
        }
        return ParsedReply(changes, self.reason)


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
    if not isinstance(document, dict):
        raise ReplyError(
            f"the reply is {json_text(document)}; answer with a JSON object of "
            + ("changes and reason" if form == "changes" else "knob, new_value and reason")
        )
    _refuse_other_keys(document, keys)
    changes = document["changes"] if form == "changes" else _single_change(document)
    return ParsedReply(changes=_changes(changes), reason=_reason(document["reason"]))


def read_slate_reply(raw: str, names: Container[str]) -> SlateReply:
    """Return the choice in a reply to a slate.

    The keys are reason, pick, expected_delta, changes and ideas. Changes count only if the pick is
    :data:`OWN` or missing; models that pick a candidate often repeat its changes.

    :param names: names of the candidates, and :data:`OWN` if own changes are allowed.
    :raises ReplyError: if there is none.
    """
    document = reply_document(raw, _SLATE_KEYS)
    if not isinstance(document, dict):
        raise ReplyError(
            f"the reply is {json_text(document)}; answer with a JSON object of reason and pick"
        )
    for key in document:
        if key not in _SLATE_KEYS:
            raise ReplyError(
                f"the reply has an extra key {json_text(key)}; keep {', '.join(_SLATE_KEYS)} only"
            )
    pick = document.get("pick", OWN if "changes" in document else None)
    if not isinstance(pick, str) or pick not in names:
        raise ReplyError(f"pick is {json_text(pick)}; name one of the candidates")
    expected = document.get("expected_delta")
    is_number = isinstance(expected, int | float) and not isinstance(expected, bool)
    reason = _reason(document.get("reason", ""))
    own = _changes(document.get("changes")) if pick == OWN else {}
    return SlateReply(
        pick=None if pick == OWN else pick,
        proposal=ParsedReply(own, reason),
        expected=float(expected) if is_number and abs(expected) < 1e9 else None,  # type: ignore[arg-type]
        ideas=tuple(_ideas(document.get("ideas")) if OWN in names else ()),
    )


@dataclass(frozen=True, slots=True)
class CodeReply:
    """Content of a reply that writes a function."""

    code: str
    reason: str


def read_code_reply(raw: str) -> CodeReply:
    """Return the function in a reply: an object of reason and code, or one fenced block of code,
    whose reason is the prose before it.

    :raises ReplyError: if there is none.
    """
    blocks = _FENCED.findall(raw)
    try:
        document = reply_document(raw, _CODE_KEYS)
    except ReplyError:
        if len(blocks) != 1 or len(raw) > MAX_REPLY_CHARACTERS:
            raise
        said = " ".join(_without_thoughts(raw).split("```")[0].split())
        printable = "".join(c for c in said if c.isprintable())
        return CodeReply(blocks[0], printable[:MAX_REASON_CHARACTERS])
    if not isinstance(document, dict):
        raise ReplyError(f"the reply is {json_text(document)}; answer with an object of code")
    for key in document:
        if key not in _CODE_KEYS:
            raise ReplyError(f"the reply has an extra key {json_text(key)}; keep reason and code")
    code = document.get("code")
    if not isinstance(code, str) or not code.strip():
        raise ReplyError(f"code is {json_text(code)}; make it the text of one function")
    return CodeReply(code, _reason(document.get("reason", "")))


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


def reply_document(raw: str, keys: tuple[str, ...]) -> Any:
    """Return the whole reply if it is JSON, else the one object of the form within it.

    :raises ReplyError: if there is none.
    """
    if not raw.strip():
        raise ReplyError("the reply is empty; answer with one JSON object of changes and reason")
    try:
        raw.encode()  # half of a surrogate pair cannot be stored
        try:
            document = _DECODER.decode(raw)
        except json.JSONDecodeError as error:
            document = _only_object(_without_thoughts(raw), keys, error)
        json.dumps(document, ensure_ascii=False).encode()
    except ReplyError:
        raise
    except UnicodeEncodeError as error:
        raise ReplyError("the reply holds half a surrogate pair; write plain text") from error
    except RecursionError as error:
        raise ReplyError("the reply nests too deeply; changes holds knobs and scalars") from error
    except ValueError as error:  # int() refuses thousands of digits
        raise ReplyError("the reply holds a number of thousands of digits; shorten it") from error
    return document


def _without_thoughts(raw: str) -> str:
    kept, end, is_inside = "", 0, False
    for mark in THOUGHT.finditer(raw):
        if mark["open"] and not is_inside:
            kept, is_inside = kept + raw[end : mark.start()], True
        elif mark["close"] or (mark["end"] and is_inside):
            # One outside ends thoughts that the server's own template has opened.
            kept, end, is_inside = kept if is_inside else "", mark.end(), False
    text = kept if is_inside else kept + raw[end:]
    if not text.strip():
        never = "the reply's thoughts never end; end them, then give the object"
        raise ReplyError(never if is_inside else "the reply is empty after its thoughts")
    return text


def _only_object(text: str, keys: tuple[str, ...], error: json.JSONDecodeError) -> Any:
    """Return the one object of the form in a text, or the only object of any form.

    :param error: why the whole reply is no JSON.
    """
    found: list[dict[str, Any]] = []
    are_whole = True
    start = text.find("{")
    for _ in range(MAX_STARTS):
        if start < 0:
            break
        try:
            document, end = _DECODER.raw_decode(text, start)
        except json.JSONDecodeError:
            end, are_whole = start + 1, False
        else:
            found += [document] if document not in found else []
        start = text.find("{", end)
    is_slate = keys == _SLATE_KEYS
    of_the_form = [
        each
        for each in found
        if each.keys() == set(keys) or (is_slate and each.keys() & {"pick", "changes"})
    ]
    if len(of_the_form) > 1:
        raise ReplyError(f"the reply holds {len(of_the_form)} different objects; give one alone")
    if of_the_form or (are_whole and len(found) == 1):
        return (of_the_form or found)[0]
    where = f"{error.msg} at character {error.pos}: {json_text(error.doc[error.pos :][:30])}"
    raise ReplyError(
        f"the reply is not one JSON object and nothing else ({where}); answer with the object alone"
    )


def _object_without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for key, value in pairs:
        if key in fields:
            raise ReplyError(f"the reply has the key {json_text(key)} twice; give it once")
        fields[key] = value
    return fields


def _no_such_number(literal: str) -> NoReturn:
    raise ReplyError(f"the reply holds {literal}, which is not JSON; write a finite number")


_DECODER = json.JSONDecoder(
    object_pairs_hook=_object_without_repeats, parse_constant=_no_such_number
)


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


def _ideas(said: Any) -> Iterator[dict[str, Scalar]]:
    """Yield the usable ones of further changes; no reply is refused for the others."""
    for changes in said[:MAX_IDEAS] if isinstance(said, list) else ():
        with suppress(ReplyError):
            yield _changes(changes)


def _said_once(pairs: list[tuple[str, Any]]) -> list[tuple[str, Any]]:
    """Return the pairs without exact repetitions, which small models write: the same knob with the
    same value of the same type."""
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
