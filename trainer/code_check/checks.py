"""Check functions one by one, then inside small models."""

from collections.abc import Callable
from itertools import count
from typing import Any

import torch
from torch import Tensor

from trainer.backends.coded import (
    CodeFailed,
    CodeFunction,
    CodeUpdate,
    checked,
    plain_function,
    schedule_factor,
)
from trainer.code import SLOTS, Slot
from trainer.code_check import CodeVerdict
from trainer.code_check.models import check_models, prices
from trainer.spec import Config

CPU = torch.device("cpu")
SCALES = (0.0, 1e-3, 1.0, 100.0)
"""Standard deviations of the numbers that functions are tried on."""
COLUMNS = 16
_STEP = 1e-3
"""Half the width of finite differences, in fp64."""
_TOLERANCE = 0.02


def verdict_on(config: Config, price: float) -> CodeVerdict:
    """Return what is wrong with a config's functions."""
    torch.set_num_threads(1)
    try:
        with torch.random.fork_rng(devices=()):
            for key, source in config.code.items():
                _CHECKS[SLOTS[key.removeprefix("code.")].reach](key, source, config)
            check_models(config)
        ratios = prices(config)
    except CodeFailed as failed:
        return CodeVerdict(why=str(failed))
    except Exception as error:  # noqa: BLE001 (whatever a function can raise)
        said = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
        return CodeVerdict(why=f"{', '.join(config.code)} raised {said}; correct it")
    for ratio, what in zip(ratios, ("time", "memory for the backward pass"), strict=True):
        if ratio > price:
            return CodeVerdict(
                why=f"{', '.join(config.code)}: a step takes {ratio:.1f} times the {what} of what "
                f"is built in, more than {price:g}; use fewer operations"
            )
    return CodeVerdict()


# --- functions of the forward pass --------------------------------------------------------------


def _check_forward(key: str, source: str, config: Config) -> None:
    slot = SLOTS[key.removeprefix("code.")]
    function = CodeFunction(slot, source, COLUMNS, CPU)
    function.reset()
    stream = torch.float32 if config.precision == "fp32" else torch.bfloat16
    dtypes = (torch.float32,) if slot.name in {"logits", "attention_scores"} else (stream,)
    for dtype in dict.fromkeys((torch.float32, *dtypes)):
        for scale in SCALES:
            _check_finite(slot, function, dtype, scale)
    function.double()
    # Compare the gradient with finite differences along random directions, in fp64.
    gaps = sorted(_gap(slot, function, seed) for seed in range(5))
    if not gaps[2] <= _TOLERANCE:  # the median: a draw may lie on a kink
        raise CodeFailed(
            f"{slot.key} has a gradient that is not that of its values; leave out detach and the "
            "like"
        )


def _tensors(slot: Slot, dtype: torch.dtype, scale: float, seed: int = 0) -> list[Any]:
    """Return arguments of a forward slot: tensors that need gradients, and whole numbers."""
    generator = torch.Generator().manual_seed(seed)
    shape = (2, 3, COLUMNS, COLUMNS) if slot.reach == "element" else (6, COLUMNS)
    found: list[Any] = []
    for name in slot.arguments:
        if name in {"layer", "n_layer"}:
            found.append(1 if name == "layer" else 4)
            continue
        size, spread = ((COLUMNS,), 1.0) if name == "weight" else (shape, scale)
        drawn = spread * torch.randn(size, generator=generator, dtype=torch.float64)
        found.append(drawn.to(dtype).requires_grad_())
    return found


def _check_finite(slot: Slot, function: CodeFunction, dtype: torch.dtype, scale: float) -> None:
    """Check shape, dtype, finite values and gradients, and that a second call gives the same."""
    arguments = _tensors(slot, dtype, scale)
    before = [one.clone() if isinstance(one, Tensor) else one for one in arguments]
    result = function(*arguments)
    where = f"on numbers of about {scale:g}"
    if not result.isfinite().all():
        raise CodeFailed(f"{slot.key} is not finite {where}; bound it, or add an epsilon")
    if not torch.equal(result, function(*arguments)):
        raise CodeFailed(f"{slot.key} gives another result the second time; make it a function")
    learned = list(function.parameters())
    given = [one for one in arguments if isinstance(one, Tensor)]
    if not result.requires_grad:
        raise CodeFailed(f"{slot.key} has no gradient; compute its result from its arguments")
    gradients = torch.autograd.grad(result.sum(), [*given, *learned], allow_unused=True)
    for one in gradients:
        if one is not None and not one.isfinite().all():
            raise CodeFailed(f"{slot.key} has no finite gradient {where}; add an epsilon")
    changed = zip(arguments, before, strict=True)
    if any(isinstance(one, Tensor) and not torch.equal(one, old) for one, old in changed):
        raise CodeFailed(f"{slot.key} changes its arguments; make new tensors")


