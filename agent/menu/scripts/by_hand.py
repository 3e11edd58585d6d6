"""Use the arguments of a manual start as the defaults of a script's draft.

``--lr=1e-3``, ``--lr 1e-3``, ``--amp`` and ``LR=1e-3`` are understood. A Python file among them, if
the script runs one over its globals as nanoGPT does, gives the values that it assigns. Words that
are none of the script's options stay in the command unchanged.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from agent.menu.scripts.option import Option, given_by, identifier, passed
from agent.menu.scripts.reading import Script, configurator_line, source_of
from autoresearch.errors import MenuError
from autoresearch.values import Scalar
from autoresearch.words import json_text
from trainer.script.constants import constants_in, first_values
from trainer.script.editing import script_tree


def with_arguments(script: Script, words: Sequence[str]) -> Script:
    """Return the script with the defaults that these arguments give.

    :raises MenuError: if a value is not of its option's type.
    """
    options = {option.name: option for option in script.options}
    kept: list[str] = []
    rest = list(words)
    while rest:
        word = rest.pop(0)
        name, equals, text = word.partition("=")
        option = options.get(_named(options, name)) if word.startswith("-") or equals else None
        is_switch = option is not None and option.argument.startswith("{")
        if option is not None and (equals or is_switch or rest):
            value = text if equals else str(name == _words(option)[0]) if is_switch else rest.pop(0)
            unknown = option.left.startswith("its default") or option.required
            left = "" if unknown and option.argument else option.left
            read = _read(option, value)
            options[option.name] = replace(option, default=read, required=False, left=left)
        else:
            options |= dict(_of_file(script, word, options))
            kept.append(word)
    changed = tuple(options.values())
    given = {option.name for option in changed if option not in script.options}
    return replace(script, options=changed, words=tuple(kept), by_hand=frozenset(given))


def _named(options: dict[str, Option], flag: str) -> str:
    """Return the name of the option that a flag or a variable sets."""
    for name, option in options.items():
        is_switch = option.argument.startswith("{")
        own = _words(option) if is_switch else [re.split("[={]", option.argument)[0]]
        if flag in own:
            return name
    return identifier(flag) if identifier(flag) in options else ""


def _words(option: Option) -> tuple[str, str]:
    """Return the words of a switch for true and for false."""
    yes, _, no = option.argument.partition(":")[2].removesuffix("}").partition("|")
    return yes, no


def _read(option: Option, text: str) -> Scalar:
    kind = type(option.default)
    try:
        if kind is bool:
            return {"true": True, "1": True, "false": False, "0": False}[text.lower()]
        if kind in {int, float}:
            number = float(text)
            return int(number) if kind is int and number == int(number) else number
        if option.default is None and re.fullmatch(r"-?\d+(\.\d*)?(e[-+]?\d+)?", text.lower()):
            return float(text) if set(text.lower()) & set(".e") else int(text)
    except (KeyError, ValueError, OverflowError) as error:
        raise MenuError(
            f"{option.name} is {json_text(option.default)} in the script, and {json_text(text)} is "
            "not of that kind; correct the argument"
        ) from error
    return text


def _of_file(script: Script, word: str, options: dict[str, Option]) -> Iterator[tuple[str, Option]]:
    """Yield the options that a file of overrides sets, if the word is one."""
    path = script.path.parent / word
    if not word.endswith(".py") or not path.is_file() or configurator_line(script.tree) is None:
        return
    values = first_values(script_tree(source_of(path)))
    for one in (each for name, value in values.items() for each in constants_in(name, value)):
        seed = Option(one.name, one.line, one.value)
        if one.name in options and options[one.name].argument:
            yield one.name, replace(options[one.name], default=one.value)
        elif given_by(seed) == "{seed}":
            # The command line may override what the file defines.
            yield one.name, replace(seed, argument=passed(f"--{one.name}", one.name))
