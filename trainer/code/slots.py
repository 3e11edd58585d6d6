"""Define the slots: what each function is given, what it must return, and what is built in."""

import ast
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal, TypeAlias

from autoresearch.errors import SpecError
from autoresearch.words import CODE, did_you_mean

MAX_LINES = 40
MAX_CHARACTERS = 2_000
MAX_LOOP = 64
"""Most passes of a function's loops, nested ones multiplied."""
MAX_PARAMETERS = 8

Reach: TypeAlias = Literal["row", "element", "number", "tensor"]
"""The numbers that a result may depend on. ``row``: those of the same token, so that no position
and no sequence sees another. ``element``: the same score. ``number``: the function sees no tensor.
``tensor``: all of them, in functions that run only while training."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """A number, or one per column of the first argument, that a function learns."""

    name: str
    initial: float
    is_vector: bool


@dataclass(frozen=True)
class Slot:
    """A place for a function, and its contract."""

    name: str
    signature: str
    """First line of the function, with types, without the colon."""
    doc: str
    """Shapes, dtypes and limits, in a sentence or two."""
    reach: Reach
    builtin: Mapping[str, str]
    """Body of what is built in, by the value of :attr:`chosen_by`; "" without such a field."""
    chosen_by: str = ""
    """The field of a config that chooses among the built-in functions."""
    reads: Mapping[str, str] = field(default_factory=dict)
    """Numbers that the function may also use by name, and what they are."""
    learns: bool = False
    """Whether it may declare learned parameters."""
    only_training: bool = False
    """Whether the function is never called when text is scored."""

    @property
    def key(self) -> str:
        """Name of the slot in configs and menus: ``code.activation``."""
        return CODE + self.name

    @cached_property
    def arguments(self) -> tuple[str, ...]:
        """Names of its arguments."""
        (function,) = ast.parse(f"{self.signature}: pass").body
        assert isinstance(function, ast.FunctionDef)
        return tuple(one.arg for one in function.args.args)

    def body(self, choice: object = "") -> str | None:
        """Return the body that is built in for a value of :attr:`chosen_by`; None if the slot is
        unused with that value."""
        return self.builtin.get(str(choice) if self.chosen_by else "")


_LAYER_NORM = """\
centered = x - x.mean(-1, keepdim=True)
return centered * torch.rsqrt(centered.square().mean(-1, keepdim=True) + 1e-5) * weight"""
_RMS_NORM = "return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-5) * weight"
_SCHEDULE = """\
if step <= warmup:
    return step / (warmup + 1)
