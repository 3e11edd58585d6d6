"""Find the options of a script that uses argparse, click or absl, or reads its environment."""

import ast
from collections.abc import Iterator, Mapping, Set
from typing import Any

from agent.menu.scripts.option import Option, identifier, passed, switched, typed_choices
from agent.menu.scripts.tree import Names, calls, dotted, functions, keywords, last_name
from autoresearch.values import Scalar

POSITIONAL = "it is positional and has no name"
SEVERAL = "it takes several values"


def declared(
    names: Names,
    name: str,
    line: int,
    flag: str,
    default: ast.expr | None,
    kind: str,
    *,
    switch: tuple[str, str] | None = None,
    choices: tuple[Scalar, ...] = (),
    left: str = "",
    **more: Any,
) -> Option:
    """Return an option that a library declares.

    :param kind: the name of its type; empty if none is declared.
    :param switch: a boolean's words for true and false.
    :param left: why it cannot be set; empty if it can.
    """
    value, unread = names.default(default, kind)
    argument = switched(name, *switch) if switch and not unread else passed(flag, name)
    values = typed_choices(choices, kind)
    return Option(name, line, value, argument, choices=values, left=left or unread, **more)


def is_true(node: ast.expr | None) -> bool:
    """Return whether an expression is the word True."""
    return isinstance(node, ast.Constant) and node.value is True


