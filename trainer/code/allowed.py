"""List what a function may use, and check a call by it. Whatever is not here is refused."""

import ast
from collections.abc import Mapping

from trainer.code.slots import Slot
from trainer.code.source import CodeRefused, excerpt

ELEMENTWISE = frozenset(
    "abs neg sign exp exp2 expm1 log log2 log10 log1p sqrt rsqrt square reciprocal sin cos"
    " tan asin acos atan atan2 sinh cosh tanh asinh sigmoid logit erf erfc erfinv relu floor"
    " ceil round trunc frac clamp clip minimum maximum fmin fmax where pow add sub mul div"
    " lerp hypot logaddexp fmod remainder isfinite isnan nan_to_num logical_and logical_or"
    " logical_not logical_xor eq ne lt le gt ge sinc sgn xlogy heaviside copysign".split()
)
"""Functions of torch, and methods, whose every result depends on one element of each argument."""
ELEMENTWISE_METHODS = frozenset("to float bfloat16 type_as detach".split())
ACTIVATIONS = frozenset(
    "gelu silu mish relu relu6 leaky_relu elu selu celu softplus softsign tanhshrink hardtanh"
    " hardswish hardsigmoid logsigmoid sigmoid tanh softshrink hardshrink threshold".split()
)
"""Elementwise functions of torch.nn.functional."""
FEW_POSITIONAL: Mapping[str, int] = {
    **dict.fromkeys("relu relu6 selu silu mish hardswish hardsigmoid".split(), 1),
    **dict.fromkeys("leaky_relu elu celu".split(), 2),
    **dict.fromkeys("hardtanh threshold".split(), 3),
    "normalize": 4,
}
"""Functions of torch.nn.functional whose next argument by place is inplace or out, which would
change a tensor."""
NEW_TENSORS = frozenset(
    "arange linspace zeros ones full zeros_like ones_like full_like eye tensor".split()
)
RANDOM = frozenset("randn rand normal randint randperm bernoulli".split())
"""Functions of torch that draw numbers; each needs its generator."""

DIM_AT: Mapping[str, int | None] = {
    **dict.fromkeys("sum mean amax amin prod var std logsumexp".split(), 1),
    **dict.fromkeys("softmax log_softmax cumsum cumprod logcumsumexp flip argmax".split(), 1),
    **dict.fromkeys("cat concat glu softmin".split(), 1),
    **dict.fromkeys("chunk split roll".split(), 2),
    **dict.fromkeys("norm normalize".split(), None),
}
"""Functions that work along a dimension, and the place of that argument; None: only by name."""
REDUCES = frozenset("sum mean amax amin prod var std logsumexp norm argmax".split())
"""Those of them that drop the dimension unless keepdim is true."""
OVER_SHAPE = frozenset("rms_norm layer_norm".split())
"""Functions of torch.nn.functional over a normalized shape, their second argument."""
IN_PARTS = frozenset("chunk split".split())
"""Functions that return several tensors."""

WHOLE = frozenset(
    "matmul mm mv bmm outer dot trace diag diagonal tril triu transpose t reshape view flatten"
    " unsqueeze squeeze expand permute numel size dim stack max min median any all topk gather"
    " contiguous repeat count_nonzero kron".split()
)
"""Functions of torch, and methods, that combine any elements."""
LINALG = frozenset("qr svd eigh norm vector_norm matrix_norm inv cholesky solve det".split())
LOSSES = frozenset("cross_entropy log_softmax softmax normalize huber_loss mse_loss".split())

MODULES = frozenset({"torch", "F", "math", "torch.linalg"})
MATH = frozenset(
    "sqrt exp log log2 log10 log1p expm1 sin cos tan tanh atan sinh cosh floor ceil pow erf hypot"
    " pi e inf fabs".split()
)
BUILTINS = frozenset("abs min max float int".split())
ATTRIBUTES = frozenset("shape dtype device ndim".split())
WHOLE_ATTRIBUTES = frozenset("T mT".split())
CONSTANTS = frozenset("float32 float64 bfloat16 pi inf e".split())
"""Attributes of torch that are values."""
KEYWORDS = frozenset(
    "dim dims keepdim min max alpha beta negative_slope eps p other exponent weight approximate"
    " dtype device generator correction lambd threshold value size input end start step steps"
    " normalized_shape min_val max_val fill_value nan posinf neginf shifts chunks std mean high low"
    " descending ord mode reduction label_smoothing target".split()
)
"""Names of arguments in calls. In particular not out or inplace, which would change a tensor."""

