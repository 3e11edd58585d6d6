"""Check one call of a function: that it is on the list, and along which dimension it works."""

import ast

from trainer.code import allowed
from trainer.code.slots import Slot
from trainer.code.source import CodeRefused, excerpt

_FIXES = {
    "number": "use math, min, max and numbers",
    "element": "use elementwise functions of torch, such as torch.tanh",
}
"""Advice in place of a function that is not allowed, by the slot's reach."""


def check_call(slot: Slot, node: ast.Call) -> None:
    """Check the function of a call, and what its arguments say about dimensions.

    :raises CodeRefused: if it is not allowed in this slot.
    """
    for keyword in node.keywords:
        if keyword.arg not in allowed.KEYWORDS:
            raise _refused(
                node, f"the argument {keyword.arg or '**'} is not allowed", "leave it out"
            )
    if any(isinstance(one, ast.Starred) for one in node.args):
        raise _refused(node, "a * argument is not allowed", "write its parts")
    module, name = _parts(node.func)
    if module == "" and name in allowed.BUILTINS:
        # These take a tensor apart, or count its rows.
        takes_apart = name in {"float", "int"} or (name in {"min", "max"} and len(node.args) < 2)
        if takes_apart and slot.reach in {"row", "element"}:
            raise _refused(node, "this turns a tensor into a number", "use torch.clamp or amax(-1)")
        return
    if module == "math" and name in allowed.MATH:
        return
    if slot.reach == "number" or name not in _known(slot, module):
        where = f"{module}." if module else ""
        fix = _FIXES.get(slot.reach, "use a function of torch or F that the docs list")
        raise _refused(node, f"{where}{name} is not allowed here", fix)
    # The only text that is allowed, as in ``F.gelu(x, approximate='tanh')``.
    said = _keyword(node, "approximate")
    if said is not None and (name != "gelu" or said not in {"'tanh'", "'none'"}):
        raise _refused(node, "approximate is for gelu, 'tanh' or 'none'", "leave it out")
    if name in allowed.RANDOM and slot.name != "init":
        raise _refused(node, "this draws random numbers", "compute the result from the arguments")
    if name in allowed.RANDOM and _keyword(node, "generator") != "generator":
        raise _refused(node, "this draws without the generator", "pass generator=generator")
    if slot.reach != "tensor":
        _check_dimensions(node, name, is_method=module == ".")


def _parts(function: ast.expr) -> tuple[str, str]:
    """Return the module and name of a called function; "." for a method, "" for a bare name."""
    if isinstance(function, ast.Name):
        return "", function.id
    if isinstance(function, ast.Attribute):
        base = ast.unparse(function.value)
        return (base if base in allowed.MODULES else "."), function.attr
    return "", ast.unparse(function)


def _known(slot: Slot, module: str) -> frozenset[str]:
    """Return the names that a module has for a slot."""
    along = frozenset(allowed.DIM_AT) if slot.reach != "element" else frozenset[str]()
    if slot.reach == "tensor":
        along |= allowed.WHOLE
    shared = allowed.ELEMENTWISE | along
    if module == "torch":
        return shared | allowed.NEW_TENSORS | allowed.RANDOM
    if module == "F":
        losses = allowed.LOSSES if slot.reach == "tensor" else frozenset[str]()
        over = allowed.OVER_SHAPE if slot.reach != "element" else frozenset[str]()
        return allowed.ACTIVATIONS | along | over | losses
    if module == ".":
        return shared | allowed.ELEMENTWISE_METHODS
    return allowed.LINALG if module == "torch.linalg" and slot.reach == "tensor" else frozenset()


def _check_dimensions(node: ast.Call, name: str, *, is_method: bool) -> None:
    """Require that a call works along the last dimension, and keeps it."""
    if name == "where" and len(node.args) + is_method < 3:
        raise _refused(node, "where needs a condition and two values", "give three arguments")
    if name in allowed.OVER_SHAPE:
        shape = node.args[1] if len(node.args) > 1 else None
        said = "" if shape is None else ast.unparse(shape)
        one = isinstance(shape, ast.Tuple | ast.List) and len(shape.elts) == 1
        if not (one or said == "weight.shape" or said.endswith(".shape[-1:]")):
            raise _refused(node, "it may normalize columns alone", "write (x.shape[-1],)")
    makes_new = name in {"zeros", "ones", "full", "eye"} and not is_method
    if makes_new and (not node.args or isinstance(node.args[0], ast.Tuple | ast.List)):
        raise _refused(node, "a new tensor has one dimension here", "give its length, x.shape[-1]")
    if name not in allowed.DIM_AT:
        return
    at = allowed.DIM_AT[name]
    dim = _keyword(node, "dim") or _keyword(node, "dims")
    if dim is None and at is not None and len(node.args) > at - is_method:
        dim = ast.unparse(node.args[at - is_method])
    if dim not in {"-1", "(-1,)", "[-1]"}:
        raise _refused(
            node, f"{name} may work on columns alone, which is dim -1", f"write {name}(…, dim=-1)"
        )
    keepdim = _keyword(node, "keepdim")
    if keepdim is None and at is not None and name not in {"var", "std"}:
        place = at + 1 - is_method
        keepdim = ast.unparse(node.args[place]) if len(node.args) > place else None
    if name in allowed.REDUCES and keepdim != "True":
        raise _refused(node, f"{name} would drop its dimension", "add keepdim=True")


def _keyword(node: ast.Call, name: str) -> str | None:
    return next((ast.unparse(one.value) for one in node.keywords if one.arg == name), None)


def _refused(node: ast.AST, why: str, fix: str) -> CodeRefused:
    return CodeRefused(f"in {excerpt(node)}: {why}; {fix}")