def argparse_options(tree: ast.Module, names: Names) -> Iterator[Option]:
    """Yield every ``add_argument`` of the script, with the defaults of ``set_defaults``."""
    commands = _subcommands(tree, names)
    defaults = {
        name: value
        for call in calls(tree)
        if last_name(call.func) == "set_defaults"
        for name, value in keywords(call).items()
    }
    cast = {
        last_name(call.args[0])
        for call in calls(tree)
        if last_name(call.func) in {"int", "float"} and len(call.args) == 1
    }
    adds = {"add_argument"} | {
        target.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and last_name(node.value) == "add_argument"
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    for call in calls(tree):
        flags = [text for one in call.args if (text := names.text(one))]
        if last_name(call.func) in adds and flags:
            parser = call.func.value if isinstance(call.func, ast.Attribute) else call.func
            command = commands.get(last_name(parser), "")
            yield _argument(call, flags, names, defaults, cast, command)


def _argument(
    call: ast.Call,
    flags: list[str],
    names: Names,
    defaults: Mapping[str, ast.expr],
    cast: Set[str],
    command: str,
) -> Option:
    """Return an ``add_argument``'s option; one in ``cast``, made a number later, needs no type."""
    said = keywords(call)
    flag = next((flag for flag in flags if flag.startswith("--")), flags[0])
    name = identifier(names.text(said.get("dest")) or flag)
    kind = last_name(said["type"]) if "type" in said else ""
    action = names.text(said.get("action")) or last_name(said.get("action", ast.Name("")))
    default = defaults.get(name, said.get("default"))
    switches = {
        "store_true": (flag, ""),
        "store_false": ("", flag),
        "BooleanOptionalAction": (flag, f"--no-{flag.removeprefix('--')}"),
    }
    if action in {"store_true", "store_false"}:
        default = ast.Constant(action == "store_false")
    is_positional = not flag.startswith("-")
    left = ""
    if is_positional:
        left = POSITIONAL
    elif action not in {"", "store", *switches}:
        left = f"its action is {action}"
    elif "nargs" in said and names.text(said["nargs"]) != "?":
        left = SEVERAL
    elif kind == "bool":
        left = "type=bool converts every text to true, even False"
    elif not (kind or action in switches or name in cast) and names.number(default) is not None:
        left = "it has no type, so values from the command line are text; add type= to it"
    return declared(
        names,
        name,
        call.lineno,
        flag,
        default,
        kind,
        switch=switches.get(action),
        choices=names.choices(said.get("choices")),
        left=left,
        doc=names.text(said.get("help")),
        required="nargs" not in said if is_positional else is_true(said.get("required")),
        command=command,
    )


def _subcommands(tree: ast.Module, names: Names) -> dict[str, str]:
    """Return the parsers made by ``add_parser``, with the subcommand's name."""
    found = {}
    for node in ast.walk(tree):
        match node:
            case ast.Assign(
                targets=[target],
                value=ast.Call(func=ast.Attribute(attr="add_parser"), args=[word, *_]),
            ):
                found[last_name(target)] = names.text(word) or last_name(target)
    return found


_WORDS = {"INT": "int", "FLOAT": "float", "STRING": "str", "IntRange": "int", "FloatRange": "float"}


def click_options(tree: ast.Module, names: Names) -> Iterator[Option]:
    """Yield every ``@click.option`` of the script's commands."""
    groups = {
        one.name
        for one in functions(tree)
        if any(last_name(called(each)) == "group" for each in one.decorator_list)
    }
    for function in functions(tree):
        command = _command(function, groups, names)
        for decorator in function.decorator_list:
            kind = last_name(called(decorator))
            if not isinstance(decorator, ast.Call) or kind not in {"option", "argument"}:
                continue
            texts = [text for one in decorator.args if (text := names.text(one))]
            if texts and ("click" in dotted(decorator.func) or any("-" in one for one in texts)):
                yield _decorator(decorator, texts, names, command)


def called(decorator: ast.expr) -> ast.expr:
    """Return the function of a decorator with or without arguments."""
    return decorator.func if isinstance(decorator, ast.Call) else decorator


def _command(
    function: ast.FunctionDef | ast.AsyncFunctionDef, groups: set[str], names: Names
) -> str:
    """Return the subcommand name of a function in a group; empty outside groups."""
    for one in function.decorator_list:
        match called(one):
            case ast.Attribute(value=group, attr="command" | "group") if dotted(group) in groups:
                given = names.text(one.args[0]) if isinstance(one, ast.Call) and one.args else ""
                return given or function.name.replace("_", "-")
    return ""


def _decorator(call: ast.Call, texts: list[str], names: Names, command: str) -> Option:
    """Return the option of one ``@click.option(…)`` or ``@click.argument(…)``."""
    said = keywords(call)
    flags = [text for text in texts if text.startswith("-")]
    flag, _, no = max(flags or texts, key=len).partition("/")
    name = next((text for text in texts if text.isidentifier()), flag)
    node = said.get("type", ast.Name(""))
    type_ = last_name(called(node))
    arguments = node.args if isinstance(node, ast.Call) else []
    bounds = keywords(node) if isinstance(node, ast.Call) else {}
    if "Range" in type_:
        bounds = dict(zip(("min", "max"), arguments, strict=False)) | dict(bounds)
    default, switch = said.get("default"), (flag, no.strip()) if no else None
    if is_true(said.get("is_flag")):
        default, switch = default or ast.Constant(value=False), switch or (flag, "")
    left = "" if flags else POSITIONAL
    if any(key in said for key in ("multiple", "nargs", "count")):
        left = left or SEVERAL
    return declared(
        names,
        identifier(name).lower(),
        call.lineno,
        flag,
        default,
        _WORDS.get(type_, type_),
        switch=switch,
        choices=names.choices(arguments[0]) if type_ == "Choice" and arguments else (),
        left=left,
        low=names.number(bounds.get("min")),
        high=names.number(bounds.get("max")),
        doc=names.text(said.get("help")),
        required=not flags or is_true(said.get("required")),
        command=command,
    )


_READERS = {"environ.get", "os.environ.get", "getenv", "os.getenv"}


def environment_options(tree: ast.Module, names: Names) -> Iterator[Option]:
    """Yield every variable that the script reads with a default: ``int(os.environ.get("N",
    "5"))``."""
    casts = {
        id(call.args[0]): dotted(call.func)
        for call in calls(tree)
        if len(call.args) == 1 and dotted(call.func) in {"int", "float", "str"}
    }
    for call in calls(tree):
        name = names.text(call.args[0]) if len(call.args) == 2 else ""
        if dotted(call.func) in _READERS and name.isidentifier() and name.isascii():
            default, unread = names.default(call.args[1], casts.get(id(call), ""))
            yield Option(name, call.lineno, default, variable="" if unread else name, left=unread)


def absl_options(tree: ast.Module, names: Names) -> Iterator[Option]:
    """Yield every ``flags.DEFINE_float("lr", 1e-3, "help")`` of a scalar."""
    for call in calls(tree):
        define, _, kind = last_name(call.func).partition("_")
        kind = {"integer": "int", "boolean": "bool"}.get(kind, kind)
        is_scalar = define == "DEFINE" and kind in {"bool", "int", "float", "string", "enum"}
        if is_scalar and len(call.args) > 1 and (name := names.text(call.args[0])):
            yield declared(
                names,
                name,
                call.lineno,
                f"--{name}",
                call.args[1],
                kind,
                switch=(f"--{name}", f"--no{name}") if kind == "bool" else None,
                choices=names.choices(call.args[2]) if kind == "enum" else (),
                doc=names.text(call.args[-1]),
            )
