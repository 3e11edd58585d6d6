"""List what a function may use. Whatever is not here is refused."""

from collections.abc import Mapping

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
