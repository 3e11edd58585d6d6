"""Turn a script's own assertions into constraints of a menu.

``assert config.n_embd % config.n_head == 0`` holds for every config that trains, whether in the
script or in a module beside it that it imports. A name that the module computes once from others is
replaced by its expression. An assertion about ``tokens_per_step`` thus becomes one about knobs.
Assertions that the menu's language cannot express, or that are false at the defaults, are omitted.
"""

import ast
import copy
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from agent.menu.expressions import Expression, ExpressionError
from agent.menu.formulas import Constraint
from agent.menu.scripts.reading import Script, modules_beside
from agent.menu.scripts.tree import Names
from autoresearch.values import Scalar
from trainer.script.constants import assigned_once

MAX_STEPS = 8
"""Most rounds of substituting names."""


def constraints_asserted(script: Script, values: Mapping[str, Scalar]) -> list[Constraint]:
    """Return the assertions of the script and the modules beside it over these values: knobs and
    constants at their defaults."""
    found: dict[str, Constraint] = {}
    beside = modules_beside(script.path, script.tree)
    outside = _imported_values(script, beside)
    for place, tree in {script.path: script.tree, **beside}.items():
        computed = {n: node for n, node in assigned_once(tree).items() if n not in values}
        reading = _Reading(computed, values, outside if place == script.path else {})
        for node in ast.walk(tree):
            if isinstance(node, ast.Assert) and (expr := reading.constraint(node.test)):
                doc = f"asserted in {place.name}, line {node.lineno}"
                found.setdefault(expr, Constraint(expr=expr, doc=doc))
    return list(found.values())


@dataclass(frozen=True, slots=True)
class _Reading:
    """Meaning of the names in one module's assertions."""

    computed: Mapping[str, ast.expr]
    values: Mapping[str, Scalar]
    outside: Mapping[str, Scalar]

    def constraint(self, test: ast.expr) -> str | None:
        """Return the assertion in the menu's language, if it can be expressed and holds."""
        read = self._over_knobs(test)
        if read is None:
            return None
        expr = ast.unparse(read)
        try:
            expression = Expression.parse(expr, self.values.keys())
            return expr if expression.names and expression.holds(self.values) else None
        except ExpressionError:
            return None

    def _over_knobs(self, test: ast.expr) -> ast.expr | None:
        read: ast.expr = _Replaced({}).visit(copy.deepcopy(test))
        for _ in range(MAX_STEPS):
            names = {node.id for node in ast.walk(read) if isinstance(node, ast.Name)}
            unknown = names - self.values.keys()
            if not unknown:
                return read
            known = {name: self.computed[name] for name in unknown if name in self.computed}
            known |= {
                name: ast.Constant(self.outside[name]) for name in unknown if name in self.outside
            }
            if len(known) < len(unknown):
                return None
            read = _Replaced({}).visit(_Replaced(known).visit(read))
        return None


class _Replaced(ast.NodeTransformer):
    """Rewrites ``config.n_embd`` as ``n_embd``, and substitutes expressions for names."""

    def __init__(self, known: Mapping[str, ast.expr]) -> None:
        self._known = known

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        return ast.Name(node.attr, ast.Load())

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return copy.deepcopy(self._known.get(node.id, node))


def _imported_values(script: Script, beside: Mapping[Path, ast.Module]) -> dict[str, Scalar]:
    """Return the literals that the script imports by name from modules beside it."""
    found: dict[str, Scalar] = {}
    known = {path.stem: Names(tree) for path, tree in beside.items()}
    for node in ast.walk(script.tree):
        if isinstance(node, ast.ImportFrom) and node.module in known:
            for alias in node.names:
                value = known[node.module].known(ast.Name(alias.name))
                if value is not None and not isinstance(value, tuple):
                    found[alias.asname or alias.name] = value
    return found
