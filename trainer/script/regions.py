"""Find the marked regions of a training script, and replace the code in them.

    # autoresearch: slot activation
    x = torch.relu(x)
    # autoresearch: end

A mark stands on a line of its own, as deep as the code between the marks, which is one or more
whole statements. The code of a region is compared and stored without comments and in Python's own
spelling, so that equal code is equal text.

Code for a region that reaches further than its menu allows is refused without running it
(:func:`check_names`). The code may use the names that its menu lists, names that it has bound
itself on every way to the use, and attributes and functions from the same list. So it cannot
import, read a private attribute, or reach another part of the script by its name.
"""

import ast
import io
import re
import textwrap
import tokenize
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from autoresearch.errors import SpecError
from autoresearch.words import did_you_mean, json_text

_MARK = re.compile(r"#\s*autoresearch:\s*(slot\s+(?P<name>[A-Za-z]\w*)|end)\s*")


@dataclass(frozen=True, slots=True)
class Region:
    """One marked region, and its code at the left margin."""

    name: str
    begin: int
    """Line of the opening mark, from 1."""
    end: int
    """Line of the closing mark."""
    indent: str
    code: str


def regions(source: str) -> dict[str, Region]:
    """Return a script's regions by name, in the order of the text.

    :raises SpecError: if marks do not pair up, or if a region is not whole statements.
    """
    lines = io.StringIO(source, newline="").readlines()
    found: dict[str, Region] = {}
    opened: tuple[str, int] | None = None
    for line, name in _marks(lines):
        if name and opened:
            raise SpecError(f"line {line} opens slot {name} inside slot {opened[0]}; end that one")
        if name:
            if name in found:
                raise SpecError(f"line {line} opens slot {name} a second time; rename one of them")
            opened = name, line
        elif opened is None:
            raise SpecError(f"line {line} ends a slot, and none is open; remove it or open a slot")
        else:
            slot, begin = opened
            mark = lines[begin - 1]
            try:
                code = normalized("".join(lines[begin : line - 1]))
            except SpecError as error:
                raise SpecError(f"slot {slot} on line {begin}: {error}") from error
            indent = mark[: len(mark) - len(mark.lstrip())]
            found[slot] = Region(slot, begin, line, indent, code)
            opened = None
    if opened:
        raise SpecError(
            f"slot {opened[0]} on line {opened[1]} has no end; add a line # autoresearch: end"
        )
    return found


def replaced(source: str, codes: Mapping[str, str]) -> str:
    """Return the script with the code of these regions replaced, and every other line unchanged.

    :raises SpecError: if there is no such region, or if the code is not whole statements.
    """
    if not codes:
        return source
    known = regions(source)
    for name in codes:
        if name not in known:
            raise SpecError(f"the script has no slot {json_text(name)}{did_you_mean(name, known)}")
    lines = io.StringIO(source, newline="").readlines()
    for region in sorted((known[name] for name in codes), key=lambda one: one.end, reverse=True):
        mark = lines[region.begin - 1]
        written = textwrap.indent(normalized(codes[region.name]), region.indent).split("\n")
        lines[region.begin : region.end - 1] = [
            line + mark[len(mark.rstrip()) :] for line in written
        ]
    text = "".join(lines)
    if {one.name: one.code for one in regions(text).values()} != {
        one.name: normalized(codes.get(one.name, one.code)) for one in known.values()
    }:
        raise SpecError("the script's slots could not be rewritten; write their code without marks")
    return text


def normalized(code: str) -> str:
    """Return statements in Python's own spelling, without comments.

    :raises SpecError: if they are not whole statements.
    """
    try:
        text = ast.unparse(ast.parse(textwrap.dedent(code)))
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        said = error.msg if isinstance(error, SyntaxError) else error
        raise SpecError(f"the code is not whole statements of Python: {said}") from error
    if not text:
        raise SpecError("the code is empty; write at least one statement")
    return text


def _marks(lines: list[str]) -> list[tuple[int, str]]:
    """Return the line and the name of each mark; an empty name ends a region."""
    marks = []
    try:
        for token in tokenize.generate_tokens(iter([*lines, ""]).__next__):
            mark = _MARK.fullmatch(token.string) if token.type == tokenize.COMMENT else None
            if mark and not lines[token.start[0] - 1][: token.start[1]].strip():
                marks.append((token.start[0], mark["name"] or ""))
    except (tokenize.TokenError, SyntaxError) as error:
        raise SpecError(f"the script is not valid Python: {error}; fix it") from error
    return marks


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
