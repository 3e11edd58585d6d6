"""Find options that a script reads from the environment or by flags of absl."""

import ast
from collections.abc import Iterator

from agent.menu.scripts.option import Option, passed, switched
from agent.menu.scripts.tree import Names, calls, dotted, last_name

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
        default, unread = names.default(call.args[1], casts.get(id(call), ""))
        yield Option(name, call.lineno, default, variable="" if unread else name, left=unread)


def absl_options(tree: ast.Module, names: Names) -> Iterator[Option]:
    """Yield every ``flags.DEFINE_float("lr", 1e-3, "help")``."""
    for call in calls(tree):
        define, _, kind = last_name(call.func).partition("_")
        if define != "DEFINE" or len(call.args) < 2 or not names.text(call.args[0]):
            continue
        name, kind = names.text(call.args[0]), {"integer": "int"}.get(kind, kind)
        is_truth = kind in {"bool", "boolean"}
        default, unread = names.default(call.args[1], kind)
        known = is_truth or kind in _KINDS
        yield Option(
            name,
            call.lineno,
            default,
            argument=switched(name, f"--{name}", f"--no{name}")
            if is_truth
            else passed(f"--{name}", name),
            choices=names.choices(call.args[2]) if kind == "enum" and len(call.args) > 2 else (),
            doc=names.text(call.args[-1]),
            left=unread or ("" if known else f"it is a flag of kind {kind}"),
        )
