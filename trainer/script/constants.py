"""Find the constants of a training script without running it.

A constant is

- a module-level name that one statement assigns, outside any block except that of ``if __name__ ==
"__main__":``, and that nothing in the script assigns again: no loop, no branch, no ``global`` in a
function. A name that is assigned again is state (``step = 0``), and setting its start would not
mean what it says;

- a field of a dataclass, or of a class that only lists values (``class Config: lr = 1e-3``), unless
a caller passes that field: then its default is unused;

- an entry of a module-level dictionary of settings (``params = {"eta": 0.3}``), unless the script
changes the dictionary.

Its value is a literal, or arithmetic over literals. Each number of a sequence such as ``ADAM_BETAS
= (0.8, 0.95)`` is a constant of its own: ``ADAM_BETAS_0``, ``ADAM_BETAS_1``. A name of a
field or an entry that occurs twice is qualified by its class or dictionary: ``OptimizerConfig_lr``.
"""

import ast
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace

from autoresearch.values import Scalar
from trainer.script.literals import NotLiteralError, literal


@dataclass(frozen=True, slots=True)
class Constant:
    """One value in a script's text, and its location."""

    name: str
    """Name in a menu."""
    value: Scalar
    node: ast.expr
    """Expression of the value; it holds the location in the text."""
    owner: str | None = None
    """Class whose field it is, or dictionary whose entry."""

    @property
    def line(self) -> int:
        """Line number, from 1."""
        return self.node.lineno


def constants(tree: ast.Module) -> dict[str, Constant]:
    """Return a script's constants by their names in a menu, in the order of the text."""
    stored = Counter(name for name, _ in _stores(tree))
    found: list[Constant] = []
    for name, value in first_values(tree).items():
        if stored[name] == 1 and not name.startswith("_"):
            found += constants_in(name, value)
            if isinstance(value, ast.Dict) and SETTINGS.search(name):
                found += _entries(name, value, tree)
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            found += _of_class(node, tree)
    found.sort(key=lambda one: (one.node.lineno, one.node.col_offset))
    times = Counter(one.name for one in found)
    named: dict[str, Constant] = {}
    for one in found:
        name = one.name if times[one.name] == 1 or not one.owner else f"{one.owner}_{one.name}"
        named.setdefault(name, replace(one, name=name))
    return named


def first_values(tree: ast.Module) -> dict[str, ast.expr]:
    """Return the first value that each name of the module is assigned outside any block."""
    found: dict[str, ast.expr] = {}
    for name, value in (pair for one in top_statements(tree) for pair in assignments(one)):
        found.setdefault(name, value)
    return found


def assigned_lines(tree: ast.Module, name: str) -> list[int]:
    """Return the lines on which the module's name is assigned or bound, in order."""
    return sorted(line for stored, line in _stores(tree) if stored == name)


def assigned_once(tree: ast.Module) -> dict[str, ast.expr]:
    """Return the expression of each module-level name that is assigned exactly once, literal or
    computed."""
    times = Counter(name for name, _ in _stores(tree))
    pairs = (pair for statement in tree.body for pair in assignments(statement))
    return {name: value for name, value in pairs if times[name] == 1}


