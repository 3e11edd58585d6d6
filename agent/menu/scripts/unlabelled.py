"""Find a score that a script prints without words, such as ``print(epoch, loss.item())``.

The printed code names it. It counts only if no other line of the script could be taken for it: no
other call prints values alone, and one of the values is named like a figure.
"""

import ast
from collections.abc import Iterable

from agent.menu.scripts.option import words_of
from agent.menu.scripts.printed import NUMBER, Printed, figure_named, is_held_out
from agent.menu.scripts.tree import Hole, Template, last_name, templates

_VALUE = r"[-+0-9.eE]+"
_OF_ITS_VALUE = {"item", "detach", "cpu", "numpy", "tolist", "mean"}
_KEEPS_ITS_VALUE = {"float", "str", "round"}


def score_alone(tree: ast.Module, beside: Iterable[ast.Module] = ()) -> Printed | None:
    """Return the pattern of the script's only line that has values and no words; None if there are
    more such lines, also in modules beside it, or if which value is meant is uncertain."""
    alone, others = _without_words(tree), [one for each in beside for one in _without_words(each)]
    if len(alone) != 1 or others:
        return None
    line, template = alone[0]
    holes = [part for part in template if isinstance(part, Hole)]
    shown = "".join("%" if isinstance(part, Hole) else part for part in template)
    figures = [(n, name) for n, hole in enumerate(holes) if (name := _figure(hole.expression))]
    if len(figures) != 1 or shown.split() != ["%"] * len(holes):
        return None
    place, name = figures[0]
    values = r"\s+".join(NUMBER if n == place else _VALUE for n in range(len(holes)))
    return Printed(
        rf"^\s*{values}\s*$",
        line,
        words_of(name),
        bool(figure_named(name)),
        is_training=not is_held_out(holes[place].expression),
        decimals=holes[place].decimals,
    )


def _without_words(tree: ast.Module) -> list[tuple[int, Template]]:
    return [
        (line, template)
        for line, is_printed, template in templates(tree)
        if is_printed and not any(isinstance(part, str) and part.strip() for part in template)
    ]


def _figure(expression: str) -> str:
    """Return a figure's name from the code of its value; empty for other values."""
    try:
        node = ast.parse(expression, mode="eval").body
    except SyntaxError:
        return ""
    while (inner := _inside(node)) is not None:
        node = inner
    called = node.func if isinstance(node, ast.Call) else node
    name = last_name(called) if isinstance(called, ast.Name | ast.Attribute) else ""
    return name if figure_named(name) is not None else ""


def _inside(node: ast.expr) -> ast.expr | None:
    """Return ``loss`` for ``loss.item()``, ``loss.data[0]`` and ``float(loss)``."""
    match node:
        case ast.Call(func=ast.Attribute(value=inner, attr=name), args=[]) if name in _OF_ITS_VALUE:
            return inner
        case ast.Call(func=ast.Name(id=name), args=[inner, *_]) if name in _KEEPS_ITS_VALUE:
            return inner
        case (
            ast.Attribute(value=inner, attr="data")
            | ast.Subscript(value=inner, slice=ast.Constant(value=0))
        ):
            return inner
    return None
