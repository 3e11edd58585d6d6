"""Read the source of one function, and write it in one form, so that equal code is equal text."""

import ast
import math
import textwrap
import warnings

from trainer.code.slots import MAX_CHARACTERS, MAX_LINES, MAX_PARAMETERS, Parameter, Slot


class CodeRefused(ValueError):
    """A source that a slot cannot take; the message is one sentence that says how to repair it."""


def excerpt(node: ast.AST) -> str:
    """Return the code of a node in one short line."""
    seen = " ".join(ast.unparse(node).split())
    return seen if len(seen) < 60 else f"{seen[:57]}…"


def normalize(slot: Slot, source: str) -> str:
    """Return the source of a slot's function in its one form: "" for what is built in.

    The function may be given whole or as its body alone. Comments, docstrings, annotations and the
    function's name do not count, and ``a += b`` becomes ``a = a + b``, which changes no tensor in
    place. The result is valid for no more than that: :func:`~trainer.code.statics.check_statically`
    reads what it does.

    :raises CodeRefused: if it is no such function.
    """
    return ast.unparse(function_of(slot, source)) if source.strip() else ""


def function_of(slot: Slot, source: str) -> ast.FunctionDef:
    """Return the function's normalized syntax tree; see :func:`normalize`."""
    if len(source) > MAX_CHARACTERS:
        raise CodeRefused(
            f"the source has {len(source):,} characters, more than {MAX_CHARACTERS:,}; shorten it"
        )
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # such as "1 is 1", which a person would get to see
            module = ast.parse(textwrap.dedent(source))
            function = _function(slot, module)
            text = ast.unparse(_Plain().visit(function))
            (plain,) = ast.parse(text).body
    except CodeRefused:
        raise
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise CodeRefused(f"the source is not Python ({error}); correct it") from error
    if len(text.splitlines()) > MAX_LINES:
        raise CodeRefused(f"the function has over {MAX_LINES} lines; shorten it")
    assert isinstance(plain, ast.FunctionDef)
    return plain


def parameters(slot: Slot, source: str) -> tuple[Parameter, ...]:
    """Return the learned parameters that a function declares as keyword-only arguments:
    ``*, gain: D = 1.0`` for one number per column, ``*, slope=0.1`` for a single one.

    :raises CodeRefused: if a declaration cannot be read.
    """
    arguments = function_of(slot, source).args if source else None
    if arguments is None or not arguments.kwonlyargs:
        return ()
    if not slot.learns or len(arguments.kwonlyargs) > MAX_PARAMETERS:
        most = MAX_PARAMETERS if slot.learns else 0
        raise CodeRefused(f"{slot.name} may declare {most} learned parameters; remove the others")
    found = []
    for one, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
        try:
            initial = float(ast.literal_eval(default)) if default is not None else math.nan
        except (ValueError, TypeError, OverflowError, RecursionError, SyntaxError):
            initial = math.nan
        if not math.isfinite(initial):
            raise CodeRefused(
                f"the learned parameter {one.arg} has no first value; write it as {one.arg}=1.0"
            )
        columns = one.annotation is not None and ast.unparse(one.annotation) == "D"
        if columns and slot.reach != "row":
            raise CodeRefused(f"{one.arg} cannot have a value per column here; remove its : D")
        found.append(Parameter(one.arg, initial, columns))
    return tuple(found)


def _function(slot: Slot, module: ast.Module) -> ast.FunctionDef:
    """Return the module's function under the slot's name, or one with its statements as body."""
    wanted = ", ".join(slot.arguments)
    asks = f"write one function, {slot.signature}"
    first = module.body[0] if module.body else None
    if not isinstance(first, ast.FunctionDef):
        (function,) = ast.parse(f"def {slot.name}({wanted}): pass").body
        assert isinstance(function, ast.FunctionDef)
        function.body = module.body
        return function
    arguments = first.args
    given = ", ".join(one.arg for one in arguments.args)
    odd = arguments.posonlyargs or arguments.vararg or arguments.kwarg or arguments.defaults
    if len(module.body) > 1 or first.decorator_list:
        raise CodeRefused(f"the source holds more than one function without decorators; {asks}")
    if given != wanted or odd:
        raise CodeRefused(f"the function's arguments are not ({wanted}); {asks}")
    first.name, first.returns, first.type_comment = slot.name, None, None
    for one in arguments.args:
        one.annotation = None
    return first


class _Plain(ast.NodeTransformer):
    """Removes what has no effect, and in-place operators."""

    def visit_Expr(self, node: ast.Expr) -> ast.AST | None:
        is_text = isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        return None if is_text else node

    def visit_AugAssign(self, node: ast.AugAssign) -> ast.AST:
        if not isinstance(node.target, ast.Name | ast.Attribute):
            return node
        text = f"{ast.unparse(node.target)} = {ast.unparse(node.target)}"
        (assign,) = ast.parse(text).body
        assert isinstance(assign, ast.Assign)
        assign.value = ast.BinOp(assign.value, node.op, node.value)
        return assign

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        self.generic_visit(node)
        node.body = node.body or [ast.Pass()]
        return node
