"""Turn the source of a slot's function into a module of the model.

The config holds the source, and its validator has passed it through every static rail, so nothing
is compiled here that they refuse. A function sees the names that its slot lists and no builtins but
a few of Python's arithmetic.

:func:`check_causality` compares a model's logits, which may depend on earlier tokens of their own
sequence alone, with themselves, on whichever weights it has: it is run on small models with random
weights before a function is tried, and on the trained weights before they are scored.
"""

import ast
import math
from collections.abc import Callable, Iterable
from functools import lru_cache
from types import CodeType
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from trainer.code import SLOTS, Slot, function_of, parameters
from trainer.schema import Config

FORWARD_SLOTS = frozenset(
    slot.key for slot in SLOTS.values() if not slot.only_training or slot.name == "aux_loss"
)
"""Slots that the forward pass calls: our kernels step aside for them."""
_NAMES: dict[str, Any] = {
    "__builtins__": {"abs": abs, "min": min, "max": max, "float": float, "int": int},
    "range": range,
    "torch": torch,
    "F": functional,
    "math": math,
    "D": Tensor,
}
MAX_STATES = 6


class CodeFailed(Exception):
    """A slot's function did what its contract does not allow; the message is one sentence."""


def plain_function(slot: Slot, source: str) -> Callable[..., Any]:
    """Return the function of a source that the static rails passed. The numbers that the slot
    ``reads`` and the learned parameters are keyword arguments."""
    function = function_of(slot, source)
    learned = function.args.kwonlyargs
    for one in learned:
        one.annotation = None
    function.args.kwonlyargs = [*learned, *(ast.arg(name) for name in slot.reads)]
    function.args.kw_defaults += [None] * len(slot.reads)
    module = ast.fix_missing_locations(ast.Module([function], []))
    code: CodeType = compile(module, slot.key, "exec")
    names = dict(_NAMES)
    exec(code, names)
    made: Callable[..., Any] = names[slot.name]
    return made


class CodeFunction(nn.Module):
    """The function of one slot at one place of the model, with its learned parameters."""

    def __init__(self, slot: Slot, source: str, width: int, device: torch.device) -> None:
        """:param width: columns of the first argument."""
        super().__init__()
        self._slot = slot
        self._function = plain_function(slot, source)
        self._declared = parameters(slot, source)
        for one in self._declared:
            shape = (width,) if one.is_vector else ()
            self.register_parameter(one.name, nn.Parameter(torch.empty(shape, device=device)))

    def reset(self) -> None:
        """Give the learned parameters their first values."""
        with torch.no_grad():
            for one in self._declared:
                self.get_parameter(one.name).fill_(one.initial)

    def forward(self, x: Tensor, *others: object) -> Tensor:
        """Return the function's result, which has the shape and dtype of its first argument.

        :raises CodeFailed: if it has another.
        """
        learned = {one.name: self.get_parameter(one.name).to(x.dtype) for one in self._declared}
        result = self._function(x, *others, **learned)
        return checked(self._slot, result, x)

    def number(self, *arguments: Tensor) -> Tensor:
        """Return the function's result, a single number.

        :raises CodeFailed: if it is none.
        """
        result = torch.as_tensor(self._function(*arguments), device=arguments[0].device)
        return checked(self._slot, result.float(), arguments[0].new_zeros(()))


def checked(slot: Slot, result: object, like: Tensor) -> Tensor:
    """Return a function's result if it has the shape and dtype of ``like``.

    :raises CodeFailed: otherwise.
    """
    if not isinstance(result, Tensor):
        raise CodeFailed(f"{slot.key} returned {type(result).__name__}; return a tensor")
    if result.shape != like.shape or result.dtype != like.dtype:
        raise CodeFailed(
            f"{slot.key} returned shape {tuple(result.shape)} and {result.dtype}; return shape "
            f"{tuple(like.shape)} and {like.dtype}"
        )
    return result


def code_function(
    name: str, config: Config, width: int, device: torch.device
) -> CodeFunction | None:
    """Return the module of a slot's function in this config; None if the slot has none."""
    slot = SLOTS[name]
    source = config.code.get(slot.key)
    return None if source is None else CodeFunction(slot, source, width, device)


def init_by_code(
    config: Config, blocks: Iterable[nn.Module], std: float, residual_std: float
) -> None:
    """Draw the blocks' matrices by the config's own function, if it has one.

    :param residual_std: the built-in standard deviation of what writes to the residual stream.
    """
    slot = SLOTS["init"]
    source = config.code.get(slot.key)
    if source is None:
        return
    function = plain_function(slot, source)
    generator = torch.Generator().manual_seed(torch.initial_seed())
    for layer, block in enumerate(blocks):
        for name, matrix in block.named_parameters():
            if matrix.dim() > 1:
                own = residual_std if name.endswith(("out_DD", "down_DF")) else std
                shape = tuple(matrix.shape)
                drawn = function(shape, shape[1], layer, config.n_layer, generator, std=own)
                matrix.copy_(checked(slot, drawn, torch.empty(shape)))


