"""Find the options of a training script, by any mechanism, without running it."""

import ast
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, TypeAlias, get_args

from agent.menu.scripts.option import Option, given_by, passed
from agent.menu.scripts.parser_options import (
    absl_options,
    argparse_options,
    click_options,
    environment_options,
)
from agent.menu.scripts.signatures import signature_options
from agent.menu.scripts.tree import Names, calls, comments, last_name
from agent.menu.scripts.unread import unread
from autoresearch.errors import MenuError, SpecError
from autoresearch.files import read_given
from autoresearch.words import did_you_mean
from trainer.script.constants import constants, constants_in, first_values
from trainer.script.editing import script_tree, settings
from trainer.script.regions import regions

Means: TypeAlias = Literal["args", "env", "edit"]
"""How values reach a script: on its command line, by its environment, or written into a copy."""

_MEANS: tuple[Means, ...] = get_args(Means)

MAX_BYTES = 4 << 20
ENOUGH = 6
"""Constants of a script's own from which on nothing else is drafted as a knob: whoever names what
to search at the top of a script means that."""
_BESIDE = (
    "it is in a call or a function, and others are named at the top; a knob of this name sets it"
)


@dataclass(frozen=True, slots=True)
class Script:
    """A parsed script."""

    path: Path
    tree: ast.Module
    source: str
    means: Means
    options: tuple[Option, ...]
    """Options in the order of the text, each name once."""
    words: tuple[str, ...] = ()
    """Words of the command besides its options."""
    by_hand: frozenset[str] = frozenset()
    """Options whose default comes from a manual start rather than the script."""


def read_script(path: Path, means: str | None = None, words: Sequence[str] = ()) -> Script:
    """Parse a script and find the options that one of the means can set.

    :param means: None takes the first of arguments, environment and editing that has options.
    :param words: arguments of a manual start, which may name one of several commands.
    :raises MenuError: if the script cannot be read, or has no option for the means.
    """
    if means is not None and means not in _MEANS:
        raise MenuError(f"values cannot be set by {means!r:.40}{did_you_mean(means, _MEANS)}")
    source = source_of(path)
    try:
        tree = script_tree(source)
        regions(source)
    except SpecError as error:
        raise MenuError(f"{path}: {error}") from error
    left: list[Option] = []
    for one in _MEANS if means is None else [one for one in _MEANS if one == means]:
        offered = list(_options(one, source, tree, modules_beside(path, tree).values()))
        named: dict[str, Option] = {}
        for option in _of_one_command(offered, words):
            if option.name not in named or named[option.name].left:
                named[option.name] = option
        options = sorted(named.values(), key=lambda option: option.line)
        if any(not option.left for option in options):
            return Script(path, tree, source, one, _seen_beside(options, tree))
        left += options
    found = [f"{one.name}: {one.left}" for one in left[:1]] + unread(tree)[:1]
    reasons = " and ".join(found) or "no option or constant was found"
    raise MenuError(
        f"{path} has no options to set{f' by {means}' if means else ''} "
        f"({reasons}); name each value to search at the top of the script, such as LR = 1e-3, and "
        "draft again, or write the menu by hand"
    )


MAX_MODULES = 20


def imported_names(tree: ast.Module) -> list[str]:
    """Return the modules that a script imports, relative ones with their dots."""
    found: list[str] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            found.append("." * node.level + (node.module or ""))
    return list(dict.fromkeys(found))


def modules_beside(path: Path, tree: ast.Module) -> dict[Path, ast.Module]:
    """Return the readable modules in the script's folder that it imports."""
    found = {}
    for name in imported_names(tree)[:MAX_MODULES]:
        parts = name.lstrip(".").split(".")
        module = path.parent.joinpath(*parts).with_suffix(".py") if parts[0] else None
        if module is None or not module.is_file():
            continue
        try:
            found[module] = script_tree(source_of(module))
        except (MenuError, SpecError):
            continue
    return found


def source_of(path: Path) -> str:
    """Return the text of a script.

    :raises MenuError: if it cannot be read.
    """
    try:
        return read_given(path, MAX_BYTES).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise MenuError(
            f"{path} is not UTF-8 (byte {error.start}); give a Python script saved as UTF-8"
        ) from error
    except OSError as error:
        raise MenuError(
            f"{path} cannot be read: {error.strerror or error}; give the path of a Python script"
        ) from error


_TRAINS = re.compile(r"(pre|fine-?)?_?(train|tune|fit)|run|main")


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


