"""Options of a script that reads them from the environment."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from agent.menu.scripts.option import Option, typed
from agent.menu.scripts.tree import Names, calls, dotted
from trainer.script.literals import NotLiteralError

_READERS = {"environ.get", "os.environ.get", "getenv", "os.getenv"}


def environment_options(tree: ast.Module, names: Names) -> Iterator[Option]:
    """Every variable that the script asks for with a default: ``int(os.environ.get("N", "5"))``."""
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