@lru_cache(maxsize=4)
def schedule_factor(config: Config) -> Callable[[int, int], float] | None:
    """Return the config's own schedule, a function of step and horizon; None if it has none."""
    slot = SLOTS["schedule"]
    source = config.code.get(slot.key)
    if source is None:
        return None
    function = plain_function(slot, source)

    def factor(step: int, horizon: int) -> float:
        share = function(
            *(step, horizon, config.lr_warmup),
            min_ratio=config.lr_min_ratio,
            decay_share=config.decay_share,
        )
        if not isinstance(share, int | float) or not 0 <= share <= 10:
            raise CodeFailed(
                f"{slot.key} gave {share!r:.40} at step {step} of {horizon}; return 0 to 10"
            )
        return float(share)

    return factor


class State:
    """Memory of an optimizer rule for one parameter: tensors by name, zeros at first."""

    def __init__(self, like: Tensor) -> None:
        vars(self)["_like"] = like
        vars(self)["_tensors"] = {}

    def __getattr__(self, name: str) -> Tensor:
        tensors: dict[str, Tensor] = vars(self)["_tensors"]
        found = tensors.get(name)
        return torch.zeros_like(vars(self)["_like"]) if found is None else found

    def __setattr__(self, name: str, value: object) -> None:
        tensors: dict[str, Tensor] = vars(self)["_tensors"]
        if not isinstance(value, Tensor) or value.numel() > vars(self)["_like"].numel():
            raise CodeFailed(f"state.{name} is not a tensor as large as param at most; store one")
        if name not in tensors and len(tensors) == MAX_STATES:
            raise CodeFailed(f"state has more than {MAX_STATES} tensors; remove state.{name}")
        tensors[name] = value.detach()


class CodeUpdate:
    """The optimizer rule of one slot, for the parameters that it updates."""

    def __init__(
        self, config: Config, name: str, targets: list[tuple[nn.Parameter, float]]
    ) -> None:
        """:param targets: parameters, each with the multiple of the learning rate that it has."""
        self._slot = SLOTS[name]
        self._function = plain_function(self._slot, config.code[self._slot.key])
        self._betas = {"beta1": config.beta1, "beta2": config.beta2}
        self._weight_decay = config.weight_decay
        self._targets = [(p, rate, State(torch.zeros_like(p))) for p, rate in targets]

    def step(self, scale: Tensor, stopped: Tensor, lr: float, step: int) -> None:
        """Update the parameters and clear their gradients; do nothing where ``stopped`` is 1."""
        for parameter, rate, state in self._targets:
            assert parameter.grad is not None
            own_lr = lr * rate
            decay = self._weight_decay if parameter.dim() > 1 else 0.0
            shrunk = parameter * (1.0 - own_lr * decay)
            gradient = parameter.grad / scale
            parameter.grad = None
            result = self._function(shrunk, gradient, state, own_lr, step, **self._betas)
            new = checked(self._slot, result, parameter)
            parameter.copy_(torch.where(stopped > 0, parameter, new))

    @property
    def parameters(self) -> list[nn.Parameter]:
        """The parameters that it updates."""
        return [parameter for parameter, _, _ in self._targets]


_SAME_SHAPE = 1e-5
"""Largest difference between logits from products of the same shapes, as a share of the largest."""
_OTHER_SHAPE = {"fp32": 1e-3, "bf16": 0.1}
"""Tolerance, by precision, between products of other shapes, which sum in another order."""


@torch.no_grad()
def check_causality(model: nn.Module, tokens_BT: Tensor, config: Config) -> None:
    """Compare the logits with those where later tokens, or other sequences, are others or missing,
    in training and in scoring.

    :raises CodeFailed: if they differ.
    """
    tokens_BT = tokens_BT.to(next(model.parameters()).device)
    (batch, length), others = tokens_BT.shape, tokens_BT.flip(0, 1)
    loose = _OTHER_SHAPE[config.precision]
    cases = []
    for end in sorted({1, 2, length // 2, length - 1}):
        changed = torch.cat((tokens_BT[:, :end], others[:, end:]), 1)
        cases.append(("later tokens", changed, (batch, end), _SAME_SHAPE))
        cases.append(("length", tokens_BT[:, :end], (batch, end), loose))
    for rows in range(1, batch):
        changed = torch.cat((tokens_BT[:rows], others[rows:]))
        cases.append(("other sequences", changed, (rows, length), _SAME_SHAPE))
        cases.append(("other sequences", tokens_BT[:rows], (rows, length), loose))
    was_training = model.training
    try:
        for mode in ("training", "scoring"):
            model.train(mode == "training")
            logits: Tensor = model.logits(tokens_BT)  # type: ignore[operator]
            for what, tokens, (rows, end), share in cases:
                wanted = logits[:rows, :end]
                gap = (model.logits(tokens)[:rows, :end] - wanted).abs().max()  # type: ignore[operator]
                if not bool(gap <= share * wanted.abs().max().clamp(min=1e-3)):
                    raise CodeFailed(
                        f"the logits at a position change with its {what} ({mode}): "
                        f"{', '.join(config.code)}; use only the numbers of one token"
                    )
    finally:
        model.train(was_training)
