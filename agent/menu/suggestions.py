"""Narrow a menu as a language model suggests after reading a person's research directions.

The reply is untrusted. A suggestion can only narrow a knob's domain or fix its value, and one that
the menu cannot take is left out with the reason.
"""

from dataclasses import dataclass, field
from typing import Any, Self

import tomlkit

from agent.menu.files import ProxyMenu, parse_menu
from agent.menu.reply_objects import ReplyError, reply_document
from autoresearch.domains.ranges import Range
from autoresearch.errors import MenuError
from autoresearch.values import Scalar
from autoresearch.words import json_text

KEY = "suggestions"


def suggestions_schema(menu: ProxyMenu) -> dict[str, Any]:
    """Return the JSON schema of a reply, for structured output."""
    values = {"type": "array", "items": {"type": ["number", "string", "boolean"]}, "minItems": 1}
    fields = {
        "knob": {"type": "string", "enum": list(menu.knobs)},
        "values": values,
        "reason": {"type": "string", "maxLength": 240},
    }
    one = {"type": "object", "properties": fields, "required": list(fields)}
    many = {"type": "array", "items": one, "maxItems": len(menu.knobs)}
    return {"type": "object", "properties": {KEY: many}, "required": [KEY]}


@dataclass(slots=True)
class SuggestedMenu:
    """A menu with the usable suggestions of one reply."""

    toml: str
    reasons: dict[str, str] = field(default_factory=dict)
    """Untrusted reason of each change, by knob."""
    left_out: list[str] = field(default_factory=list)
    """A sentence for each suggestion that the menu cannot take."""

    @classmethod
    def of(cls, menu: ProxyMenu, raw: str) -> Self:
        """Return the menu that a reply suggests.

        :raises ReplyError: if the reply holds no list of suggestions.
        """
        document = reply_document(raw, (KEY,))
        said = document.get(KEY)
        if not isinstance(said, list):
            raise ReplyError(f"the reply has no list of {KEY}: {json_text(document)[:200]}")
        found = cls(menu.toml)
        for one in said:
            try:
                name, reason = str(one["knob"]), str(one.get("reason", ""))
                toml = _narrowed(menu, found.toml, name, one["values"])
                parse_menu(toml, "suggested")
            except (MenuError, ValueError, LookupError, TypeError, AttributeError) as error:
                found.left_out.append(f"{json_text(one)[:200]}: {error}")
            else:
                found.toml = toml
                found.reasons[name] = reason
        return found


def _narrowed(menu: ProxyMenu, toml: str, name: str, said: list[Scalar]) -> str:
    """Return a menu's text with one knob's domain narrowed to these values."""
    if name not in menu.knobs:
        raise ValueError(f"{json_text(name)} is not a knob of this menu")
    knob, domain = menu.knobs[name], menu.domains[name]
    values = [domain.coerced(value) for value in said]
    for value in values:
        if clause := knob.why_not(value):
            raise ValueError(clause)
    document = tomlkit.parse(toml)
    table: Any = document["knobs"][name]
    if len(set(values)) == 1:
        del document["knobs"][name]
        document.setdefault("constants", tomlkit.table())[name] = values[0]
    elif isinstance(domain, Range):
        table["low"], table["high"] = sorted(values)[0], sorted(values)[-1]
        table["default"] = min(max(knob.default, table["low"]), table["high"])
    else:
        table["choices"] = [choice for choice in domain.ends if choice in values]
        table["default"] = knob.default if knob.default in values else values[0]
    return tomlkit.dumps(document)
