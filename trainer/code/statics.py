"""Refuse, before anything runs, a function that does something which is not known to be harmless.

This is an allowlist of syntax. A function has no names but its arguments, its own variables and a
few modules' functions; no strings, attributes of objects, imports or state. So it reads no file and
no memory, and leaves nothing behind (only ``update`` has a state, which it is given).

Functions of reach ``row`` work on the last dimension alone: each call along a dimension says -1 and
keeps it, and nothing reads the number of sequences or tokens, drops a dimension or adds one. By
induction over its statements each result of a token depends on that token's numbers only. Reach
``element`` allows no work along a dimension at all. So such functions see neither later tokens, nor
other sequences, nor whether text is being scored. Functions of reach ``tensor`` combine what they
like, and are called only in training.
"""

import ast
from typing import Any

from trainer.code import allowed
from trainer.code.slots import MAX_LOOP, Slot, slot_of
from trainer.code.source import CodeRefused, excerpt, function_of, parameters

_OPERATORS = (
    *(ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv, ast.Mod, ast.Pow),
    *(ast.USub, ast.UAdd, ast.Not, ast.And, ast.Or),
    *(ast.Eq, ast.NotEq, ast.Lt, ast.LtE, ast.Gt, ast.GtE),
)
_MOST_NUMBER = 2**53
_MOST_REAL = 1e38
_MOST_NUMBERS = 40
"""Enough for any formula, too few for a table of how often each token occurs in a text."""


def check_statically(slot_name: str, source: str) -> str | None:
    """Return one sentence why a slot cannot take this source, or None if it can.

    Every text gives an answer; none raises an error, and nothing of it runs.

    :raises SpecError: if there is no such slot.
    """
    slot = slot_of(slot_name)
    if not source.strip():
        return None
    try:
        function = function_of(slot, source)
        learned = parameters(slot, source)
        _Reader(slot, function, [one.name for one in learned]).read()
    except CodeRefused as refused:
        return f"code.{slot.name}: {refused}"
    except RecursionError:
        return f"code.{slot.name}: the source is nested too deeply; write it in several lines"
    return None


