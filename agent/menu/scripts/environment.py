"""Find options that a script reads from the environment or by flags of absl."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import replace

from agent.menu.scripts.option import Option, passed, switched, typed
from agent.menu.scripts.tree import Names, calls, dotted, last_name
from trainer.script.literals import NotLiteralError

_READERS = {"environ.get", "os.environ.get", "getenv", "os.getenv"}
_KINDS = {"int", "float", "string", "enum"}


def environment_options(tree: ast.Module, names: Names) -> Iterator[Option]:
    """Yield every variable that the script reads with a default: ``int(os.environ.get("N",
    "5"))``."""
    casts = {
        id(call.args[0]): dotted(call.func)
        for call in calls(tree)
        if len(call.args) == 1 and dotted(call.func) in {"int", "float", "str"}
    }
    for call in calls(tree):
        if dotted(call.func) not in _READERS or len(call.args) != 2:
            continue
        name = names.text(call.args[0])
        if not name.isidentifier() or not name.isascii():
            continue
        try:
            default = typed(names.scalar(call.args[1]), casts.get(id(call), ""))
        except NotLiteralError as error:
            yield Option(name, call.lineno, left=f"its default cannot be read: {error}")
            continue
        yield Option(name, call.lineno, default=default, variable=name)


def absl_options(tree: ast.Module, names: Names) -> Iterator[Option]:
    """Yield every ``flags.DEFINE_float("lr", 1e-3, "help")``."""
    for call in calls(tree):
        define, _, kind = last_name(call.func).partition("_")
        if define != "DEFINE" or len(call.args) < 2 or not names.text(call.args[0]):
            continue
        name, kind = names.text(call.args[0]), {"integer": "int"}.get(kind, kind)
        is_truth = kind in {"bool", "boolean"}
        option = Option(
            name,
            call.lineno,
            argument=switched(name, f"--{name}", f"--no{name}")
            if is_truth
            else passed(f"--{name}", name),
            choices=names.choices(call.args[2]) if kind == "enum" and len(call.args) > 2 else (),
            doc=names.text(call.args[-1]),
            left="" if is_truth or kind in _KINDS else f"it is a flag of kind {kind}",
        )
        try:
            yield replace(option, default=typed(names.scalar(call.args[1]), kind))
        except NotLiteralError as error:
            yield replace(option, left=f"its default cannot be read: {error}")
