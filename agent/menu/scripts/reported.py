"""Turn what a script's own parser reported (:mod:`trainer.command.observing`) into options.

The values that the script was started with by hand are the defaults: ``--lr=1e-3``, ``--lr 1e-3``,
``--amp`` and ``LR=1e-3``. Words that are none of its options stay in the command as they are.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from agent.menu.scripts.option import Option, given_by, identifier
from autoresearch.errors import MenuError
from autoresearch.values import Scalar
from autoresearch.words import json_text
from trainer.command.observing import FAILED, MARK

POSITIONAL = "it is positional and has no name"
SEVERAL = "it takes several values"
UNTYPED = "it has no type, so values from the command line are text; add type= to it"
_TRAINS = re.compile(r"(pre|fine-?)?_?(train|tune|fit)|run|main")


@dataclass(frozen=True, slots=True)
class Reported:
    """The options of a script's own parser."""

    options: tuple[Option, ...] = ()
    words: tuple[str, ...] = ()
    """Words of the command besides its options."""
    given: tuple[str, ...] = ()
    """All words of a manual start."""
    missing: tuple[str, ...] = ()
    """Modules that the script imports and that are not installed."""
    failed: str = ""
    """Why it reached no parser; empty if it did, or has none."""


def reported(lines: Sequence[str], words: Sequence[str], source: str) -> Reported:
    """Return what a script reported, among the lines that it printed.

    :param words: arguments of a manual start, which may name one of several commands.
    :param source: the script's text, which may convert an option that has no type.
    :raises MenuError: if a value given by hand is not of its option's type.
    """
    records = [json.loads(one.removeprefix(MARK)) for one in lines if one.startswith(MARK)]
    said: dict[str, Any] = {}
    for one in records:
        said |= one.get("values", {})
    found = [_option(one, said, source) for one in records if one["kind"] == "option"]
    named: dict[str, Option] = {}
    for one in _of_one_command(_joined(found, records, said), words):
        if one.name not in named or named[one.name].left:
            named[one.name] = one
    if any(one.get("of") == "globals" for one in records):
        named |= _of_files(said, named)
    options, kept = _by_hand(named, words, said)
    missing = tuple(one["name"] for one in records if one["kind"] == "missing")
    said_why = [one.removeprefix(FAILED) for one in lines if one.startswith(FAILED)]
    return Reported(options, kept, tuple(words), missing, "" if options else "".join(said_why))


def _option(record: Mapping[str, Any], said: Mapping[str, Any], source: str) -> Option:
    """Return the option that one record describes."""
    name, kind = identifier(record["name"]), record.get("type", "")
    all_flags = record.get("flags", [])
    place = all_flags.index("|") if "|" in all_flags else len(all_flags)
    flags, off = all_flags[:place], all_flags[place + 1 :]
    flag = next((one for one in flags if one.startswith("--")), "".join(flags[:1]))
    default = said.get(record["name"], record.get("default"))
    if isinstance(default, dict):
        default = record.get("default")
    action = record["action"]
    arguments = {
        "Store": f"{flag}={{{name}}}" if flag.startswith("--") else f"{flag}{{{name}}}",
        "StoreTrue": f"{{{name}:{flag}|{off[0]}}}" if off else f"{{{name}:{flag}}}",
        "StoreFalse": f"{{{name}:|{flag}}}",
        "BooleanOptional": f"{{{name}:{flag}|--no-{flag.removeprefix('--')}}}",
    }
    argument = arguments.get(action, "")
    words = record.get("words")
    if words and words != [str(True), str(False)]:
        argument = f"{{{name}:{flag}={words[0]}|{flag}={words[1]}}}"
    left = ""
    is_converted = re.search(rf"\b(int|float)\(\s*\w+\.{re.escape(record['name'])}\b", source)
    if not flag:
        left = POSITIONAL
    elif not argument:
        left = f"its action is {action}"
    elif record.get("several") or isinstance(default, list):
        left = SEVERAL
    elif isinstance(default, bool) and action == "Store" and not words:
        left = "its type converts every text to true, even False"
    elif action == "Store" and not kind and isinstance(default, int | float) and not is_converted:
        left = "" if words else UNTYPED
    elif isinstance(default, dict):
        left = "its default cannot be read: it is computed"
    scalar = default if isinstance(default, bool | int | float | str) else None
    choices = [_typed(one, kind) for one in record.get("choices") or ()]
    return Option(
        name,
        _typed(scalar, kind),
        argument,
        kind=kind if kind in {"int", "float", "bool", "str"} else "",
        choices=tuple(one for one in choices if isinstance(one, bool | int | float | str)),
        low=record.get("low"),
        high=record.get("high"),
        doc=record.get("help", ""),
        required=record.get("required", False),
        command=record.get("command", ""),
        left=left,
    )


def _typed(value: Scalar | None, kind: str) -> Scalar | None:
    """Return a value converted to the script's declared type: 1 becomes 1.0 for a float, 1e3
    becomes 1000 for an int."""
    if isinstance(value, bool):
        return value
    if kind == "float" and isinstance(value, int):
        return float(value)
    if kind == "int" and isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, str) and kind in {"int", "float"}:
        try:
            return int(value) if kind == "int" else float(value)
        except ValueError:
            return value
    return value


