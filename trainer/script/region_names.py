"""Refuse code for a region that reaches further than its menu allows, without running it.

The code may use the names that its menu lists, names that it has bound itself on every way to the
use, and attributes and functions from the same list. So it cannot import, read a private attribute,
or reach another part of the script by its name.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable

from autoresearch.errors import SpecError

_PLAIN = (ast.Expr, ast.Return, ast.Pass, ast.Break, ast.Continue, ast.Assert)
_LOCAL = (ast.ListComp, ast.SetComp, ast.GeneratorExp, ast.DictComp)
_REFUSED = (ast.NamedExpr, ast.Await, ast.Yield, ast.YieldFrom)


def check_names(tree: ast.Module, known: Collection[str]) -> set[str]:
    """Return the names that the code has bound at its end.

    :param known: names that it may use.
    :raises SpecError: one sentence about the first thing that is not allowed.
    """
    return _Reader(known).block(tree.body, set())


class _Reader:
    def __init__(self, known: Collection[str]) -> None:
        self._known = known

    def block(self, body: Iterable[ast.stmt], own: set[str]) -> set[str]:
        """Read statements in order, and return the names bound after them on every way."""
        for node in body:
            own = own | self._statement(node, own)
        return own

    def _statement(self, node: ast.stmt, own: set[str]) -> set[str]:
        match node:
            case ast.Assign(targets=targets, value=value):
                self._expression(value, own)
                return set().union(*(self._target(one, own) for one in targets))
            case ast.AnnAssign(target=target, value=ast.expr() as value):
                self._expression(value, own)
                return self._target(target, own)
            case ast.AugAssign(target=target, value=value):
                self._expression(value, own)
                if isinstance(target, ast.Name):
                    self._name(target.id, own)
                return self._target(target, own)
            case ast.If(test=test, body=body, orelse=orelse):
                self._expression(test, own)
                return self.block(body, own) & self.block(orelse, own)
            case ast.While(test=test, body=body, orelse=[]):
                self._expression(test, own)
                self.block(body, own)
            case ast.For(target=target, iter=iterated, body=body, orelse=[]):
                self._expression(iterated, own)
                self.block(body, own | self._target(target, own))
            case ast.FunctionDef(name=name, args=arguments, body=body, decorator_list=[]):
                self._function(arguments, own)
                given = {one.arg for one in ast.walk(arguments) if isinstance(one, ast.arg)}
                self.block(body, own | given | {name})
                return self._target(ast.Name(name, ast.Store()), own)
            case _ if isinstance(node, _PLAIN):
                for child in ast.iter_child_nodes(node):
                    self._expression(child, own)
            case _:
                said = ast.unparse(node).splitlines()[0]
                raise SpecError(f"{said} is not allowed in a slot; write plain statements")
        return set()

    def _function(self, arguments: ast.arguments, own: set[str]) -> None:
        for default in (*arguments.defaults, *filter(None, arguments.kw_defaults)):
            self._expression(default, own)

    def _target(self, node: ast.expr, own: set[str]) -> set[str]:
        """Check what an assignment writes to, and return the names that it binds."""
        if isinstance(node, ast.Tuple | ast.List):
            return set().union(*(self._target(one, own) for one in node.elts))
        if isinstance(node, ast.Name):
            if node.id.startswith("_"):
                raise SpecError(f"{node.id} begins with an underscore; choose another name")
            return {node.id}
        self._expression(node, own)
        return set()

    def _expression(self, node: ast.AST, own: set[str]) -> None:
        if isinstance(node, _REFUSED):
            raise SpecError(f"{ast.unparse(node)} is not allowed in a slot; write it without")
        if isinstance(node, ast.Name):
            self._name(node.id, own)
        elif isinstance(node, ast.Attribute):
            self._name(node.attr, set())
        elif isinstance(node, ast.Lambda):
            self._function(node.args, own)
            own = own | {one.arg for one in ast.walk(node.args) if isinstance(one, ast.arg)}
        elif isinstance(node, _LOCAL):
            for generator in node.generators:
                self._expression(generator.iter, own)
                own = own | self._target(generator.target, own)
        for child in ast.iter_child_nodes(node):
            if not isinstance(child, ast.arguments):
                self._expression(child, own)

    def _name(self, name: str, own: set[str]) -> None:
        if name.startswith("_"):
            raise SpecError(f"{name} begins with an underscore; use public names")
        if name not in self._known and name not in own:
            raise SpecError(
                f"{name} is not among the names of this slot; use others, or define it first"
            )