# --- one call: its function is on a list, and works along an allowed dimension --------------------

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
        if keyword.arg not in KEYWORDS:
            raise _refused(
                node, f"the argument {keyword.arg or '**'} is not allowed", "leave it out"
            )
    if any(isinstance(one, ast.Starred) for one in node.args):
        raise _refused(node, "a * argument is not allowed", "write its parts")
    module, name = _parts(node.func)
    most = FEW_POSITIONAL.get(name, len(node.args)) if module == "F" else len(node.args)
    if len(node.args) > most:
        raise _refused(node, f"F.{name} would change a tensor in place", "leave the argument out")
    if module == "" and name in BUILTINS:
        # These take a tensor apart, or count its rows.
        takes_apart = name in {"float", "int"} or (name in {"min", "max"} and len(node.args) < 2)
        if takes_apart and slot.reach in {"row", "element"}:
            raise _refused(node, "this turns a tensor into a number", "use torch.clamp or amax(-1)")
        return
    if module == "math" and name in MATH:
        return
    if slot.reach == "number" or name not in _known(slot, module):
        where = f"{module}." if module else ""
        fix = _FIXES.get(slot.reach, "use a function of torch or F that the docs list")
        raise _refused(node, f"{where}{name} is not allowed here", fix)
    # The only text that is allowed, as in ``F.gelu(x, approximate='tanh')``.
    said = _keyword(node, "approximate")
    if said is not None and (name != "gelu" or said not in {"'tanh'", "'none'"}):
        raise _refused(node, "approximate is for gelu, 'tanh' or 'none'", "leave it out")
    if name in RANDOM and slot.name != "init":
        raise _refused(node, "this draws random numbers", "compute the result from the arguments")
    if name in RANDOM and _keyword(node, "generator") != "generator":
        raise _refused(node, "this draws without the generator", "pass generator=generator")
    if slot.reach != "tensor":
        _check_dimensions(node, name, is_method=module == ".")


def _parts(function: ast.expr) -> tuple[str, str]:
    """Return the module and name of a called function; "." for a method, "" for a bare name."""
    if isinstance(function, ast.Name):
        return "", function.id
    if isinstance(function, ast.Attribute):
        base = ast.unparse(function.value)
        return (base if base in MODULES else "."), function.attr
    return "", ast.unparse(function)


def _known(slot: Slot, module: str) -> frozenset[str]:
    """Return the names that a module has for a slot."""
    along = frozenset(DIM_AT) if slot.reach != "element" else frozenset[str]()
    if slot.reach == "tensor":
        along |= WHOLE
    shared = ELEMENTWISE | along
    if module == "torch":
        return shared | NEW_TENSORS | RANDOM
    if module == "F":
        losses = LOSSES if slot.reach == "tensor" else frozenset[str]()
        over = OVER_SHAPE if slot.reach != "element" else frozenset[str]()
        return ACTIVATIONS | along | over | losses
    if module == ".":
        return shared | ELEMENTWISE_METHODS
    return LINALG if module == "torch.linalg" and slot.reach == "tensor" else frozenset()


def _check_dimensions(node: ast.Call, name: str, *, is_method: bool) -> None:
    """Require that a call works along the last dimension, and keeps it."""
    if name == "where" and len(node.args) + is_method < 3:
        raise _refused(node, "where needs a condition and two values", "give three arguments")
    if name in OVER_SHAPE:
        shape = node.args[1] if len(node.args) > 1 else None
        said = "" if shape is None else ast.unparse(shape)
        one = isinstance(shape, ast.Tuple | ast.List) and len(shape.elts) == 1
        if not (one or said == "weight.shape" or said.endswith(".shape[-1:]")):
            raise _refused(node, "it may normalize columns alone", "write (x.shape[-1],)")
    makes_new = name in {"zeros", "ones", "full", "eye"} and not is_method
    if makes_new and (not node.args or isinstance(node.args[0], ast.Tuple | ast.List)):
        raise _refused(node, "a new tensor has one dimension here", "give its length, x.shape[-1]")
    if name not in DIM_AT:
        return
    at = DIM_AT[name]
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
    if name in REDUCES and keepdim != "True":
        raise _refused(node, f"{name} would drop its dimension", "add keepdim=True")


def _keyword(node: ast.Call, name: str) -> str | None:
    return next((ast.unparse(one.value) for one in node.keywords if one.arg == name), None)


def _refused(node: ast.AST, why: str, fix: str) -> CodeRefused:
    return CodeRefused(f"in {excerpt(node)}: {why}; {fix}")