def _joined(
    options: list[Option], records: list[dict[str, Any]], said: Mapping[str, Any]
) -> list[Option]:
    """Return the options, those that exclude each other as one with a choice of their flags."""
    described = [one for one in records if one["kind"] == "option"]
    groups: dict[tuple[str, int], list[int]] = {}
    for place, one in enumerate(described):
        if "excludes" in one:
            groups.setdefault((one.get("command", ""), one["excludes"]), []).append(place)
    for members in groups.values():
        if len(members) == 1:
            continue
        names = ", ".join(options[place].name for place in members)
        flags = [described[place]["flags"][0] for place in members if described[place]["flags"]]
        is_switches = all(described[place]["action"].startswith("Store") for place in members)
        is_switches = is_switches and all(described[p]["action"] != "Store" for p in members)
        for place in members:
            why = f"it is one of {names}, which exclude each other"
            options[place] = replace(options[place], left=why)
        if is_switches and len(flags) == len(members):
            chosen = [
                described[place]["flags"][0]
                for place in members
                if "const" in described[place]
                and said.get(described[place]["name"]) == described[place]["const"]
                and described[place].get("default") != described[place]["const"]
            ]
            name = "_or_".join(options[place].name for place in members)[:60]
            if len({options[place].name for place in members}) == 1:
                name = options[members[0]].name
                options[members[0]] = replace(options[members[0]], name=f"{name}_")
            choices = ("", *flags)
            default = chosen[0] if chosen else ""
            options.append(Option(name, default, f"{{{name}}}", choices=choices))
    return options


def _of_one_command(options: list[Option], words: Sequence[str]) -> Iterator[Option]:
    """Yield the options, marking those of subcommands other than the one among the words, or else
    the training one."""
    commands = [option.command for option in options if option.command]
    usual = commands[0] if commands and all(one.command for one in options) else ""
    given = [one for one in words if one in commands]
    trains = next(iter([*given, *filter(_TRAINS.match, commands)]), usual)
    for option in options:
        is_other = option.command not in {"", trains}
        why = f"it belongs to the command {option.command}"
        yield replace(option, left=why, required=False) if is_other else option


def _of_files(said: Mapping[str, Any], known: Mapping[str, Option]) -> dict[str, Option]:
    """Return the seeds that a file of overrides adds to a script's globals; the command line may
    override them."""
    added = {}
    for name, value in said.items():
        one = Option(name, value, f"--{name}={{{name}}}") if name not in known else None
        if one is not None and given_by(one) == "{seed}":
            added[name] = one
    return added


# --- a manual start ------------------------------------------------------------------------------


def _by_hand(
    named: dict[str, Option], words: Sequence[str], said: Mapping[str, Any]
) -> tuple[tuple[Option, ...], tuple[str, ...]]:
    """Return the options with their values of a manual start, and the words that are none."""
    options, kept, rest = dict(named), list[str](), list(words)
    while rest:
        word = rest.pop(0)
        flag, equals, text = word.partition("=")
        name = _named(options, flag) if word.startswith("-") or equals else ""
        if not name:
            kept.append(word)
            continue
        option = options[name]
        is_switch = option.argument.startswith("{") and not equals and "=" not in option.argument
        if is_switch:
            text = str(flag in option.argument.partition(":")[2].partition("|")[0])
            text = flag if not isinstance(option.default, bool | None) else text
        elif not equals and rest:
            text = rest.pop(0)
        read = option.default if name in said and said[name] is not None else _read(option, text)
        is_unknown = option.left.startswith("its default") or option.required
        left = "" if is_unknown and option.argument else option.left
        options[name] = replace(option, default=read, required=False, left=left, by_hand=True)
    commands = {one.command for one in options.values() if not one.left}
    return tuple(options.values()), tuple(one for one in kept if one not in commands)


def _named(options: Mapping[str, Option], flag: str) -> str:
    """Return the name of the option that a flag or a variable sets."""
    settable_first = sorted(options.items(), key=lambda pair: pair[1].left != "")
    for name, option in settable_first:
        if flag in re.split(r"[|:={}]", option.argument) or flag in option.choices:
            return name
    return identifier(flag) if identifier(flag) in options else ""


def _read(option: Option, text: str) -> Scalar:
    kind = option.kind or type(option.default).__name__
    try:
        if kind == "bool":
            return {"true": True, "1": True, "false": False, "0": False}[text.lower()]
        if kind in {"int", "float"}:
            number = float(text)
            return int(number) if kind == "int" and number == int(number) else number
        if option.default is None and re.fullmatch(r"-?\d+(\.\d*)?(e[-+]?\d+)?", text.lower()):
            return float(text) if set(text.lower()) & set(".e") else int(text)
    except (KeyError, ValueError, OverflowError) as error:
        raise MenuError(
            f"{option.name} is {json_text(option.default)} in the script, and {json_text(text)} is "
            "not of that kind; correct the argument"
        ) from error
    return text