def left_out(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Yield the settings of a script that are no constants, each with the reason."""
    lines: dict[str, list[int]] = {}
    for name, line in _stores(tree):
        lines.setdefault(name, []).append(line)
    for node in ast.walk(tree):
        for name, value in assignments(node) if isinstance(node, ast.stmt) else ():
            is_literal = any(True for _ in constants_in(name, value))
            if is_literal and name.isupper() and len(lines.get(name, ())) > 1:
                said = ", ".join(map(str, lines[name]))
                yield name, f"the script assigns it several times, on the lines {said}"
    for node in tree.body:
        for statement in node.body if isinstance(node, ast.ClassDef) and is_dataclass(node) else ():
            for name, value in assignments(statement):
                if field_default(value) is None and not any(
                    True for _ in constants_in(name, value)
                ):
                    yield name, "its default is computed, or a list"


# --- the module's own ---------------------------------------------------------------------------


SETTINGS = re.compile(
    r"(?i)(param|arg|opt|option|setting|default)s?(_|\d|$)|conf|cfg|params?$", re.ASCII
)
"""Names of dictionaries whose entries set how a script trains; others map labels, colors, …"""


def _entries(name: str, node: ast.Dict, tree: ast.Module) -> Iterator[Constant]:
    changed = {
        ast.unparse(one.value)
        for one in ast.walk(tree)
        if (isinstance(one, ast.Subscript) and not isinstance(one.ctx, ast.Load))
        or (isinstance(one, ast.Attribute) and one.attr in {"update", "setdefault", "pop"})
    }
    for key, value in zip(node.keys, node.values, strict=True):
        match key:
            case ast.Constant(value=str() as word) if word.isidentifier() and name not in changed:
                yield from constants_in(word, value, owner=name)


def top_statements(tree: ast.Module) -> Iterator[ast.stmt]:
    """Yield the statements of a module outside any block, and those of its ``__main__`` block."""
    for statement in tree.body:
        match statement:
            case ast.If(
                test=ast.Compare(left=ast.Name(id="__name__"), ops=[ast.Eq()]), body=body, orelse=[]
            ):
                yield from body
            case _:
                yield statement


def assignments(statement: ast.stmt) -> Iterator[tuple[str, ast.expr]]:
    """Yield each name to which one statement gives its own value, with the value."""
    match statement:
        case ast.Assign(targets=[ast.Name(id=name)], value=value):
            yield name, value
        case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
            yield name, value
        case ast.Assign(targets=[ast.Tuple(elts=targets)], value=ast.Tuple(elts=values)):
            if len(targets) == len(values) and not any(
                isinstance(one, ast.Starred) for one in [*targets, *values]
            ):
                pairs = zip(targets, values, strict=True)
                yield from ((to.id, value) for to, value in pairs if isinstance(to, ast.Name))


def constants_in(name: str, node: ast.expr, owner: str | None = None) -> Iterator[Constant]:
    """Yield the constant that an expression is, or those of a sequence of numbers.

    :param name: the name that it is assigned to.

    An expression over other names is none: replacing it by a number would cut its connection to
    them.
    """
    try:
        value = literal(node)
    except NotLiteralError:
        return
    if isinstance(value, bool | int | float | str):
        yield Constant(name, value, node, owner)
    elif isinstance(node, ast.Tuple | ast.List) and isinstance(value, tuple):
        numbers = [n for n in value if isinstance(n, int | float) and not isinstance(n, bool)]
        if len(numbers) == len(value):
            for place, (one, item) in enumerate(zip(numbers, node.elts, strict=True)):
                yield Constant(f"{name}_{place}", one, item, owner)


class _Stores(ast.NodeVisitor):
    """Collects every binding of a module-level name, in blocks and by ``global``."""

    def __init__(self) -> None:
        self.found: list[tuple[str, int]] = []
        self._function: list[set[str]] = []

    def visit_Name(self, node: ast.Name) -> None:
        if not isinstance(node.ctx, ast.Load):
            self._bound(node.id, node.lineno)

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        self._bound(node.name, node.lineno)
        inside = (one for one in ast.walk(node) if isinstance(one, ast.Global))
        self._inside(node.body, {name for one in inside for name in one.names})

    visit_AsyncFunctionDef = visit_FunctionDef  # noqa: N815

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self._bound(node.name, node.lineno)
        self._inside(node.body, set())

    def visit_Lambda(self, node: ast.Lambda) -> None:
        return

    def visit_ListComp(self, node: ast.AST) -> None:
        """Visit only ``:=``: other targets of a comprehension are local to it."""
        for one in ast.walk(node):
            if isinstance(one, ast.NamedExpr):
                self.visit(one.target)

    visit_SetComp = visit_DictComp = visit_GeneratorExp = visit_ListComp  # noqa: N815

    def visit_Import(self, node: ast.Import | ast.ImportFrom) -> None:
        for alias in node.names:
            self._bound((alias.asname or alias.name).split(".")[0], node.lineno)

    visit_ImportFrom = visit_Import  # noqa: N815

    def visit_ExceptHandler(self, node: ast.ExceptHandler | ast.MatchAs) -> None:
        if node.name:
            self._bound(node.name, node.lineno)
        self.generic_visit(node)

    visit_MatchAs = visit_ExceptHandler  # noqa: N815

    def _inside(self, body: list[ast.stmt], names: set[str]) -> None:
        """Visit the body of a function or class, whose bindings are its own except ``names``."""
        self._function.append(names)
        for statement in body:
            self.visit(statement)
        self._function.pop()

    def _bound(self, name: str, line: int) -> None:
        if not self._function or name in self._function[-1]:
            self.found.append((name, line))


def _stores(tree: ast.Module) -> list[tuple[str, int]]:
    visitor = _Stores()
    visitor.visit(tree)
    return visitor.found


# --- fields of classes --------------------------------------------------------------------------


def _of_class(node: ast.ClassDef, tree: ast.Module) -> Iterator[Constant]:
    values_only = (ast.Assign, ast.AnnAssign, ast.Expr, ast.Pass)
    lists = not node.bases and all(isinstance(one, values_only) for one in node.body)
    if not (lists or is_dataclass(node)):
        return
    passed = {
        keyword.arg
        for call in ast.walk(tree)
        if isinstance(call, ast.Call)
        and isinstance(call.func, ast.Name)
        and call.func.id == node.name
        for keyword in call.keywords
    }
    for statement in node.body:
        for name, value in assignments(statement):
            if name not in passed and not name.startswith("_"):
                yield from constants_in(name, field_default(value) or value, owner=node.name)


def is_dataclass(node: ast.ClassDef) -> bool:
    """Return whether a class is decorated as a dataclass, by whatever path."""
    paths = (ast.unparse(decorator).partition("(")[0] for decorator in node.decorator_list)
    return any(path.rpartition(".")[2] == "dataclass" for path in paths)


def field_default(value: ast.expr) -> ast.expr | None:
    """Return the default in ``field(default=…)``; None for anything else."""
    match value:
        case ast.Call(func=ast.Name(id="field") | ast.Attribute(attr="field"), keywords=keywords):
            return next((one.value for one in keywords if one.arg == "default"), None)
    return None
