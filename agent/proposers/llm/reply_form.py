"""Define the form of a language model's reply: its JSON schema and an example.

The reply has a reason, then a choice from a slate or a list of changes. Servers that constrain
output enforce enumerations and the length of a list, but neither the number of an object's
properties nor the range of a float. So this form relies least on the model's own care; the rails
check everything again.
"""

import json
from collections.abc import Collection, Sequence
from contextlib import suppress
from typing import Any

from agent.menu.replies import MAX_IDEAS, OWN
from agent.proposers.base import FEW_CHANGES, SearchView
from agent.proposers.contrasts import contrast
from agent.proposers.draws import rng_for
from agent.proposers.surrogate.space import LAST, is_ordered
from autoresearch.domains.base import Domain
from autoresearch.domains.choices import OrderedChoices
from autoresearch.errors import SpecError
from autoresearch.values import Scalar
from trainer.schema import Budget
from trajectory.proposals import Arm

ASKED_REASON_CHARACTERS = 240
"""Fewer than the rails allow, so that a slightly longer reason is still accepted."""
CODE_CHARACTERS = 2000
"""Longest function to ask for."""
LISTED = 24
"""Values of a number that are offered."""
EXPECTED = [0, *(sign * size for size in (5, 10, 20, 50, 100, 200, 500) for sign in (-1, 1))]
"""Differences that are offered. A small model may write an open number's digits without end."""
_REASON = {"type": "string", "maxLength": ASKED_REASON_CHARACTERS}
DRAWS = 200
"""Most draws for an example that could itself be trained."""


def proposal_schema(view: SearchView) -> dict[str, Any]:
    """Return the JSON schema of a proposal, for structured output."""
    changes = _changes_schema(view, view.asked_changes)
    return _object({"reason": _REASON, "changes": changes})


def slate_schema(view: SearchView, names: Sequence[str], arms: Collection[Arm]) -> dict[str, Any]:
    """Return the JSON schema of a choice from a slate.

    One object, whose changes may be missing: hosted servers refuse alternatives at the top.
    """
    picks = [*names, OWN] if "own" in arms else [*names]
    chosen = {
        "reason": _REASON,
        "pick": {"type": "string", "enum": picks},
        "expected_delta": {"type": "integer", "enum": EXPECTED},
    }
    schema = _object(chosen)
    if "own" in arms:
        schema["properties"]["changes"] = _changes_schema(view, view.asked_changes)
        idea = _changes_schema(view, min(FEW_CHANGES, view.asked_changes))
        schema["properties"]["ideas"] = {"type": "array", "items": idea, "maxItems": MAX_IDEAS}
    return schema


def code_schema() -> dict[str, Any]:
    """Return the JSON schema of a reply that writes a function."""
    return _object({"reason": _REASON, "code": {"type": "string", "maxLength": CODE_CHARACTERS}})


def _object(properties: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def _changes_schema(view: SearchView, most: int) -> dict[str, Any]:
    now = view.menu.knob_values(view.reference)
    changes = [
        _object({"knob": {"type": "string", "enum": [name]}, "value": schema})
        for name, domain in view.menu.open_domains.items()
        if (schema := value_schema(domain, now[name])) is not None
    ]
    return {
        "type": "array",
        "items": {"anyOf": changes},
        "minItems": 1,
        "maxItems": most,
    }


def value_schema(domain: Domain, now: Scalar) -> dict[str, Any] | None:
    """Return the JSON schema of a new value: a short list, without the present one. None if there
    is no other value."""
    offered = [value for value in listed(domain) if value != now or type(value) is not type(now)]
    kind = domain.json_schema()["type"]
    return {"type": kind, "enum": offered} if offered else None


def listed(domain: Domain) -> list[Scalar]:
    """Return the values that are offered: all of them if they are few, else some, evenly spaced
    on the domain's scale.

    Small models write floats of twenty digits, or the reference's own. The rails accept every other
    value of the domain too.
    """
    if not is_ordered(domain) or isinstance(domain, OrderedChoices):
        return list(domain.ends)
    values = []
    for place in range(LISTED):
        value = domain.at(min(place / (LISTED - 1), LAST))
        if isinstance(value, float):  # two significant digits, if that stays inside the domain
            rounded = float(f"{value:.2g}")
            value = rounded if domain.contains(rounded) else domain.rounded(value)
        values.append(domain.normal(value))
    return list(dict.fromkeys(values))


def example_text(view: SearchView, budget: Budget) -> str:
    """Return a reply that sets one knob to a random value, which differs each iteration.

    Small models repeat an example word for word. So it is an untried config that may be trained if
    one is found: neither the menu's defaults nor the reference.
    """
    rng = rng_for("example", view)
    menu = view.menu
    now = menu.knob_values(view.reference)
    name, changes = "", {}
    for _ in range(DRAWS):
        name = rng.choice(list(menu.open_domains))
        changes = {name: rng.choice(listed(menu.open_domains[name]))}
        if changes[name] == menu.defaults[name]:
            continue
        with suppress(SpecError):
            config = menu.apply(view.reference, changes)
            is_new = config != view.reference and config.config_hash not in view.tried
            if is_new and menu.why_broken(config, budget) is None:
                break
    reason = json.dumps(f"{_cited(view)}; {name} is {json.dumps(now[name])} now")
    listed_changes = json.dumps([{"knob": knob, "value": one} for knob, one in changes.items()])
    return f'{{"reason": {reason}, "changes": {listed_changes}}}'


def slate_example(view: SearchView, names: Sequence[str]) -> str:
    """Return a pick by chance, with a reason that cites a measurement; another each iteration."""
    pick = rng_for("example", view).choice(names)
    reason = f"{_cited(view)}, and {pick} changes most of the same knobs"
    return json.dumps({"reason": reason, "pick": pick, "expected_delta": 0})


def _cited(view: SearchView) -> str:
    """Return a clause on the best config other than the reference, as the prompt writes it."""
    entries = view.evidence.configs
    reference = entries.get(view.reference.config_hash)
    others = [one for one in entries.values() if one is not reference and one.scores]
    best = min(others, key=lambda one: one.mean, default=None)
    measured = None if best is None else contrast(best, reference, None)
    if best is None or measured is None:
        return "nothing but the reference is measured"
    return f"{view.menu.measure.counted(measured.delta)} was measured in #{best.iter}"
