"""Define the form of a language model's reply: its JSON schema and an example.

The reply has a reason, then a list of changes. Servers that constrain output enforce the length of
a list, but neither the number of an object's properties nor the range of a float. So this form
relies least on the model's own care; the rails check everything again.
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
"""Fewer than the rails allow, so that a slightly longer reason is still accepted."""
DRAWS = 200
"""Most draws for an example that could itself be trained."""


def proposal_schema(menu: ProxyMenu, max_changes: int) -> dict[str, Any]:
    """Return the JSON schema of a proposal over a menu, for structured output."""
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
    """Return changes as a reply lists them."""
    return json.dumps([{"knob": knob, "value": value} for knob, value in changes.items()])


def example_text(memory: Memory, budget: Budget) -> str:
    """Return a reply that sets one knob to a random value, which differs each iteration.

    Small models repeat an example word for word. So it is an untried config that may be trained if
    one is found: neither the menu's defaults nor the reference.
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
    """Return a drawn float to two significant digits if that stays inside its domain."""
    if not isinstance(value, float):
        return value
    rounded = float(f"{value:.2g}")
    return rounded if domain.contains(rounded) else value
