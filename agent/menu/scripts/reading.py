"""Read a training script's text: its constants, its environment, and what it says of its options.

The text is the second source of a draft, beside what the script's own parser reports
(:mod:`agent.menu.scripts.reported`) and what it prints.
"""

import ast
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, TypeAlias, get_args

from agent.menu.scripts.option import Option, given_by
from agent.menu.scripts.reported import Reported
from agent.menu.scripts.sorting import sorted_options
from agent.menu.scripts.tree import calls, comments, dotted, evaluating, last_name, text_in
from autoresearch.errors import MenuError, SpecError
from autoresearch.files import read_given
from autoresearch.words import did_you_mean
from trainer.script.constants import constants, first_values
from trainer.script.editing import script_tree, settings, unset
from trainer.script.literals import NotLiteralError, literal
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


_NOT_PASSED = "it is an argument, and values do not reach this script by arguments"


@dataclass(frozen=True, slots=True)
class Script:
    """A parsed script."""

    path: Path
    tree: ast.Module
    source: str
    means: Means
    options: tuple[Option, ...]
    """Each name once."""
    words: tuple[str, ...] = ()
    """Words of the command besides its options."""
    missing: tuple[str, ...] = ()
    """Modules that the script imports and that are not installed."""
    failed: str = ""
    """Why its options are unknown; empty if they are known, or it has none."""


def text_of(path: Path) -> tuple[str, ast.Module]:
    """Return the text of a script and its syntax tree.

    :raises MenuError: if it cannot be read.
    """
    if path.suffix == ".ipynb":
        raise MenuError(
            f"{path} is a notebook; make a script of it with `jupyter nbconvert --to script "
            f"{path}`, and draft from that"
        )
    try:
        source = read_given(path, MAX_BYTES).decode("utf-8-sig")
        tree = script_tree(source)
        regions(source)
    except UnicodeDecodeError as error:
        raise MenuError(
            f"{path} is not UTF-8 (byte {error.start}); give a Python script saved as UTF-8"
        ) from error
    except OSError as error:
        raise MenuError(
            f"{path} cannot be read: {error.strerror or error}; give the path of a Python script"
        ) from error
    except SpecError as error:
        raise MenuError(f"{path}: {error}") from error
    return source, tree


def script_of(path: Path, reported: Reported, means: str | None = None) -> Script:
    """Return a script with the options that one of the means can set.

    :param means: None takes the first of arguments, environment and editing that has a knob, else
        the first that has options.
    :raises MenuError: if the script cannot be read, or has no option for the means.
    """
    if means is not None and means not in _MEANS:
        raise MenuError(f"values cannot be set by {means!r:.40}{did_you_mean(means, _MEANS)}")
    source, tree = text_of(path)
    scripts = []
    for one in _MEANS if means is None else [one for one in _MEANS if one == means]:
        options = _options(one, source, tree, reported)
        if any(not option.left for option in options):
            words = reported.words if one == "args" else reported.given
            seen = _seen_beside(options, tree)
            scripts.append(
                Script(path, tree, source, one, seen, words, reported.missing, reported.failed)
            )
    if scripts:
        have_knobs = (
            one
            for one in scripts
            if any(place.knob for place in sorted_options(one.options, one.tree))
        )
        chosen = next(have_knobs, scripts[0])
        others = () if chosen.means == "args" else reported.options
        left = [replace(one, left=_NOT_PASSED, argument="", required=False) for one in others]
        known = {one.name for one in chosen.options}
        return replace(
            chosen, options=(*chosen.options, *(one for one in left if one.name not in known))
        )
    reasons = [f"{one} is not installed in its Python" for one in reported.missing]
    why = ", ".join([*reasons, *unread(tree)]) or "no option or constant was found"
    raise MenuError(
        f"{path} has no options to set{f' by {means}' if means else ''} ({why}); name each value "
        "to search at the top of the script, such as LR = 1e-3, and draft again, or write the "
        "menu by hand: `autoresearch menu new` shows how"
    )


_FOREIGN = ("hydra", "omegaconf", "jsonargparse", "ml_collections", "yaml", "lightning.pytorch.cli")


def unread(tree: ast.Module) -> list[str]:
    """Return a clause for each way to read settings that a draft cannot see: a library that reads
    files, or words of the command that the script reads itself."""
    tops = [one.split(".")[0] for one in imported_names(tree)]
    found = [one for one in tops if one in _FOREIGN]
    named = (dotted(one) for one in ast.walk(tree) if isinstance(one, ast.Attribute))
    if "sys.argv" in named and not set(tops) & set(_PARSERS):
        found.append("sys.argv")  # it parses them itself, as minGPT does
    return [
        f"its settings by {one} are not read: add those you want to the command, as docs/menus.md "
        "shows, and a knob for each"
        for one in dict.fromkeys(found)
    ]


