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
from trainer.script.constants import constants
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
        if option is not None and (equals or _is_switch(option)):
            said = text if equals else str(name == _words(option)[0])
            options[option.name] = _set(option, said)
        elif option is not None and rest:
            options[option.name] = _set(option, rest.pop(0))
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


def _is_switch(option: Option) -> bool:
    return option.argument.startswith("{") and ":" in option.argument


def _set(option: Option, text: str) -> Option:
    value = _read(option, text)
    unknown = option.left.startswith("its default") or option.required
    return replace(
        option,
        default=value,
        required=False,
        left="" if unknown and option.argument else option.left,
    )


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
    for name, constant in constants(script_tree(source_of(path)), state=True).items():
        if name in options and options[name].argument:
            yield name, replace(options[name], default=constant.value)
        elif given_by(Option(name, constant.line, constant.value)) == "{seed}":
            # The command line may override what the file defines.
            yield name, Option(name, constant.line, constant.value, passed(f"--{name}", name))