done = min(1.0, (step - 1 - {begin}) / max(1, horizon - {begin}))
return min_ratio + (1.0 - min_ratio) * {left}"""
_ADAMW = """\
state.mean = state.mean + (1.0 - beta1) * (grad - state.mean)
state.square = state.square + (1.0 - beta2) * (grad * grad - state.square)
mean = state.mean / (1.0 - beta1 ** step)
square = state.square / (1.0 - beta2 ** step)
return param - lr * mean / (square.sqrt() + 1e-8)"""
_UPDATE_READS = {"beta1": "the config's beta1", "beta2": "the config's beta2"}
_UPDATE = (
    "It is called once a step for each {which}, in fp32: param and grad have the same shape, and "
    "grad is clipped already; weight decay was applied to matrices. state is the only memory: "
    "state.NAME is a tensor, zeros shaped like param until it is first assigned, and at most as "
    "large as param; six names at most. lr is the scheduled rate; step counts from 1. Returns the "
    "new param."
)

SLOTS: Mapping[str, Slot] = {
    slot.name: slot
    for slot in (
        Slot(
            "activation",
            "def activation(x: Tensor) -> Tensor",
            "Between the two products of the feed-forward block. x has shape (tokens, d_ff), in"
            " the stream's dtype (bf16, or fp32 at that precision); the result has both too.",
            "row",
            {"gelu": "return F.gelu(x)", "relu2": "return F.relu(x).square()"},
            "activation",
            learns=True,
        ),
        Slot(
            "gate",
            "def gate(x: Tensor, y: Tensor) -> Tensor",
            "In place of activation where the feed-forward block is gated (activation swiglu or "
            "geglu): x is the gate's branch, y the linear one, both (tokens, d_ff) in the "
            "stream's dtype, as is the result.",
            "row",
            {"swiglu": "return F.silu(x) * y", "geglu": "return F.gelu(x) * y"},
            "activation",
            learns=True,
        ),
        Slot(
            "norm",
            "def norm(x: Tensor, weight: Tensor) -> Tensor",
            "Every norm of the residual stream. x has shape (tokens, d_model), weight "
            "(d_model,) starts as ones and is learned; both, and the result, have the stream's "
            "dtype.",
            "row",
            {"layernorm": _LAYER_NORM, "rmsnorm": _RMS_NORM},
            "norm",
            learns=True,
        ),
        Slot(
            "residual",
            "def residual(x: Tensor, branch: Tensor, layer: int, n_layer: int) -> Tensor",
            "Adds the output of attention, and then of the feed-forward block, to the stream x. "
            "Both have shape (tokens, d_model) and the stream's dtype, as has the result. "
            "layer counts from 0 to n_layer - 1.",
            "row",
            {"": "return x + branch"},
            learns=True,
        ),
        Slot(
            "attention_scores",
            "def attention_scores(scores: Tensor) -> Tensor",
            "Attention's scores, queries times keys / sqrt(head_dim), before the causal mask and "
            "softmax. scores has shape (batch, heads, queries, keys) and is fp32, as is the "
            "result. Each score may depend on itself and its place alone; "
            "torch.arange(scores.shape[-1], device=scores.device) gives places.",
            "element",
            {"": "return scores"},
            learns=True,
        ),
        Slot(
            "logits",
            "def logits(z: Tensor) -> Tensor",
            "Between the head and the softmax. z has shape (tokens, vocabulary) and is fp32, as is "
            "the result.",
            "row",
            {"": "return z"},
            learns=True,
        ),
        Slot(
            "schedule",
            "def schedule(step: int, horizon: int, warmup: int) -> float",
            "The factor of lr for a step, from 0 to 10. step counts from 1; a trial ends before "
            "horizon, the length for which the schedule is meant.",
            "number",
            {
                "cosine": _SCHEDULE.format(
                    begin="warmup", left="0.5 * (1.0 + math.cos(math.pi * done))"
                ),
                "linear": _SCHEDULE.format(begin="warmup", left="(1.0 - done)"),
                "wsd": _SCHEDULE.format(
                    begin="max(warmup, horizon * (1.0 - decay_share))",
                    left="(1.0 - max(done, 0.0))",
                ),
            },
            "schedule",
            {"min_ratio": "the config's lr_min_ratio", "decay_share": "the config's decay_share"},
            only_training=True,
        ),
        Slot(
            "init",
            "def init(shape: tuple[int, int], fan_in: int, layer: int, n_layer: int, "
            "generator: Generator) -> Tensor",
            "The first weights of each matrix of the blocks: a CPU tensor of that shape (outputs, "
            "inputs), fp32. Random functions need generator=generator. layer counts from 0.",
            "tensor",
            {"": "return torch.randn(shape, generator=generator) * std"},
            reads={"std": "the standard deviation that is built in for this matrix"},
            only_training=True,
        ),
        Slot(
            "update",
            "def update(param: Tensor, grad: Tensor, state: State, lr: float, step: int) -> Tensor",
            _UPDATE.format(which="matrix of the blocks (outputs, inputs)"),
            "tensor",
            {"adamw": _ADAMW},
            chosen_by="optimizer",
            reads=_UPDATE_READS,
            only_training=True,
        ),
        Slot(
            "update_rest",
            "def update_rest(param: Tensor, grad: Tensor, state: State, lr: float, step: int) "
            "-> Tensor",
            _UPDATE.format(which="parameter outside the blocks' matrices: embeddings, head, gains"),
            "tensor",
            {"": _ADAMW},
            reads=_UPDATE_READS,
            only_training=True,
        ),
        Slot(
            "aux_loss",
            "def aux_loss(logits: Tensor, hidden: Tensor) -> Tensor",
            "A number that is added to the training loss, in nats per token. logits has shape "
            "(tokens, vocabulary) and is fp32; hidden (tokens, d_model) is what the head reads. It "
            "is not part of any score.",
            "tensor",
            {"": "return 0.0"},
            only_training=True,
        ),
    )
}
"""Every slot by its name."""


def slot_of(name: str) -> Slot:
    """Return the slot of a name, with or without ``code.``.

    :raises SpecError: if there is none.
    """
    bare = name.removeprefix(CODE)
    if bare not in SLOTS:
        raise SpecError(f"there is no slot {bare!r} for code{did_you_mean(bare, SLOTS)}")
    return SLOTS[bare]
