"""Sort a script's options into knobs, constants, options set by the loop, and options left
alone."""

import ast
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal

from agent.menu.knobs import Knob
from agent.menu.scripts.domains import domain_of
from agent.menu.scripts.option import Option, given_by, role_of, says, words_of
from agent.menu.scripts.reading import Script
from agent.menu.scripts.tree import calls, last_name, remainders
from agent.menu.trainer_table import BUILT_IN
from autoresearch.words import first_fault
from trainer.machine.environment import may_be_secret


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


_HELD = {
    "length": "how long it trains: a longer run is not a better recipe",
    "evaluation": "changes what the score is measured with or on",
    "machine": "set by the machine",
}
_GIVEN_FOR = {
    "steps": "how long a trial is",
    "horizon": "over how many steps a schedule falls",
    "seconds": "how long a trial is",
    "seed": "differs for each run of a config",
    "out": "the trial's own directory",
    "threads": "the campaign's threads",
    "device": "the campaign's device",
}
_EVERY = r"(eval|evaluation|val|validation|test)( loss)? (every|interval|freq|frequency|steps)"
_LONGEST = r"(max|total|train|training) "


def sorted_options(script: Script) -> list[Place]:
    """Return every option of the script by its use, in the order of the text."""
    taken = {option.name for option in script.options}
    steps = "" if _skips_last(script) else _steps_option(script.options)
    places: list[Place] = []
    for option in script.options:
        template, scores = given_by(option), re.fullmatch(_EVERY, words_of(option.name))
        if template == "{steps}" and option.name != steps:
            template = ""
        elif not template and steps and scores and isinstance(option.default, int):
            template = "{steps}"
        if template:
            why = "so that it scores where a trial ends"
            why = why if scores else _GIVEN_FOR[re.findall(r"{(\w+)}", template)[0]]
            places.append(Place(option, "given", f"{template}, {why}", template))
            continue
        named = _named(option, taken)
        place = _place(named)
        could_be_held = place.use == "left" and not _why_left(named)
        # Without an option that a person set by hand, the script may not start.
        if option.name in script.by_hand and could_be_held and named.default is not None:
            place = Place(named, "constant", "set by hand")
        places.append(place)
    return places


def _skips_last(script: Script) -> bool:
    """Return whether the script evaluates at steps 0, N, 2N … and not after its last step.

    If N were the length of a trial, its only score would be the untrained model's.
    """
    every = {one.name for one in script.options if re.fullmatch(_EVERY, words_of(one.name))}
    for loop in ast.walk(script.tree):
        match loop:
            case ast.For(target=ast.Name(id=counter), iter=counted):
                ranges = [one for one in calls(counted) if last_name(one.func) == "range"]
            case _:
                continue
        from_0 = len(ranges) == 1 and len(ranges[0].args) == 1 and not ranges[0].keywords
        parts = (part for one in ast.walk(loop) for part in remainders(one))
        if from_0 and any(
            isinstance(one.left, ast.Name)
            and one.left.id == counter
            and last_name(one.right) in every
            for one in parts
        ):
            return True
    return False


def _named(option: Option, taken: Iterable[str]) -> Option:
    """Return the option under a name that is not a built-in placeholder."""
    if option.name not in {*BUILT_IN, "budget_steps"} or not (option.argument or option.variable):
        return option
    name = f"{option.name}_"
    while name in taken:
        name += "_"
    return replace(
        option, name=name, argument=option.argument.replace(f"{{{option.name}}}", f"{{{name}}}")
    )


def _place(option: Option) -> Place:
    role, value = role_of(option), option.default
    why = _why_left(option) or first_fault(
        (role == "irrelevant", "for logging, saving or launching, by its name"),
        (value is None, "it has no default"),
    )
    if why or value is None:
        return Place(option, "left", why or "")
    if role != "knob":
        return Place(option, "constant", _HELD[role])
    domain = domain_of(option)
    if isinstance(domain, str) or domain.problem() or not domain.contains(value):
        why = domain if isinstance(domain, str) else "no domain can be suggested"
        return Place(option, "left", why)
    knob = Knob(name=option.name, domain=domain, default=domain.normal(value))
    return Place(option, "knob", knob=knob)


def _why_left(option: Option) -> str | None:
    is_secret = option.variable and may_be_secret(option.variable, str(option.default))
    is_name = option.name.isidentifier() and option.name.isascii()
    return first_fault(
        (option.left, option.left),
        (is_secret, "its name looks like a key, and trials get no keys"),
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
