"""Turn a script's own assertions into constraints of a menu.

``assert config.n_embd % config.n_head == 0`` holds for every config that trains, whether in the
script or in a module beside it that it imports. A name that the module computes once from others is
replaced by its expression. An assertion about ``tokens_per_step`` thus becomes one about knobs.
Assertions that the menu's language cannot express, or that are false at the defaults, are omitted.
"""

import ast
import copy
from collections.abc import Container, Mapping
from pathlib import Path
from typing import Any

from agent.menu.expressions import Expression, ExpressionError
from agent.menu.formulas import Constraint
from agent.menu.scripts.reading import Script, modules_beside
from agent.menu.scripts.tree import Names
from autoresearch.values import Scalar
from trainer.script.constants import assigned_once

MAX_DEPTH = 8
"""Most names within names that are substituted."""


def constraints_asserted(script: Script, values: Mapping[str, Scalar]) -> list[Constraint]:
    """Return the assertions of the script and the modules beside it over these values: knobs and
    constants at their defaults."""
    found: dict[str, Constraint] = {}
    beside = modules_beside(script.path, script.tree)
    for place, tree in {script.path: script.tree, **beside}.items():
        known = assigned_once(tree)
        if place == script.path:
            known |= _imported_values(script, beside)
        over_knobs = _OverKnobs(known, values)
        for node in ast.walk(tree):
            if not isinstance(node, ast.Assert):
                continue
            try:
                expr = ast.unparse(over_knobs.visit(copy.deepcopy(node.test)))
                read = Expression.parse(expr, values.keys())
                holds = bool(read.names) and read.holds(values)
            except ExpressionError:
                continue
            if holds:
                doc = f"asserted in {place.name}, line {node.lineno}"
                found.setdefault(expr, Constraint(expr=expr, doc=doc))
    return list(found.values())


class _OverKnobs(ast.NodeTransformer):
    """Rewrites ``config.n_embd`` as ``n_embd``, and substitutes expressions for known names.

    :raises ExpressionError: at the first name that is neither known nor a knob, because known names
        before it can make the expression exponentially large.
    """

    def __init__(
        self, known: Mapping[str, ast.expr], knobs: Container[str], depth: int = 0
    ) -> None:
        self._known, self._knobs, self._depth = known, knobs, depth

    def visit_Attribute(self, node: ast.Attribute) -> Any:
        return self.visit_Name(ast.Name(node.attr, ast.Load()))

    def visit_Name(self, node: ast.Name) -> Any:
        if node.id in self._knobs:
            return node
        if node.id not in self._known or self._depth == MAX_DEPTH:
            raise ExpressionError(f"{node.id} is not known")
        inner = copy.deepcopy(self._known[node.id])
        return _OverKnobs(self._known, self._knobs, self._depth + 1).visit(inner)


def _imported_values(script: Script, beside: Mapping[Path, ast.Module]) -> dict[str, ast.expr]:
    """Return the literals that the script imports by name from modules beside it."""
    found: dict[str, ast.expr] = {}
    known = {path.stem: Names(tree) for path, tree in beside.items()}
    for node in ast.walk(script.tree):
        if isinstance(node, ast.ImportFrom) and node.module in known:
            for alias in node.names:
                value = known[node.module].known(ast.Name(alias.name))
                if value is not None and not isinstance(value, tuple):
                    found[alias.asname or alias.name] = ast.Constant(value)
    return found