def _options(
    means: Means, source: str, tree: ast.Module, beside: Iterable[ast.Module]
) -> Iterator[Option]:
    """Yield the options that one of the means could set, those that need a person included."""
    names = Names(tree)
    if means == "env":
        yield from environment_options(tree, names)
    elif means == "args":
        yield from argparse_options(tree, names)
        yield from click_options(tree, names)
        yield from absl_options(tree, names)
        yield from signature_options(tree, names, beside)
        yield from _configurator_options(source, tree)
    else:
        said, own = comments(source), constants(tree)
        for one in settings(source).values():
            option = Option(one.name, one.line, default=one.value, doc=said.get(one.line, ""))
            is_beside = one.name not in own and len(own) >= ENOUGH and not given_by(option)
            yield replace(option, left=_BESIDE) if is_beside else option


def _configurator_options(source: str, tree: ast.Module) -> Iterator[Option]:
    """Yield the globals above the line on which the script runs a file that overwrites them from
    the command line, as nanoGPT's ``exec(open('configurator.py').read())`` does."""
    end, said = configurator_line(tree) or 0, comments(source)
    for name, value in first_values(tree).items():
        if value.lineno < end and isinstance(value, ast.IfExp | ast.BinOp | ast.JoinedStr):
            yield Option(name, value.lineno, left="its default is computed")
        for one in constants_in(name, value):
            if one.line < end and one.name == name and not name.startswith("_"):
                doc = said.get(one.line, "")
                yield Option(name, one.line, one.value, passed(f"--{name}", name), doc=doc)


def configurator_line(tree: ast.Module) -> int | None:
    """Return the line on which the script runs the file that overwrites its globals, or None."""
    for call in calls(tree):
        runs = isinstance(call.func, ast.Name) and call.func.id == "exec" and call.args
        if runs and any(last_name(one.func) == "open" for one in calls(call.args[0])):
            return call.lineno
    return None


# --- evidence about an option in the rest of the script --------------------------------------


def _seen_beside(options: Iterable[Option], tree: ast.Module) -> tuple[Option, ...]:
    """Return the options with the values that the script compares them to, and mark those that it
    sets itself."""
    compared, overwritten = _compared(tree), _overwritten(tree)
    seen = []
    for option in options:
        known = option
        if isinstance(option.default, str) and option.default and not option.choices:
            words = _listed(option.doc, option.default) | compared.get(option.name, set())
            others = sorted(words - {option.default, ""})
            known = replace(option, choices=(option.default, *others) if others else ())
        if not option.left and option.argument and option.name in overwritten:
            line = overwritten[option.name]
            known = replace(known, left=f"the script itself sets it on line {line}")
        seen.append(known)
    return tuple(seen)


_LIST = re.compile(r"[\[({:]([^\[\](){}:.]*)")
_WORD = re.compile(r"""["'`]?([\w+-]+)["'`]?""")


def _listed(doc: str, default: str) -> set[str]:
    """Return the words of a bracketed or colon-separated list that contains the default, as in
    ``type of network (RNN_TANH, LSTM, GRU)``."""
    for inside in _LIST.findall(doc):
        items = re.split(r"\s*(?:[,|/]|\bor\b)\s*", inside.strip())
        words = [match[1] for item in items if (match := _WORD.fullmatch(item.strip()))]
        if len(words) == len(items) >= 2 and default in words:
            return set(words)
    return set()


def _compared(tree: ast.Module) -> dict[str, set[str]]:
    """Return the texts that each name, or attribute of that name, is compared with."""
    found: dict[str, set[str]] = {}
    for node in ast.walk(tree):
        match node:
            case ast.Compare(
                left=left, ops=[ast.Eq() | ast.NotEq() | ast.In()], comparators=[right]
            ):
                items = right.elts if isinstance(right, ast.Tuple | ast.List | ast.Set) else [right]
                name = last_name(left)
            case ast.Subscript(value=ast.Dict(keys=keys), slice=index):
                items, name = [key for key in keys if key is not None], last_name(index)
            case _:
                continue
        texts = {one.value for one in items if isinstance(one, ast.Constant)}
        if name:
            found.setdefault(name, set()).update(t for t in texts if isinstance(t, str))
    return found


_HOLDERS = {"args", "opt", "opts", "options", "cfg", "config", "conf", "flags", "params", "hparams"}


def _overwritten(tree: ast.Module) -> dict[str, int]:
    """Return the options that the script always overwrites, with the line."""
    found: dict[str, int] = {}
    for node in ast.walk(tree):
        match node:
            case ast.Assign(
                targets=[ast.Attribute(value=ast.Name(id=holder), attr=name)], value=value
            ) if holder.lower() in _HOLDERS:
                reads = (one for one in ast.walk(value) if isinstance(one, ast.Attribute))
                if all(one.attr != name for one in reads):
                    found.setdefault(name, node.lineno)
    return found
