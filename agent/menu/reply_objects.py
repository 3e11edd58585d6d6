"""Find the one JSON object in a raw reply.

Models add thoughts, code fences, channel tokens and prose unasked. So a reply that is not JSON is
read without its thoughts, and must then hold exactly one object of the form: guessing between two
is how a wrong config gets trained. What loses nothing is accepted: a list of one object, a call of
a function whose arguments are the object, keys in another case, nulls and no-break spaces.
"""

import json
import re
from collections.abc import Collection, Mapping
from contextlib import suppress
from typing import Any, NoReturn

from autoresearch.words import json_text

_NAMES = r"(?:think|thinking|thoughts?|reasoning|reflection|scratchpad|analysis|seed:think)"
THOUGHT = re.compile(
    rf"(?P<open><{_NAMES}>|\[THINK\]|◁think▷|<\|START_THINKING\|>|<\|begin_of_thought\|>"
    r"|<\|channel\|>(?:analysis|commentary)<\|message\|>|<\|channel>thought)"
    rf"|(?P<close></{_NAMES}>|\[/THINK\]|◁/think▷|<\|END_THINKING\|>|<\|end_of_thought\|>"
    r"|<channel\|>)|(?P<end><\|end\|>)",
    re.IGNORECASE,
)
"""Marks that begin or end thoughts in any family of models; ``end`` may also end the answer."""
_TAGGED = re.compile(
    r"<parameter=(\w+)>\s*(.*?)\s*</parameter>"
    r"|<arg_key>\s*(\w+)\s*</arg_key>\s*<arg_value>\s*(.*?)\s*</arg_value>",
    re.DOTALL,
)
"""Arguments of a call that a model writes in tags, as Qwen's and GLM's do."""
_CALL = frozenset("name arguments parameters function type id input tool".split())
"""Keys of a call of a function, which a model writes although none was offered."""
_SPACES = dict.fromkeys((0xA0, 0x202F, 0x2007, 0x2060, 0x3000, 0xFEFF, *range(0x2000, 0x200C)), " ")
MAX_STARTS = 1000
"""Most braces in prose at which an object is tried."""


class ReplyError(ValueError):
    """A reply without a proposal; the message is one sentence for its author."""


def reply_document(raw: str, keys: tuple[str, ...], some: Collection[str] = ()) -> dict[str, Any]:
    """Return the whole reply if it is a JSON object, else the one object of the form within it.

    :param keys: keys of the form.
    :param some: keys of which one is enough for the form.
    :raises ReplyError: if there is none.
    """
    if not raw.strip():
        raise ReplyError(f"the reply is empty; answer with one JSON object of {listed(keys)}")
    try:
        raw.encode()  # half of a surrogate pair cannot be stored
        try:
            document = _plain(_DECODER.decode(raw), keys)
        except json.JSONDecodeError as error:
            text = without_thoughts(raw).translate(_SPACES)
            document = _only_object(text, keys, some, error)
        json.dumps(document, ensure_ascii=False).encode()
    except ReplyError:
        raise
    except (RecursionError, ValueError) as error:
        # half a surrogate pair, deep nests, or a number of thousands of digits
        raise ReplyError(
            "the reply holds no readable JSON; answer with plain, short JSON"
        ) from error
    if not isinstance(document, dict):
        raise ReplyError(
            f"the reply is {json_text(document)}; answer with a JSON object of {listed(keys)}"
        )
    return document


def refuse_extra_keys(document: Mapping[str, Any], keys: tuple[str, ...]) -> None:
    """
    :raises ReplyError: if the document has another key.
    """
    for key in document:
        if key not in keys:
            raise ReplyError(
                f"the reply has an extra key {json_text(key)}; keep {listed(keys)} only"
            )


def listed(keys: tuple[str, ...]) -> str:
    """Return the keys as words: ``a, b and c``."""
    return " and ".join(filter(None, (", ".join(keys[:-1]), keys[-1])))


def without_thoughts(raw: str) -> str:
    """Return a reply without the thoughts that its marks enclose.

    :raises ReplyError: if nothing else is in it.
    """
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


def loaded(value: Any) -> Any:
    """Return the object or list that a text holds, else the value itself."""
    if isinstance(value, str) and value.lstrip().startswith(("{", "[")):
        with suppress(json.JSONDecodeError):
            return _DECODER.decode(value)
    return value


def _plain(value: Any, keys: tuple[str, ...]) -> Any:
    """Return an object of the form without what a model wraps around it.

    :raises ReplyError: if a key is there twice.
    """
    if isinstance(value, list) and len(value) == 1:
        return _plain(value[0], keys)
    if not isinstance(value, dict):
        return value
    folded = {name: name.strip().casefold() for name in value}
    said = [(name, each) for name, each in value.items() if each is not None]
    named = object_without_repeats(
        [(folded[name] if folded[name] in keys else name, each) for name, each in said]
    )
    if named.keys().isdisjoint(keys) and (len(named) == 1 or named.keys() <= _CALL):
        inner = [_plain(loaded(each), keys) for each in named.values()]
        forms = [each for each in inner if isinstance(each, dict) and each.keys() & set(keys)]
        if len(forms) == 1:
            return forms[0]
    return named


def _only_object(
    text: str, keys: tuple[str, ...], some: Collection[str], error: json.JSONDecodeError
) -> Any:
    """Return the one object of the form in a text, or the only object of any form.

    :param error: why the whole reply is not JSON.
    """
    tagged = [(one or two, loaded(this or that)) for one, this, two, that in _TAGGED.findall(text)]
    found: list[dict[str, Any]] = [object_without_repeats(tagged)] if tagged else []
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
            document = _plain(document, keys)
            found += [document] if document not in found else []
        start = text.find("{", end)
    of_the_form = [
        each for each in found if each.keys() == set(keys) or not each.keys().isdisjoint(some)
    ]
    if len(of_the_form) > 1:
        raise ReplyError(f"the reply holds {len(of_the_form)} different objects; give one alone")
    if of_the_form or (are_whole and len(found) == 1):
        return (of_the_form or found)[0]
    where = f"{error.msg} at character {error.pos}: {json_text(error.doc[error.pos :][:30])}"
    raise ReplyError(
        f"the reply is not one JSON object and nothing else ({where}); answer with the object alone"
    )


def object_without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object of these pairs.

    :raises ReplyError: if a key is there twice.
    """
    fields: dict[str, Any] = {}
    for key, value in pairs:
        if key in fields:
            raise ReplyError(f"the reply has the key {json_text(key)} twice; give it once")
        fields[key] = value
    return fields


def _no_such_number(literal: str) -> NoReturn:
    raise ReplyError(f"the reply holds {literal}, which is not JSON; write a finite number")


_DECODER = json.JSONDecoder(
    object_pairs_hook=object_without_repeats, parse_constant=_no_such_number
)