def _gap(slot: Slot, function: CodeFunction, seed: int) -> float:
    arguments = _tensors(slot, torch.float64, 1.0, seed)
    generator = torch.Generator().manual_seed(100 + seed)
    given = [one for one in arguments if isinstance(one, Tensor)]
    draws = [torch.randn(one.shape, generator=generator, dtype=one.dtype) for one in given]
    weights = torch.randn(given[0].shape, generator=generator, dtype=torch.float64)

    def at(arguments: list[Any]) -> Tensor:
        result: Tensor = function(*arguments)
        return (result * weights).sum()

    def shifted(shift: float) -> float:
        moved = [one.detach() + shift * draw for one, draw in zip(given, draws, strict=True)]
        left = iter(moved)
        with torch.no_grad():
            return float(at([next(left) if isinstance(a, Tensor) else a for a in arguments]))

    gradients = torch.autograd.grad(at(arguments), given, allow_unused=True)
    parts = [
        (gradient * draw).sum().detach()
        for gradient, draw in zip(gradients, draws, strict=True)
        if gradient is not None
    ]
    analytic = sum(float(part) for part in parts)
    numeric = (shifted(_STEP) - shifted(-_STEP)) / (2 * _STEP)
    size = sum(abs(float(part)) for part in parts) + abs(numeric) + 1e-6
    return abs(analytic - numeric) / size


# --- functions of training ----------------------------------------------------------------------


def _check_schedule(key: str, source: str, config: Config) -> None:
    factor = schedule_factor(config)
    assert factor is not None
    for horizon in (1, 60, 1000):
        given = [factor(step, horizon) for step in range(1, horizon + 1)]
        if given != [factor(step, horizon) for step in range(1, horizon + 1)]:
            raise CodeFailed(f"{key} gives another factor the second time; make it a function")


def _check_training(key: str, source: str, config: Config) -> None:
    slot = SLOTS[key.removeprefix("code.")]
    if slot.name == "init":
        _check_init(slot, source)
    elif slot.name != "aux_loss":  # inside the models
        shapes: list[tuple[int, ...]] = [(12, 8), (8, 12), (8, 8)]
        if slot.name == "update_rest":
            shapes += [(8,), ()]
        for shape in shapes:
            _check_update(slot, config, shape)


def _check_init(slot: Slot, source: str) -> None:
    function = plain_function(slot, source)
    for shape, layer in zip(((48, 16), (16, 16), (16, 64)), count()):

        def draw(shape: tuple[int, int] = shape, layer: int = layer) -> Tensor:
            generator = torch.Generator().manual_seed(7)
            drawn = function(shape, shape[1], layer, 3, generator, std=0.02)
            return checked(slot, drawn, torch.empty(shape))

        first = draw()
        if not first.isfinite().all() or first.abs().max() > 100:
            raise CodeFailed(f"{slot.key} draws weights that are not within 100; draw smaller ones")
        if not torch.equal(first, draw()):
            raise CodeFailed(f"{slot.key} draws other weights the second time; use generator alone")


def _check_update(slot: Slot, config: Config, shape: tuple[int, ...]) -> None:
    """Check that a rule survives gradients of all sizes and approaches a minimum."""
    for scale in (0.0, 1e-8, 1.0, 1e4):

        def noise(p: Tensor, draw: Tensor, scale: float = scale) -> Tensor:
            return draw * scale

        first, again = (_updated(slot, config, shape, noise, 8) for _ in range(2))
        if not first.isfinite().all():
            raise CodeFailed(
                f"{slot.key} gives weights that are not finite after gradients of about {scale:g}; "
                "add an epsilon"
            )
        if not torch.equal(first, again):
            raise CodeFailed(f"{slot.key} gives other weights the second time; keep only state")
    start = _updated(slot, config, shape, lambda p, draw: p, 0)
    end = _updated(slot, config, shape, lambda p, draw: p, 100)
    if not end.square().sum() < start.square().sum():
        raise CodeFailed(
            f"{slot.key} does not approach the minimum of a parabola in 100 steps; subtract lr "
            "times a direction of descent"
        )


def _updated(
    slot: Slot,
    config: Config,
    shape: tuple[int, ...],
    gradient: Callable[[Tensor, Tensor], Tensor],
    steps: int,
) -> Tensor:
    """Return a parameter after steps with these gradients, without weight decay."""
    generator = torch.Generator().manual_seed(3)
    parameter = torch.nn.Parameter(1.0 + torch.rand(shape, generator=generator))
    plain = config.model_copy(update={"weight_decay": 0.0})
    update = CodeUpdate(plain, slot.name, [(parameter, 1.0)])
    one, zero = torch.ones(()), torch.zeros(())
    with torch.no_grad():
        for step in range(1, steps + 1):
            draw = torch.randn(shape, generator=generator)
            parameter.grad = gradient(parameter.detach().clone(), draw)
            update.step(one, zero, 0.01, step)
    return parameter.detach()


_CHECKS: dict[str, Callable[[str, str, Config], None]] = {
    "row": _check_forward,
    "element": _check_forward,
    "number": _check_schedule,
    "tensor": _check_training,
}
