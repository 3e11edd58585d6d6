"""Sort a script's options into knobs, constants, options set by the loop, and options left
alone."""

import ast
import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from agent.menu.knobs import Knob
from agent.menu.scripts.domains import domain_of, meant
from agent.menu.scripts.option import (
    GIVEN,
    WHY,
    Option,
    given_by,
    is_named,
    role_of,
    says,
    words_of,
)
from agent.menu.trainer_table import BUILT_IN, is_secret
from autoresearch.words import first_fault


@dataclass(frozen=True, slots=True)
class Place:
    """An option of a script and its use in the menu."""

    option: Option
    use: Literal["given", "knob", "constant", "left"]
    """Set by the loop, searched, fixed, or not set by the menu."""
    why: str = ""
    template: str = ""
    """Text with the placeholder that the loop fills."""
    knob: Knob | None = None


_WHAT = {given: what for _, _, given, what in GIVEN}
_EVERY = (
    r"(eval|evaluation|val|valid|validation|test)( loss)? (every|interval|freq|frequency|steps)"
)
_LONGEST = r"(max|total|train|training) "


def sorted_options(
    options: Sequence[Option], tree: ast.Module, search: Collection[str] = ()
) -> list[Place]:
    """Return every option of the script by its use, in order.

    :param search: names of options that a person wants as knobs, whatever their names say.
    """
    taken = {option.name for option in options}
    steps = "" if _skips_last(options, tree) else _steps_option(options)
    has_timesteps = any(says(one.name, "timesteps|episodes") for one in options)
    places: list[Place] = []
    for option in options:
        template, scores = given_by(option), is_named(option.name, _EVERY)
        if template == "{steps}" and option.name != steps:
            template = ""
        elif not template and steps and scores and isinstance(option.default, int):
            template = "{steps}"
        if template and option.name not in search:
            what = "{" + re.findall(r"{(\w+)}", template)[0] + "}"
            why = "the length of a trial, so that it scores at its end" if scores else _WHAT[what]
            places.append(Place(option, "given", why, template))
            continue
        named = _named(option, taken)
        is_rollout = has_timesteps and is_named(option.name, "(num|n) steps")
        place = _place(named, is_wanted=option.name in search or is_rollout)
        could_be_held = place.use == "left" and not _why_left(named)
        # Without an option that a person set by hand, the script may not start.
        if option.by_hand and could_be_held and named.default is not None:
            place = Place(named, "constant", "set by hand")
        places.append(place)
    return places


def _skips_last(options: Sequence[Option], tree: ast.Module) -> bool:
    """Return whether the script evaluates at steps 0, N, 2N … and not after its last step.

    If N were the length of a trial, its only score would be the untrained model's.
    """
    every = "|".join(one.name for one in options if is_named(one.name, _EVERY))
    text = ast.unparse(tree) if every else ""
    return any(
        re.search(rf"(?m)^ *(?:el)?if (?!.* or ).*\b{counter} % [\w.]*\b(?:{every})\b", text)
        for counter in _FROM_0.findall(text)
    )


_FROM_0 = re.compile(r"(?m)^ *for (\w+) in (?:\w+\()*range\([^,]*?\)")
"""A loop that counts from 0, as Python spells it."""


def _named(option: Option, taken: Iterable[str]) -> Option:
    """Return the option under a name that is not a built-in placeholder."""
    if option.name not in {*BUILT_IN, "budget_steps"} or not (option.argument or option.variable):
        return option
    name = f"{option.name}_"
    while name in taken:
        name += "_"
    argument = option.argument.replace(f"{{{option.name}", f"{{{name}")
    return replace(option, name=name, argument=argument)


def _place(option: Option, *, is_wanted: bool) -> Place:
    value = meant(option)
    role = "knob" if is_wanted else role_of(option)
    why = _why_left(option) or first_fault(
        (role in {"irrelevant", "machine"}, WHY.get(role, "")),
        (value is None, "it has no default"),
    )
    if why or value is None:
        return Place(option, "left", why or "")
    if role != "knob":
        return Place(option, "constant", WHY[role])
    domain = domain_of(option)
    if isinstance(domain, str) or domain.problem() or not domain.contains(value):
        why = domain if isinstance(domain, str) else "no domain can be suggested"
        return Place(option, "left", why)
    knob = Knob(name=option.name, domain=domain, default=domain.normal(value))
    return Place(option, "knob", knob=knob)


def _why_left(option: Option) -> str | None:
    secret = option.variable and is_secret(option.variable, str(option.default))
    is_name = option.name.isidentifier() and option.name.isascii()
    return first_fault(
        (option.left, option.left),
        (secret, "its name looks like a key, and trials get no keys"),
        (not is_name, "its name cannot be used in a command"),
        (option.required, "the script asks for it and has no default"),
        (option.name in BUILT_IN, f"{{{option.name}}} has another meaning"),
    )


def _steps_option(options: Iterable[Option]) -> str:
    """Return the one option that sets the number of training steps; empty if uncertain.

    Beside epochs or an environment's steps, ``num_steps`` usually means something else.
    """
    options = list(options)
    found = [one.name for one in options if not one.left and given_by(one) == "{steps}"]
    longest = [name for name in found if re.match(_LONGEST, f"{words_of(name)} ")]
    if any(says(one.name, "epochs?|timesteps|episodes") for one in options):
        found = longest
    return next(iter([*longest, *found]), "")
