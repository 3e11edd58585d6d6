"""The form that a language model's reply is asked for in: its JSON schema and an example of it.

A reason first, then a list of changes. Servers that constrain what a model says hold it to the
length of a list, but neither to the number of an object's properties nor to the range of a float,
so this is the form that asks least of a model's own care; the rails check all of it again.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from agent.menu.files import ProxyMenu
from agent.menu.knob import Knob
from agent.proposers.base import Memory
from agent.proposers.draws import against_reference, rng_for
from autoresearch.domains.base import Domain
from autoresearch.errors import SpecError
from autoresearch.values import Scalar
from trainer.spec import Budget

ASKED_REASON_CHARACTERS = 240
"""Fewer than the rails allow: a model that runs over by a word has still made a proposal."""
DRAWS = 200
"""At most, for an example that is itself a proposal that could be trained."""


def proposal_schema(menu: ProxyMenu, max_changes: int) -> dict[str, Any]:
    """The JSON schema of a proposal over a menu, for a model's structured output."""
    return {
        "type": "object",
        "properties": {
            "reason": {"type": "string", "maxLength": ASKED_REASON_CHARACTERS},
            "changes": {
                "type": "array",
                "items": {"anyOf": [_change_schema(knob) for knob in menu.knobs.values()]},
                "minItems": 1,
                "maxItems": max_changes,
            },
        },
        "required": ["reason", "changes"],
        "additionalProperties": False,
    }


def _change_schema(knob: Knob) -> dict[str, Any]:
    value = knob.domain.json_schema()
    return {
        "type": "object",
        "properties": {"knob": {"type": "string", "enum": [knob.name]}, "value": value},
        "required": ["knob", "value"],
        "additionalProperties": False,
    }


def changes_list(changes: Mapping[str, Scalar]) -> str:
    """Changes as a reply lists them."""
    return json.dumps([{"knob": knob, "value": value} for knob, value in changes.items()])


def example_text(memory: Memory, budget: Budget) -> str:
    """A reply that sets one knob to a value drawn by chance: other ones each iteration.

    Small models repeat an example word for word. So it is a config that may be trained and was not
    tried, wherever such a one is found: neither the menu's defaults nor the reference.
    """
    rng = rng_for("example", memory)
    menu = memory.menu
    changes: dict[str, Scalar] = {}
    for _ in range(DRAWS):
        name = rng.choice(list(menu.domains))
        value = _short(menu.domains[name], menu.domains[name].draw(rng))
        changes = {name: value}
        if value != menu.defaults[name] and _is_new(memory, changes, budget):
            break
    reason = "what you expect, and from which measurement"
    return f'{{"reason": "{reason}", "changes": {changes_list(changes)}}}'


def _is_new(memory: Memory, changes: dict[str, Scalar], budget: Budget) -> bool:
    if not against_reference(memory, changes):
        return False
    try:
        config = memory.menu.apply(memory.reference, changes)
    except SpecError:
        return False
    if memory.menu.why_broken(config, budget) is not None:
        return False
    return config.config_hash not in memory.tried


def _short(domain: Domain, value: Scalar) -> Scalar:
    """A drawn float to two significant digits, where that is still inside its domain."""
    if not isinstance(value, float):
        return value
    rounded = float(f"{value:.2g}")
    return rounded if domain.contains(rounded) else value