class _Reader:
    """Reads one function."""

    def __init__(self, slot: Slot, function: ast.FunctionDef, learned: list[str]) -> None:
        self._slot = slot
        self._function = function
        self._given = {*slot.arguments, *slot.reads, *learned}
        self._own = {
            node.id
            for node in ast.walk(function)
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
        }
        self._whole = slot.reach == "tensor"

    def read(self) -> None:
        """:raises CodeRefused: at the first thing that is not allowed."""
        taken = self._own & {"state", "weight", "torch", "F", "math", "range", *allowed.BUILTINS}
        taken |= self._given & {"torch", "F", "math", "range", *allowed.BUILTINS}
        taken |= {name for name in {*self._own, *self._given} if name.startswith("_")}
        if taken:
            raise CodeRefused(f"{min(taken)} cannot be a variable here; choose another name")
        written = sum(isinstance(node, ast.Constant) for node in ast.walk(self._function))
        if written > _MOST_NUMBERS:
            raise CodeRefused(
                f"it has {written} numbers; write a formula with at most {_MOST_NUMBERS}"
            )
        self._block(self._function.body, 1)
        if not any(isinstance(node, ast.Return) for node in ast.walk(self._function)):
            raise CodeRefused("the function returns nothing; end it with a return")

    # --- statements -----------------------------------------------------------------------------

    def _block(self, body: list[ast.stmt], passes: int) -> None:
        """Read statements that run ``passes`` times."""
        for node in body:
            if isinstance(node, ast.Return):
                if node.value is None:
                    raise CodeRefused("a return has no value; return the result")
                self._expression(node.value)
            elif isinstance(node, ast.Assign):
                self._assign(node)
            elif isinstance(node, ast.If):
                self._expression(node.test)
                self._block(node.body, passes)
                self._block(node.orelse, passes)
            elif isinstance(node, ast.For):
                inside = passes * self._passes(node)
                if inside > MAX_LOOP:
                    raise CodeRefused(
                        f"its loops run {inside} times together; keep them within {MAX_LOOP}"
                    )
                self._block(node.body, inside)
            else:
                raise _refused(node, "is not allowed here", "use =, if, for … in range and return")

    def _passes(self, node: ast.For) -> int:
        """Return how often a loop runs, which is written as whole numbers."""
        call = node.iter
        bounds: list[Any] = []
        if isinstance(call, ast.Call) and ast.unparse(call.func) == "range" and not call.keywords:
            bounds = [one.value for one in call.args if isinstance(one, ast.Constant)]
        plain = isinstance(node.target, ast.Name) and not node.orelse
        plain &= len(bounds) == len(getattr(call, "args", ())) and len(bounds) in (1, 2)
        if not plain or any(type(one) is not int or one > _MOST_NUMBER for one in bounds):
            raise _refused(node, "is not allowed", "loop as in for i in range(5)")
        return max(0, len(range(*bounds)))

    def _assign(self, node: ast.Assign) -> None:
        self._expression(node.value)
        for target in node.targets:
            if isinstance(target, ast.Tuple):
                if not all(isinstance(one, ast.Name) for one in target.elts):
                    raise _refused(node, "is not allowed", "assign to variables")
                # A tensor's first dimension, which holds the sequences, cannot be taken apart.
                value = node.value
                in_parts = isinstance(value, ast.Call) and _name_of(value.func) in allowed.IN_PARTS
                if not (self._whole or in_parts or isinstance(value, ast.Tuple)):
                    raise _refused(value, "takes a tensor apart", "use .chunk(2, -1)")
            elif isinstance(target, ast.Attribute):
                self._attribute(target)
            elif not isinstance(target, ast.Name):
                raise _refused(node, "would change a tensor in place", "make a new one")

    # --- expressions ----------------------------------------------------------------------------

    def _expression(self, node: ast.expr) -> None:
        if isinstance(node, ast.Constant):
            self._constant(node)
        elif isinstance(node, ast.Name):
            if node.id not in self._given | self._own:
                known = ", ".join((*self._slot.arguments, *self._slot.reads))
                raise CodeRefused(
                    f"{node.id} is not known here; use {known}, and functions of torch, F and math"
                )
        elif isinstance(node, ast.Call):
            self._call(node)
        elif isinstance(node, ast.Attribute):
            self._attribute(node)
        elif isinstance(node, ast.Subscript):
            self._subscript(node)
        elif isinstance(node, ast.Tuple | ast.List):
            for one in node.elts:
                self._expression(one)
        elif isinstance(
            node, ast.BinOp | ast.UnaryOp | ast.BoolOp | ast.Compare | ast.IfExp
        ) and self._operators_allowed(node):
            for child in ast.iter_child_nodes(node):
                if isinstance(child, ast.expr):
                    self._expression(child)
        else:
            raise _refused(node, "is not allowed", "write it with operators and functions of torch")

    def _operators_allowed(self, node: ast.expr) -> bool:
        kinds = (ast.operator, ast.unaryop, ast.boolop, ast.cmpop)
        operators = [child for child in ast.iter_child_nodes(node) if isinstance(child, kinds)]
        known = (*_OPERATORS, ast.MatMult) if self._whole else _OPERATORS
        return all(isinstance(one, known) for one in operators)

    def _constant(self, node: ast.Constant) -> None:
        value = node.value
        most = _MOST_NUMBER if isinstance(value, int) else _MOST_REAL
        is_number = isinstance(value, int | float) and -most <= value <= most
        if value is not None and not is_number:
            raise _refused(node, "is not a number, or too large", "use smaller numbers only")

    def _attribute(self, node: ast.Attribute) -> None:
        base, name = node.value, node.attr
        if name.startswith("_"):
            raise _refused(node, "begins with an underscore", "use public functions of tensors")
        if isinstance(base, ast.Name) and base.id in {"torch", "math"}:
            if name in (allowed.CONSTANTS if base.id == "torch" else allowed.MATH):
                return
            raise _refused(node, "is not allowed", "call a function of the list in the docs")
        if isinstance(base, ast.Name) and base.id == "state" and "state" in self._slot.arguments:
            return
        if isinstance(node.ctx, ast.Store):
            raise _refused(node, "cannot be set", "assign to a variable")
        known = allowed.ATTRIBUTES | (allowed.WHOLE_ATTRIBUTES if self._whole else frozenset())
        if name == "shape" and not self._whole and ast.unparse(base) != "weight":
            raise _refused(node, "counts sequences and tokens", "use .shape[-1]")
        if name not in known:
            raise _refused(node, "is not allowed", f"use one of {', '.join(sorted(known))}")
        self._expression(base)

    def _subscript(self, node: ast.Subscript) -> None:
        if self._whole:
            self._expression(node.value)
            self._index(node.slice)
            return
        index = ast.unparse(node.slice)
        base = node.value
        last = ("-1", "-2") if self._slot.reach == "element" else ("-1", "-1:")
        if isinstance(base, ast.Attribute) and base.attr == "shape" and index in last:
            self._expression(base.value)
            return
        self._expression(base)
        called = _name_of(base.func) if isinstance(base, ast.Call) else ""
        if called in allowed.IN_PARTS and index.isdigit():
            return
        if called == "arange" and self._slot.reach == "element":
            if index.strip("()") in {":, None", "None, :"}:  # Python 3.11 adds them
                return
            raise _refused(node, "is not allowed", "index places as [:, None] or [None, :]")
        parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else []
        columns = len(parts) == 2 and ast.unparse(parts[0]) == "..."
        if self._slot.reach == "row" and columns and isinstance(parts[1], ast.Slice):
            self._index(parts[1])
            return
        raise _refused(
            node, "selects sequences or tokens", "only columns may be selected, as in x[..., :4]"
        )

    def _index(self, node: ast.expr) -> None:
        if isinstance(node, ast.Slice):
            for part in (node.lower, node.upper, node.step):
                if part is not None:
                    self._expression(part)
        elif isinstance(node, ast.Tuple):
            for one in node.elts:
                self._index(one)
        elif not (isinstance(node, ast.Constant) and node.value is ...):
            self._expression(node)

    # --- calls ----------------------------------------------------------------------------------

    def _call(self, node: ast.Call) -> None:
        allowed.check_call(self._slot, node)
        base = node.func.value if isinstance(node.func, ast.Attribute) else None
        if base is not None and ast.unparse(base) not in allowed.MODULES:
            self._expression(base)
        for one in node.args:
            self._expression(one)
        for keyword in node.keywords:
            if keyword.arg != "approximate":
                self._expression(keyword.value)


def _name_of(function: ast.expr) -> str:
    return function.attr if isinstance(function, ast.Attribute) else ""


def _refused(node: ast.AST, why: str, fix: str) -> CodeRefused:
    return CodeRefused(f"{excerpt(node)} {why}; {fix}")