_PARSERS = (
    *("argparse", "click", "typer", "absl", "fire", "tyro", "transformers", "trl", "tap"),
    *("jsonargparse", "simple_parsing", "draccus", "pyrallis", "lightning", "configargparse"),
)
_PARSES = re.compile(rf"^\s*(?:import|from) (?:{'|'.join(_PARSERS)})\b", re.MULTILINE)
_RUNS_A_FILE = re.compile(r"\bexec\((\w+\()*open\(")
"""How a script runs a file that overwrites its globals, as nanoGPT does."""
_MOST_ABOVE, _MOST_FILES = 4, 300


def parses(tree: ast.Module, path: Path) -> bool:
    """Return whether a script, a module beside it, or a package in its folder or one above it,
    imports what parses a command line."""
    trees = [tree, *modules_beside(path, tree).values()]
    names = {name.split(".")[0] for one in trees for name in imported_names(one)}
    if names & set(_PARSERS) or _RUNS_A_FILE.search(ast.unparse(tree)):
        return True
    near = path.resolve().parents[:_MOST_ABOVE]
    packages = (folder / name for folder in near for name in names if name)
    for package in packages:
        files = package.rglob("*.py") if (package / "__init__.py").is_file() else ()
        for file in sorted(files)[:_MOST_FILES]:
            if _PARSES.search(file.read_text("utf-8", "replace")):
                return True
    return False


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
        if len(parts) > 1 and parts[0] == path.resolve().parent.name:  # the package it lies in
            parts = parts[1:]
        module = path.parent.joinpath(*parts).with_suffix(".py") if parts[0] else None
        if module is None or not module.is_file():
            continue
        try:
            found[module] = text_of(module)[1]
        except MenuError:
            continue
    return found


def _options(means: Means, source: str, tree: ast.Module, reported: Reported) -> tuple[Option, ...]:
    """Return the options that one of the means could set, those that need a person included."""
    said = comments(source)
    if means == "args":
        docs = {name: said.get(node.lineno, "") for name, node in first_values(tree).items()}
        return tuple(
            replace(one, doc=one.doc or docs.get(one.name, "")) for one in reported.options
        )
    if means == "env":
        return tuple({one.name: one for one in _of_environment(tree)}.values())
    own = constants(tree)
    evaluated = [range(one.lineno, (one.end_lineno or 0) + 1) for one in evaluating(tree)]
    found = []
    for one in settings(source).values():
        option = Option(one.name, one.value, doc=said.get(one.line, ""))
        if one.owner and _GRID.search(one.owner):
            found.append(replace(option, left="it is a value of the script's own search"))
            continue
        if any(one.line in lines for lines in evaluated) and not given_by(option):
            found.append(replace(option, left="it is in a function that evaluates"))
            continue
        is_beside = one.name not in own and len(own) >= ENOUGH and not given_by(option)
        found.append(replace(option, left=_BESIDE) if is_beside else option)
    return (*found, *(Option(name, left=why) for name, why in unset(source).items()))


_GRID = re.compile(r"(?i)grid|distribution|search_space")
_READERS = {"environ.get", "os.environ.get", "getenv", "os.getenv"}


def _of_environment(tree: ast.Module) -> Iterator[Option]:
    """Yield every variable that the script reads with a default: ``int(os.environ.get("N",
    "5"))``."""
    casts = {
        id(call.args[0]): dotted(call.func)
        for call in calls(tree)
        if len(call.args) == 1 and dotted(call.func) in {"int", "float", "str"}
    }
    for call in calls(tree):
        name = text_in(call.args[0]) if len(call.args) == 2 else ""
        if dotted(call.func) not in _READERS or not name.isidentifier() or not name.isascii():
            continue
        kind = casts.get(id(call), "")
        try:
            value = literal(call.args[1])
            if kind in {"int", "float"} and isinstance(value, str | int | float):
                value = int(value) if kind == "int" else float(value)
        except (NotLiteralError, ValueError):
            yield Option(name, left="its default cannot be read: it is computed")
            continue
        scalar = value if isinstance(value, bool | int | float | str) else None
        yield Option(name, scalar, variable=name, kind=kind)


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
    """Return the options that the script overwrites before it reads them, with the line."""
    found: dict[str, int] = {}
    reads: dict[str, int] = {}
    for node in ast.walk(tree):
        match node:
            case ast.Assign(targets=[ast.Attribute(value=ast.Name(id=holder), attr=name)]):
                if holder.lower() in _HOLDERS:
                    found[name] = min(node.lineno, found.get(name, node.lineno))
            case ast.Attribute(attr=name, ctx=ast.Load()):
                reads[name] = min(node.lineno, reads.get(name, node.lineno))
    return {name: line for name, line in found.items() if line < reads.get(name, line + 1)}
